package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/blobstore"
	"sexton/internal/cli"
	"sexton/internal/extdiff"
	"sexton/internal/installation"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

func diffsCommand(env *cli.Env) *cobra.Command {
	return cli.Group("diffs", "Read, verify and restore diffs in object storage", "  sexton diffs verify",
		diffsShowCommand(env), diffsVerifyCommand(env), diffsRestoreCommand(env), diffsReleaseCommand(env),
		diffsAdoptCommand(env))
}

// onDiffs makes cmd call do with an engine that is connected to the store of diffs.
func onDiffs(env *cli.Env, cmd *cobra.Command, do func(ctx context.Context,
	engine *extdiff.Engine) error,
) *cobra.Command {
	withEngine := func(ctx context.Context, all *installation.Connections) error {
		engine, err := riverjobs.OpenDiffs(ctx, all.Config, all.Jobs(), installation.Holder())
		if err != nil {
			return err
		}
		return do(ctx, engine)
	}
	return env.DatabaseCommand(riverjobs.ScheduleExternalDiffs, cmd, withEngine)
}

func diffsShowCommand(env *cli.Env) *cobra.Command {
	var id int64
	var only int32
	var cmd *cobra.Command
	cmd = env.DatabaseCommand(riverjobs.ScheduleExternalDiffs, &cobra.Command{
		Use:   "show ID",
		Short: "Print a diff from the database or from object storage",
		Long: `Prints the files of a diff in order, in Git's format, with Base64 decoded. --json lists the files
and where their texts are, without the texts. The store is opened only if the texts are there.`,
		Example: "  sexton diffs show 4711\n  sexton diffs show 4711 --file 0 > part.diff",
		Args:    cli.OneID(&id, "diff"),
	}, func(ctx context.Context, all *installation.Connections) error {
		var wanted *int32
		if cmd.Flags().Changed("file") {
			wanted = &only
		}
		reader := extdiff.Reader{DB: all.Jobs(), Open: func(ctx context.Context) (*blobstore.Store, error) {
			return riverjobs.OpenDiffStore(ctx, all.Config)
		}}
		return reader.Read(ctx, id, func(r *extdiff.Reading) error { return showDiff(ctx, env, r, wanted) })
	})
	cmd.Flags().Int32Var(&only, "file", 0, "print only the file with this `NUMBER` (relative_order), without a heading")
	return cmd
}

// showDiff prints all files of a diff, or only the file with the number wanted.
func showDiff(ctx context.Context, env *cli.Env, r *extdiff.Reading, wanted *int32) error {
	files := append([]extdiff.File{}, r.Files...)
	files = slices.DeleteFunc(files, func(f extdiff.File) bool { return wanted != nil && f.Order != *wanted })
	if wanted != nil && len(files) == 0 {
		return fmt.Errorf("the diff has no file %d; `sexton diffs show --json` lists its %s", *wanted,
			render.Counted(int64(len(r.Files)), "file"))
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
			// Continue with the other files, which may be readable.
			damaged = errors.Join(damaged, broken)
		} else if err != nil {
			return err
		}
	}
	return damaged
}

// verifiedDiffs is the output of `sexton diffs verify --json`.
type verifiedDiffs struct {
	extdiff.Verified

	// Removed is the number of objects that --remove deleted. Busy is the number of
	// objects that --remove skipped because a job holds the diff.
	Removed  int64             `json:"removed"`
	Busy     int64             `json:"busy"`
	Findings []extdiff.Finding `json:"findings"`
}

func diffsVerifyCommand(env *cli.Env) *cobra.Command {
	grace := extdiff.DefaultGrace
	remove := false
	cmd := onDiffs(env, &cobra.Command{
		Use:   "verify",
		Short: "Verify every diff in object storage",
		Long: `Reads every object and compares its size, its checksum and the offsets and sizes of its files with
the rows. Then lists the objects without a diff. --remove deletes these objects after all findings
are printed. It skips objects of diffs that a job holds, and counts them as busy. Exits 5 if a diff
is damaged.`,
		Example: "  sexton diffs verify\n  sexton diffs verify --remove --grace 72h",
	}, func(ctx context.Context, engine *extdiff.Engine) error {
		return verifyDiffs(ctx, env, engine, grace, remove)
	})
	cmd.Flags().DurationVar(&grace, "grace", grace,
		"list objects without a diff only if they are older than this `AGE`")
	cmd.Flags().BoolVar(&remove, "remove", false, "delete objects without a diff")
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
		if err := document.remove(ctx, engine); err != nil {
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

// remove deletes the objects in Findings that no diff names.
func (d *verifiedDiffs) remove(ctx context.Context, engine *extdiff.Engine) error {
	for _, f := range d.Findings {
		if !f.Dangling || f.DiffID == 0 {
			continue
		}
		removed, err := engine.RemoveUnnamed(ctx, f)
		_, busy := errors.AsType[*extdiff.BusyError](err)
		switch {
		case busy:
			d.Busy++
		case err != nil:
			return err
		case removed:
			d.Removed++
		}
	}
	return nil
}

func diffsRestoreCommand(env *cli.Env) *cobra.Command {
	var id int64
	return onDiffs(env, &cobra.Command{
		Use:   "restore ID",
		Short: "Restore a diff to the database",
		Long: `Writes the texts of a diff back to its rows, then removes the object. The diff is not moved again
until "sexton diffs release" releases it.`,
		Example: "  sexton diffs restore 4711",
		Args:    cli.OneID(&id, "diff"),
	}, func(ctx context.Context, engine *extdiff.Engine) error {
		restored, err := engine.Restore(ctx, id)
		if err != nil {
			return err
		}
		text := "is in the database"
		if restored.Files > 0 {
			text = fmt.Sprintf("%d files, %d bytes", restored.Files, restored.Bytes)
		}
		if restored.Files > 0 && restored.Kept != "" {
			text += fmt.Sprintf("; the object %s will be removed later", restored.Kept)
		}
		return env.PrintText(restored, "diff %d: %s\n", id, text)
	})
}

// releasedDiff is the output of `sexton diffs release --json`.
type releasedDiff struct {
	DiffID int64 `json:"diff_id"`
	// Released is false if there was nothing to release, because the diff had not been
	// restored.
	Released bool `json:"released"`
}

func diffsReleaseCommand(env *cli.Env) *cobra.Command {
	var id int64
	return onDiffs(env, &cobra.Command{
		Use:     "release ID",
		Short:   "Allow a restored diff to be moved again",
		Long:    `Allows a diff that "sexton diffs restore" has restored to be moved again when it is due.`,
		Example: "  sexton diffs release 4711",
		Args:    cli.OneID(&id, "diff"),
	}, func(ctx context.Context, engine *extdiff.Engine) error {
		released, err := engine.Release(ctx, id)
		if err != nil {
			return err
		}
		text := "was not restored, so there is nothing to release"
		if released {
			text = "will be moved when it is due"
		}
		return env.PrintText(releasedDiff{DiffID: id, Released: released}, "diff %d: %s\n", id, text)
	})
}
