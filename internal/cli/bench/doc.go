// Package bench holds the commands that measure Sexton; they prepare databases for internal/bench.
package bench

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{benchCommand(env)}
}
