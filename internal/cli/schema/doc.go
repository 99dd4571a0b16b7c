// Package schema holds the commands that install Sexton in databases and propose
// definitions. Its entry point is Commands.
//
//	init, definitions ─► Propose (foreign keys to definitions), WayBack (the reverse)
//	migrate, grants ───► package migrate
//	triggers ──────────► installation, package triggers
//
// Proposed definitions do not change the result of a deletion. A foreign key is kept,
// with a reason, if no definition has the same result, or if another key that refuses
// deletions would refuse more because the rows of this key are deleted later.
package schema

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands returns the commands of this package.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{
		initCommand(env), definitionsCommand(env), migrateCommand(env), grantsCommand(env),
		triggersCommand(env),
	}
}
