package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/extdiff"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

func diffsCommand(env *cli.Env) *cobra.Command {
	return cli.Group("diffs", "Read, check, move and bring back diffs that are in object storage", "  sexton diffs verify",
		diffsShowCommand(env), diffsVerifyCommand(env), diffsMoveCommand(env), diffsRestoreCommand(env), diffsReleaseCommand(env), diffsAdoptCommand(env))
}

// onDiffs completes a command that works with the engine that moves diffs.
func onDiffs(env *cli.Env, cmd *cobra.Command, do func(ctx context.Context, engine *extdiff.Engine) error) *cobra.Command {
	return env.Reports(cmd, func(ctx context.Context, _ []string) error {
		c, err := env.LoadConfig()
		if err != nil {
			return err
		}
		if !c.Has(migrate.ExternalDiffs) {
			return cli.Usage(errors.New("external diffs are not enabled; " +
				"set external_diffs.enabled: true (it is the worker that moves diffs, not this command)"))
		}
		return env.With(ctx, riverjobs.ScheduleExternalDiffs, func(all *installation.Connections) error {
			engine, err := riverjobs.OpenDiffs(ctx, all.Config, all.Jobs(), env.Logger(all.Config), installation.Holder())
			if err != nil {
				return err
			}
			return do(ctx, engine)
		})
	})
}

func diffsShowCommand(env *cli.Env) *cobra.Command {
	var id int64
	var only int32
	var cmd *cobra.Command
	cmd = onDiffs(env, &cobra.Command{
		Use:   "show ID",
		Short: "Print a diff from wherever it is stored",
		Long: `Prints the files of a diff in their order, from the database or from object storage, as git would. What is stored as
base64 is decoded. With --json it lists the files and where their texts are, without the texts.`,
		Example: "  sexton diffs show 4711\n  sexton diffs show 4711 --file 0 > part.diff",
		Args:    cli.OneID(&id, "diff"),
	}, func(ctx context.Context, engine *extdiff.Engine) error {
		var wanted *int32
		if cmd.Flags().Changed("file") {
			wanted = &only
		}
		return engine.Read(ctx, id, func(r *extdiff.Reading) error { return showDiff(ctx, env, r, wanted) })
	})
	cmd.Flags().Int32Var(&only, "file", 0, "`NUMBER` (relative_order) of the one file to print, without a heading")
	return cmd
}

// showDiff prints all files, or the one that is wanted.
func showDiff(ctx context.Context, env *cli.Env, r *extdiff.Reading, wanted *int32) error {
	files := append([]extdiff.File{}, r.Files...)
	files = slices.DeleteFunc(files, func(f extdiff.File) bool { return wanted != nil && f.Order != *wanted })
	if wanted != nil && len(files) == 0 {
		return fmt.Errorf("the diff has no file %d; `sexton diffs show --json` lists its %s", *wanted, words.Counted(int64(len(r.Files)), "file"))
	}
	if env.JSON {
		return env.PrintJSON(files)
	}
	var damaged error
	for _, f := range files {
		if wanted == nil {
			env.Printf("diff --git a/%s b/%s\n", f.OldPath, f.NewPath)
		}
		err := r.WriteText(ctx, f, env.Stdout)
		if broken, ok := errors.AsType[*extdiff.BrokenError](err); ok {
			damaged = errors.Join(damaged, broken) // The other files can be read.
		} else if err != nil {
			return err
		}
	}
	return damaged
}

// verifiedDiffs is the output of `sexton diffs verify --json`.
type verifiedDiffs struct {
	extdiff.Verified

	// Removed counts objects that --remove-dangling has deleted, Busy the objects that it has left because a job works on their diff.
	Removed  int64             `json:"removed"`
	Busy     int64             `json:"busy"`
	Findings []extdiff.Finding `json:"findings"`
}

