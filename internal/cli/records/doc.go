// Package records holds the commands about data: users, groups, diffs and kept deletions.
// Its entry point is Commands.
//
//	group ─► groupschedule, groupdelete     diffs ─► extdiff
//	user ──► functions of the database      undo ──► undo
package records

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands returns the commands of this package.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{userCommand(env), groupCommand(env), diffsCommand(env), undoCommand(env)}
}
