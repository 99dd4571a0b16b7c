package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/bucketurl"
	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/extdiff"
	"sexton/internal/installation"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// progressEvery is the time between two lines that say how far a long command has come.
const progressEvery = 10 * time.Second

// diffsMove are the flags of `sexton diffs move`.
type diffsMove struct {
	to, from string
	limit    int64
	grace    time.Duration
	dryRun   bool
}

// movedDiffs is the output of `sexton diffs move --json`.
type movedDiffs struct {
	extdiff.Relocations

	From   string `json:"from"`
	To     string `json:"to"`
	DryRun bool   `json:"dry_run"`
	// Left are the diffs that stay where they are.
	Left []leftDiff `json:"left"`
}

type leftDiff struct {
	DiffID int64  `json:"diff_id"`
	Reason string `json:"reason"`
}

func diffsMoveCommand(env *cli.Env) *cobra.Command {
	m := diffsMove{grace: 10 * time.Minute}
	cmd := onDiffs(env, &cobra.Command{
		Use:   "move",
		Short: "Move diffs from the local disk to object storage, or back",
		Long: `Copies the object of each diff that is in the one store to the other, reads it back, compares size and checksum, and then
changes the diff's row. Diffs in the database stay there. The stores are external_diffs.bucket and external_diffs.other_bucket: set
both before, restart the workers, and diffs are read, checked and removed in both. --from names a store that no key
names: its old objects go at once, with --grace 0s.

It may be stopped or killed at any time, and goes on when it is run again. Several may run at once, beside workers. A diff that
another worker has, whose object is damaged, or that fails alone, stays and is listed; with damaged or failed ones it exits 5. It
ends at an outage of a store, and at the tenth failure in a row. The old objects go after --grace, as readers may have looked at
the rows before: by a worker, or by a later run of this command.`,
		Example: "  sexton diffs move --to 's3://diffs?region=eu-central-1' --dry-run\n" +
			"  sexton diffs move --to 's3://diffs?region=eu-central-1'\n  sexton diffs move --to file:///var/lib/sexton/diffs --limit 1000 --json",
	}, func(ctx context.Context, engine *extdiff.Engine) error { return moveDiffs(ctx, env, engine, m) })
	cli.Demand(cmd, func() error {
		switch {
		case m.to == "":
			return fmt.Errorf("%s needs --to", cmd.CommandPath())
		case m.limit < 0 || m.grace < 0:
			return errors.New("--limit and --grace must not be negative")
		}
		return nil
	})
	cmd.Flags().StringVar(&m.to, "to", "", "`URL` of the store that diffs are to be in, as in external_diffs.bucket")
	cmd.Flags().StringVar(&m.from, "from", "", "`URL` of the store that they are in (the configured one that is not --to)")
	cmd.Flags().Int64Var(&m.limit, "limit", 0, "move at most `N` diffs (0: all)")
	cmd.Flags().DurationVar(&m.grace, "grace", m.grace, "`TIME` for which the old objects stay for readers")
	cmd.Flags().BoolVar(&m.dryRun, "dry-run", false, "only count the diffs and their bytes")
	return cmd
}

func moveDiffs(ctx context.Context, env *cli.Env, configured *extdiff.Engine, m diffsMove) error {
	from, to, err := m.stores(ctx, configured)
	if err != nil {
		return err
	}
	remover, err := m.remover(ctx, configured, from, to)
	if err != nil {
		return err
	}
	to.Other = &extdiff.Other{Open: func(context.Context) (*extdiff.Engine, error) { return from, nil }}
	document := movedDiffs{From: from.Store.String(), To: to.Store.String(), DryRun: m.dryRun, Left: []leftDiff{}}
	if !m.dryRun {
		entry := database.Change{Actor: installation.Actor(), Action: "move", Target: to.Store.Identity(), Reason: "diffs of " + from.Store.Identity()}
		if err := database.RecordChange(ctx, to.DB, to.DB.Pool, entry); err != nil {
			return err
		}
	}
	told := time.Now()
	relocation := extdiff.Relocation{
		Engine: to, Remover: remover, Limit: m.limit, Later: m.grace, DryRun: m.dryRun,
		Left: func(id int64, reason error) {
			document.Left = append(document.Left, leftDiff{DiffID: id, Reason: reason.Error()})
			_, _ = fmt.Fprintf(env.Stderr, "%v; it stays in %s\n", reason, from.Store)
		},
		Progress: func(done extdiff.Relocations) {
			if time.Since(told) >= progressEvery {
				told = time.Now()
				_, _ = fmt.Fprintf(env.Stderr, "%s of %d bytes moved so far\n", words.Counted(done.Diffs, "diff"), done.Bytes)
			}
		},
	}
	document.Relocations, err = relocation.Run(ctx)
	if remover != configured && to.Store.Identity() != configured.Store.Identity() {
		_, _ = fmt.Fprintf(env.Stderr, "set external_diffs.other_bucket, or bucket, to %s: workers and other commands do not find these diffs before\n",
			to.Store)
	}
	if printErr := env.Print(document, func(w io.Writer) { printMoved(w, document) }); printErr != nil || err != nil {
		return errors.Join(err, printErr)
	}
	if document.Damaged+document.Failed > 0 {
		return cli.ErrFindings
	}
	return nil
}

