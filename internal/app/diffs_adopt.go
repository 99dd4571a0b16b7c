package app

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"sexton/internal/audittrail"
	"sexton/internal/extdiff"
)

func (a *app) diffsAdoptCommand() *cobra.Command {
	var other bool
	cmd := a.reports(&cobra.Command{
		Use:   "adopt",
		Short: "Take the objects of the configured store over from another database",
		Long: `Each store has a marker, merge_request_diffs/.sexton.json, that says which database its objects belong to; every other one is
refused. This writes it anew: for a database that was restored from a dump, moved to another server, upgraded by pg_upgrade, or
set back in time, once no other database uses the objects. The database that they belonged to is refused from then on.`,
		Example: "  sexton diffs adopt\n  sexton diffs adopt --json",
		Args:    cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			return a.withDiffs(cmd.Context(), func(ctx context.Context, engine *extdiff.Engine) error {
				if !other {
					return a.adoptDiffs(ctx, engine)
				}
				at, err := engine.Other.Get(ctx)
				if err == nil && at == nil {
					err = usageError{errors.New("external_diffs.other_bucket is not set")}
				}
				if err != nil {
					return err
				}
				return a.adoptDiffs(ctx, at)
			})
		}),
	})
	cmd.Flags().BoolVar(&other, "other", false, "take over the store external_diffs.other_bucket, not external_diffs.bucket")
	return cmd
}

func (a *app) adoptDiffs(ctx context.Context, engine *extdiff.Engine) error {
	entry := audittrail.Entry{Actor: actor(), Action: "adopt", Target: engine.Store.Identity()}
	if err := audittrail.Record(ctx, engine.DB, engine.DB.Pool, entry); err != nil {
		return err
	}
	adopted, err := engine.Owner.Adopt(ctx)
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(adopted)
	case !adopted.Changed:
		a.printf("%s: belongs to this database\n", adopted.Store)
	case adopted.Was == nil:
		a.printf("%s: now belongs to %s\n", adopted.Store, adopted.Now)
	default:
		a.printf("%s: belonged to %s, now belongs to %s\n", adopted.Store, adopted.Was, adopted.Now)
	}
	return nil
}
