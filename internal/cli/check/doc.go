// Package check provides the commands that inspect an installation and report problems.
// Its entry point is Commands.
//
//	status, failures, plan, doctor ─► operator
//	audit ──────────────────────────► loosefk/orphans
//	config ─────────────────────────► config
//
// The invariant: the commands change nothing, except `failures retry` and `audit
// --repair`.
package check

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands returns the commands status, failures, plan, doctor, audit and config.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{
		statusCommand(env), failuresCommand(env), planCommand(env), doctorCommand(env),
		auditCommand(env), configCommand(env),
	}
}
