// Package jobs holds the commands about jobs: what there is to run, one pass, the queue, and leases.
package jobs

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{jobCommand(env), pauseCommand(env), resumeCommand(env), leaseCommand(env)}
}
