package records

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/extdiff"
	"sexton/internal/installation"
)

func diffsAdoptCommand(env *cli.Env) *cobra.Command {
	return onDiffs(env, &cobra.Command{
		Use:   "adopt",
		Short: "Make this database the owner of the objects in the store",
		Long: `The file merge_request_diffs/.sexton.json in the store names the database that owns the objects.
All other databases are refused. This command rewrites the file. Use it after the database was
restored from a dump, moved to another server, or upgraded by pg_upgrade, if no other database uses
the objects. The previous owner is refused from then on.`,
		Example: "  sexton diffs adopt\n  sexton diffs adopt --json",
	}, func(ctx context.Context, engine *extdiff.Engine) error { return adoptDiffs(ctx, env, engine) })
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
	text := fmt.Sprintf("now belongs to %s", adopted.Now)
	switch {
	case !adopted.Changed:
		text = "belongs to this database"
	case adopted.Was != nil:
		text = fmt.Sprintf("belonged to %s, %s", adopted.Was, text)
	}
	return env.PrintText(adopted, "%s: %s\n", adopted.Store, text)
}
