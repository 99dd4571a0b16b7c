// Package check holds the commands that look at an installation and say what is wrong
// with it. Its entry point is Commands.
//
//	status, failures, plan, doctor ─► operator
//	audit ──────────────────────────► loosefk/orphans
//	config ─────────────────────────► config
//
// Its one invariant: they change nothing, except for a retry of failures and an audit
// that repairs, which say so.
package check

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{
		statusCommand(env), failuresCommand(env), planCommand(env), doctorCommand(env),
		auditCommand(env), configCommand(env),
	}
}
