package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/extdiff"
	"sexton/internal/installation"
)

func diffsAdoptCommand(env *cli.Env) *cobra.Command {
	var other bool
	cmd := onDiffs(env, &cobra.Command{
		Use:   "adopt",
		Short: "Take the objects of the configured store over from another database",
		Long: `Each store has a marker, merge_request_diffs/.sexton.json, that says which database its objects belong to; every other one is
refused. This writes it anew: for a database that was restored from a dump, moved to another server, upgraded by pg_upgrade, or
set back in time, once no other database uses the objects. The database that they belonged to is refused from then on.`,
		Example: "  sexton diffs adopt\n  sexton diffs adopt --json",
	}, func(ctx context.Context, engine *extdiff.Engine) error {
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
	cmd.Flags().BoolVar(&other, "other", false, "take over the store external_diffs.other_bucket, not external_diffs.bucket")
	return cmd
}

func adoptDiffs(ctx context.Context, env *cli.Env, engine *extdiff.Engine) error {
	entry := database.Change{Actor: installation.Actor(), Action: "adopt", Target: engine.Store.Identity()}
	if err := database.RecordChange(ctx, engine.DB, engine.DB.Pool, entry); err != nil {
		return err
	}
	adopted, err := engine.Owner.Adopt(ctx)
	if err != nil {
		return err
	}
	said := fmt.Sprintf("now belongs to %s", adopted.Now)
	switch {
	case !adopted.Changed:
		said = "belongs to this database"
	case adopted.Was != nil:
		said = fmt.Sprintf("belonged to %s, %s", adopted.Was, said)
	}
	return env.Say(adopted, "%s: %s\n", adopted.Store, said)
}