func diffsVerifyCommand(env *cli.Env) *cobra.Command {
	grace := extdiff.DefaultGrace
	remove := false
	cmd := onDiffs(env, &cobra.Command{
		Use:   "verify",
		Short: "Check every diff in object storage",
		Long: `Reads every object back and compares its size and checksum, and the offsets and sizes of its files, with what the rows say.
Then it lists objects that no row refers to. --remove-dangling deletes those; without it external_diffs.sweep does, once a day,
unless most objects have no row. One whose diff is being worked on is left, and counted as busy. Exits 5 where a diff is damaged.`,
		Example: "  sexton diffs verify\n  sexton diffs verify --remove-dangling --grace 72h",
	}, func(ctx context.Context, engine *extdiff.Engine) error {
		return verifyDiffs(ctx, env, engine, grace, remove)
	})
	cmd.Flags().DurationVar(&grace, "grace", grace, "`AGE` from which on an object without a row is listed")
	cmd.Flags().BoolVar(&remove, "remove-dangling", false, "delete objects that no row refers to")
	return cmd
}

func verifyDiffs(ctx context.Context, env *cli.Env, engine *extdiff.Engine, grace time.Duration, remove bool) error {
	document := verifiedDiffs{Findings: []extdiff.Finding{}}
	if remove {
		if err := engine.Owner.Check(ctx); err != nil {
			return err
		}
	}
	var err error
	document.Verified, err = engine.Verify(ctx, grace, func(f extdiff.Finding) {
		document.Findings = append(document.Findings, f)
		if !env.JSON {
			env.Printf("%s\n", f)
		}
	})
	if err != nil {
		return err
	}
	if remove {
		if err := document.removeDangling(ctx, engine); err != nil {
			return err
		}
	}
	err = env.Print(document, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "%d diffs of %d bytes, %d objects: %d damaged, %d dangling\n",
			document.Diffs, document.Bytes, document.Objects, document.Damaged, document.Verified.Dangling)
		if remove {
			_, _ = fmt.Fprintf(w, "%d removed, %d busy\n", document.Removed, document.Busy)
		}
	})
	if err == nil && document.Damaged > 0 {
		return cli.ErrFindings
	}
	return err
}

// removeDangling deletes what is dangling. One whose diff is being worked on is for the next time.
func (d *verifiedDiffs) removeDangling(ctx context.Context, engine *extdiff.Engine) error {
	for _, f := range d.Findings {
		if !f.Dangling || f.DiffID == 0 {
			continue
		}
		gone, err := engine.RemoveDangling(ctx, f)
		_, busy := errors.AsType[*extdiff.BusyError](err)
		switch {
		case busy:
			d.Busy++
		case err != nil:
			return err
		case gone:
			d.Removed++
		}
	}
	return nil
}

func diffsRestoreCommand(env *cli.Env) *cobra.Command {
	var id int64
	return onDiffs(env, &cobra.Command{
		Use:   "restore ID",
		Short: "Bring a diff back into the database",
		Long: `Puts the texts of a diff back into its rows, then removes the object. The diff stays in the database from then on, whatever
external_diffs.when says, until it is released.`,
		Example: "  sexton diffs restore 4711",
		Args:    cli.OneID(&id, "diff"),
	}, func(ctx context.Context, engine *extdiff.Engine) error {
		restored, err := engine.Restore(ctx, id)
		if err != nil {
			return err
		}
		said := "is in the database"
		if restored.Files > 0 {
			said = fmt.Sprintf("%d files, %d bytes", restored.Files, restored.Bytes)
		}
		if restored.Files > 0 && restored.Kept != "" {
			said += fmt.Sprintf("; the object %s will be removed later", restored.Kept)
		}
		return env.Say(restored, "diff %d: %s\n", id, said)
	})
}

// releasedDiff is the output of `sexton diffs release --json`.
type releasedDiff struct {
	DiffID int64 `json:"diff_id"`
	// Released is false where nothing kept the diff in the database.
	Released bool `json:"released"`
}

func diffsReleaseCommand(env *cli.Env) *cobra.Command {
	var id int64
	return onDiffs(env, &cobra.Command{
		Use:     "release ID",
		Short:   "Let a diff that was brought back be moved again",
		Long:    "Takes back what `sexton diffs restore` has said: the diff is moved again when it is due. Nothing changes where it was not said.",
		Example: "  sexton diffs release 4711",
		Args:    cli.OneID(&id, "diff"),
	}, func(ctx context.Context, engine *extdiff.Engine) error {
		released, err := engine.Release(ctx, id)
		if err != nil {
			return err
		}
		said := "was not brought back by hand, so nothing keeps it in the database"
		if released {
			said = "is moved when it is due"
		}
		return env.Say(releasedDiff{DiffID: id, Released: released}, "diff %d: %s\n", id, said)
	})
}
