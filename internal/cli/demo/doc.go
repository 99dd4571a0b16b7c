// Package demo is the command that shows Sexton at work on a private Postgres. Its entry point is Commands.
//
//	devpg ─► sample data ─► installation.Install ─► worker in the same process ─► package demo's view and summary
package demo

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{demoCommand(env)}
}
