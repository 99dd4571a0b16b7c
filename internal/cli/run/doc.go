// Package run is the command that runs the worker. Its entry point is Commands.
//
//	installation.Files    ─► River's client, subscriptions, heartbeat, HTTP server ─► signal: passes end after the batch in hand
//	        ▲                                                                      │
//	        └──────────────────────── SIGHUP: reload ◄─────────────────────────────┘
package run

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{runCommand(env)}
}