func printMoved(w io.Writer, d movedDiffs) {
	verb, more := "moved", ""
	if d.DryRun {
		verb = "to be moved"
	}
	if d.OverLimit {
		more = "; more are left, as --limit is met"
	}
	_, _ = fmt.Fprintf(w, "%s of %d bytes %s from %s to %s: %d damaged, %d failed, %d busy%s\n",
		words.Counted(d.Diffs, "diff"), d.Bytes, verb, d.From, d.To, d.Damaged, d.Failed, d.Busy, more)
	if d.Removed > 0 {
		_, _ = fmt.Fprintf(w, "%s removed\n", words.Counted(d.Removed, "old object"))
	}
}

// stores are the engines of both stores.
func (m diffsMove) stores(ctx context.Context, configured *extdiff.Engine) (from, to *extdiff.Engine, err error) {
	open := func(flag, address string) (*extdiff.Engine, error) {
		address = string(config.AbsoluteBucket(config.URL(address), "")) // As in a variable, a relative path starts here.
		if _, err := bucketurl.Parse(address); err != nil {
			return nil, cli.Usage(fmt.Errorf("%s %w", flag, err))
		}
		return riverjobs.OpenDiffsLike(ctx, configured, flag, address)
	}
	if to, err = open("--to", m.to); err != nil {
		return nil, nil, err
	}
	switch {
	case m.from != "":
		from, err = open("--from", m.from)
	case to.Store.Identity() != configured.Store.Identity():
		from = configured
	default:
		from, err = configured.Other.Get(ctx)
		if err == nil && from == nil {
			err = cli.Usage(errors.New("--to is external_diffs.bucket; set external_diffs.other_bucket to the store that has the diffs, or --from"))
		}
	}
	if err == nil && from.Store.Kind() == to.Store.Kind() {
		err = cli.Usage(fmt.Errorf("%s and %s are both %s, which is all that rows say of a store: "+
			"copy the objects with a tool of the store, then change external_diffs.bucket", from.Store, to.Store, to.Store.Kind()))
	}
	return from, to, err
}

// remover is the engine that removes old objects: that of the workers, with the store that is not configured where one kind has none.
// Workers look for an object in the configured store of its kind, so neither may be another one.
func (m diffsMove) remover(ctx context.Context, configured, from, to *extdiff.Engine) (*extdiff.Engine, error) {
	other, err := configured.Other.Get(ctx)
	if err != nil {
		return nil, err
	}
	for _, flag := range []struct {
		name, then string
		at         *extdiff.Engine
	}{{"--to", "find the diffs", to}, {"--from", "remove the old objects", from}} {
		for key, known := range map[string]*extdiff.Engine{"external_diffs.bucket": configured, "external_diffs.other_bucket": other} {
			if known != nil && known.Store.Kind() == flag.at.Store.Kind() && known.Store.Identity() != flag.at.Store.Identity() {
				return nil, cli.Usage(fmt.Errorf("%s %s is another store than %s, %s, and rows say of both no more than %s: no worker would %s; "+
					"name the configured store, as it is written there, or change %s first",
					flag.name, flag.at.Store.Identity(), key, known.Store.Identity(), known.Store.Kind(), flag.then, key))
			}
		}
	}
	switch {
	case other != nil:
		return configured, nil
	case to.Store.Kind() != configured.Store.Kind():
		other = to
	case m.grace > 0 && !m.dryRun:
		return nil, cli.Usage(fmt.Errorf("no key names the store %s, so no worker would remove its old objects after --grace: "+
			"set external_diffs.other_bucket to it, or write --grace 0s", from.Store))
	default:
		other = from
	}
	remover := *configured
	remover.Other = &extdiff.Other{Open: func(context.Context) (*extdiff.Engine, error) { return other, nil }}
	return &remover, nil
}
