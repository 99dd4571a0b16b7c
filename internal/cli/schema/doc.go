// Package schema holds the commands that change what Sexton has in databases: its tables and its triggers. Its entry point is Commands.
//
//	migrate ──► package migrate
//	triggers ─► installation, package triggers
package schema

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{migrateCommand(env), triggersCommand(env)}
}
