// Package jobs holds the commands about jobs: which kinds there are, one pass, the queue, and leases. Its entry point is Commands.
//
//	job list, run, enqueue ─┐
//	pause, resume ──────────┼─► river_jobs, installation
//	lease ──────────────────┘
package jobs

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{jobCommand(env), pauseCommand(env), resumeCommand(env), leaseCommand(env)}
}
