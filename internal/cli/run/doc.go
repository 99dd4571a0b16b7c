// Package run is the command that runs the worker: it starts and stops River, the heartbeat and the HTTP server, and reloads.
package run

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{runCommand(env)}
}
