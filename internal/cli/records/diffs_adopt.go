package records

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"sexton/internal/audittrail"
	"sexton/internal/cli"
	"sexton/internal/extdiff"
	"sexton/internal/installation"
)

func diffsAdoptCommand(env *cli.Env) *cobra.Command {
	var other bool
	cmd := env.Reports(&cobra.Command{
		Use:   "adopt",
		Short: "Take the objects of the configured store over from another database",
		Long: `Each store has a marker, merge_request_diffs/.sexton.json, that says which database its objects belong to; every other one is
refused. This writes it anew: for a database that was restored from a dump, moved to another server, upgraded by pg_upgrade, or
set back in time, once no other database uses the objects. The database that they belonged to is refused from then on.`,
		Example: "  sexton diffs adopt\n  sexton diffs adopt --json",
		Args:    cobra.NoArgs,
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			return withDiffs(cmd.Context(), env, func(ctx context.Context, engine *extdiff.Engine) error {
				if !other {
					return adoptDiffs(ctx, env, engine)
				}
				at, err := engine.Other.Get(ctx)
				if err == nil && at == nil {
					err = cli.Usage(errors.New("external_diffs.other_bucket is not set"))
				}
				if err != nil {
					return err
				}
				return adoptDiffs(ctx, env, at)
			})
		}),
	})
	cmd.Flags().BoolVar(&other, "other", false, "take over the store external_diffs.other_bucket, not external_diffs.bucket")
	return cmd
}

func adoptDiffs(ctx context.Context, env *cli.Env, engine *extdiff.Engine) error {
	entry := audittrail.Entry{Actor: installation.Actor(), Action: "adopt", Target: engine.Store.Identity()}
	if err := audittrail.Record(ctx, engine.DB, engine.DB.Pool, entry); err != nil {
		return err
	}
	adopted, err := engine.Owner.Adopt(ctx)
	switch {
	case err != nil:
		return err
	case env.JSON:
		return env.PrintJSON(adopted)
	case !adopted.Changed:
		env.Printf("%s: belongs to this database\n", adopted.Store)
	case adopted.Was == nil:
		env.Printf("%s: now belongs to %s\n", adopted.Store, adopted.Now)
	default:
		env.Printf("%s: belonged to %s, now belongs to %s\n", adopted.Store, adopted.Was, adopted.Now)
	}
	return nil
}
