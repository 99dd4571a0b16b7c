// Package schema provides the commands that install Sexton in databases and propose
// definitions. Its entry point is Commands.
//
//	init, definitions ─► Propose (foreign keys to definitions), WayBack (the reverse)
//	migrate, grants ───► package migrate
//	triggers ──────────► installation, package triggers
//
// The invariant: with the proposed definitions, a deletion has the same result as with
// the foreign keys. A foreign key is kept, with a reason, if no definition has the same
// result. It is also kept if another foreign key would refuse more deletions because the
// rows of this key are deleted later.
package schema

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands returns the commands init, definitions, migrate, grants and triggers.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{
		initCommand(env), definitionsCommand(env), migrateCommand(env), grantsCommand(env),
		triggersCommand(env),
	}
}
