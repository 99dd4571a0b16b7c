// Package records provides the commands that change data: users, groups, diffs and saved
// deletions. Its entry point is Commands.
//
//	group ─► groupschedule, groupdelete     diffs ─► extdiff
//	user ──► functions of the database      undo ──► undo
package records

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands returns the commands user, group, diffs and undo.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{userCommand(env), groupCommand(env), diffsCommand(env), undoCommand(env)}
}
