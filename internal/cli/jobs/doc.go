// Package jobs provides the commands that run jobs: the worker, single runs and the
// queue. Its entry points are Commands and WorkerCommand.
//
//	job list, run, enqueue ─┬─► river_jobs, installation
//	pause, resume ──────────┘
//
//	installation.Files ─► River's client, subscriptions, heartbeat, HTTP server
//	        ▲                                       │ signal: runs end after their batch
//	        └─────────────── SIGHUP: reload ◄───────┘
package jobs

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands returns the commands job, pause and resume.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{jobCommand(env), pauseCommand(env), resumeCommand(env)}
}
