// Package schema holds the commands that bring Sexton into databases, and the definitions with them. Its entry point is Commands.
//
//	init, definitions ─► package adopt
//	migrate ───────────► package migrate
//	triggers ──────────► installation, package triggers
package schema

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{initCommand(env), definitionsCommand(env), migrateCommand(env), triggersCommand(env)}
}
