// Package check holds the commands that look at an installation and say what is wrong with it.
package check

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{statusCommand(env), failuresCommand(env), planCommand(env), doctorCommand(env), auditCommand(env), configCommand(env)}
}
