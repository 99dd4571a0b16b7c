// Package bench holds the commands that measure Sexton; they prepare databases for internal/bench. Its entry point is Commands.
//
//	sexton bench … ─► databases on a private or a given Postgres ─► package bench ─► Report: text or JSON
package bench

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{benchCommand(env)}
}
