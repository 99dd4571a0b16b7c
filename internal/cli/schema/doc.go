// Package schema holds the commands that bring Sexton into databases, and the definitions
// with them. Its entry point is Commands.
//
//	init, definitions ─► Propose: definitions for the foreign keys that a database has; WayBack: foreign keys for definitions
//	migrate, grants ───► package migrate
//	triggers ──────────► installation, package triggers
//
// What is proposed leaves every deletion with the same end. A key is kept with its reason
// if no definition does the same, or if another key, which refuses deletions, would
// refuse because the rows of this one go later.
package schema

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{
		initCommand(env), definitionsCommand(env), migrateCommand(env), grantsCommand(env),
		triggersCommand(env),
	}
}
