// Package records holds the commands about data: tombstones, users, groups, placeholder users, diffs and kept deletions. Its entry point is Commands.
//
//	tombstones ─► loosefk                        placeholders ─► placeholder
//	group ──────► groupschedule, groupdelete     diffs ────────► extdiff
//	user ───────► functions of the database      undo ─────────► undo
package records

import (
	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// Commands are the commands of this area.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{tombstonesCommand(env), userCommand(env), groupCommand(env), placeholdersCommand(env), diffsCommand(env), undoCommand(env)}
}
