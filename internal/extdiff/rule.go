package extdiff

import (
	"embed"
	"fmt"

	"sexton/internal/pgschema"
)

// Rule says which diffs leave the database. Configurations know no other ones.
type Rule string

// The rules: all diffs; or those of merge requests that were merged or closed more than 7 days ago, and all versions but the
// latest.
const (
	Always   Rule = "always"
	Outdated Rule = "outdated"
)

//go:embed queries
var queryFiles embed.FS

// statement is a text of the folder queries, to be rendered for the configured schemas.
func statement(name string, more ...string) string {
	return pgschema.Texts{Files: queryFiles, Parts: map[string]string{
		// It is written as the partial index that finds such diffs has it.
		"in_database": "diff.files_count > 0 AND (NOT diff.stored_externally OR diff.stored_externally IS NULL)",
		"kept":        `EXISTS (SELECT FROM "sexton".external_diffs AS ledger WHERE ledger.diff_id = diff.id AND ledger.kept)`,
		"always":      "{in_database} AND NOT {kept}",
	}}.Statement(name, more...)
}

// statement has the one condition, on a diff, that scheduler and mover share as {eligible}.
func (r Rule) statement(name string, more ...string) string {
	eligible := map[Rule]string{Always: "{always}", Outdated: "{always} AND {outdated}"}[r] // Postgres refuses the statement of any other rule.
	return statement(name, append(more, "eligible", eligible)...)
}

const (
	// mostBytes is the greatest value of the columns for offset and size.
	mostBytes = 1<<31 - 1
	// pieceBytes is how much of a text one row of a stream has.
	pieceBytes = 1 << 18
)

// Key is where the object of a diff is.
func Key(mergeRequestID, diffID int64) string {
	return fmt.Sprintf("%s%d/%s", folderPrefix, mergeRequestID, objectName(diffID))
}

const (
	rootPrefix   = "merge_request_diffs/"
	folderPrefix = rootPrefix + "mr-"
	namePrefix   = "diff-"
)

// objectName is the last part of the key, which the column external_diff has.
func objectName(diffID int64) string { return fmt.Sprintf("%s%d", namePrefix, diffID) }
