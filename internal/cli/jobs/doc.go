// Package jobs holds the commands that run jobs: the worker, one pass, the queue, and
// leases. Its entry points are Commands and WorkerCommand.
//
//	job list, run, enqueue ─┐
//	pause, resume ──────────┼─► river_jobs, installation
//	lease ──────────────────┘
//
//	installation.Files    ─► River's client, subscriptions, heartbeat, HTTP server ─► signal: passes end after the batch in hand
//	        ▲                                                                      │
//	        └──────────────────────── SIGHUP: reload ◄─────────────────────────────┘
package jobs

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{jobCommand(env), pauseCommand(env), resumeCommand(env), leaseCommand(env)}
}
