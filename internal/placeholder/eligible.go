package placeholder

import (
	"embed"

	"sexton/internal/pgschema"
)

// All statements are to be rendered for the configured schemas. Where they look at eligible rows, $1 is Rules.MaxAttempts (integer), and $2
// Rules.RetryPeriod in seconds (float8).

//go:embed queries
var queries embed.FS

const (
	detailsTable = "import_placeholder_user_details"
	// since is the time before which a row has to have been tried to be offered again. It is statement_timestamp() and not
	// clock_timestamp(), which is volatile and would bound no index.
	since = `(pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $2::pg_catalog.float8))`
	// untried and tried are the two sorts of detail rows that may be offered: never tried, and tried long enough ago. The index of the
	// ownerless rows serves each.
	untried   = ownerless + " AND detail.last_deletion_attempt_at IS NULL"
	tried     = ownerless + " AND detail.last_deletion_attempt_at OPERATOR(pg_catalog.<) " + since
	ownerless = "detail.namespace_id IS NULL AND detail.deletion_attempts OPERATOR(pg_catalog.<) $1"
	// unqueued leaves out placeholders that are in the queue of the users to be deleted: another attempt would do nothing there
	// but count, however long the queue is.
	unqueued = `NOT EXISTS (SELECT FROM "public".users_ghost_user_migrations AS queued
    WHERE queued.user_id OPERATOR(pg_catalog.=) detail.placeholder_user_id)`
	// waits reports whether the placeholder's job waits or runs.
	waits = `"sexton".job_waits('` + DeleteKind + `',
    '{"user_id":' OPERATOR(pg_catalog.||) detail.placeholder_user_id::pg_catalog.text OPERATOR(pg_catalog.||) '}')`
	isPlaceholder = `EXISTS (SELECT FROM "public".users AS placeholder
    WHERE placeholder.id OPERATOR(pg_catalog.=) detail.placeholder_user_id AND placeholder.user_type OPERATOR(pg_catalog.=) 15)`
)

// statements are those of the package.
func statements() pgschema.Texts {
	return pgschema.Texts{Files: queries, Parts: map[string]string{
		"detail": `"public".` + detailsTable + ` AS detail`, "since": since, "untried": untried, "tried": tried, "unqueued": unqueued, "waits": waits,
		"placeholder": isPlaceholder, "next_look": nextLookSQL, "kind": DeleteKind, "refused": Refused,
	}}
}

func statement(name string, more ...string) string { return statements().Statement(name, more...) }

// DueSQL is a condition: some placeholder can be offered now.
func DueSQL() string { return statement("due") }

// CountDueSQL is an expression: how many can be offered now, more than 10,000 where it is no use to count on. Their jobs are
// looked for as DueSQL does.
func CountDueSQL() string { return statement("count_due") }

// NextDueSQL is an expression: in how many seconds (float8) the next row can be offered again, 0 where none is put off.
func NextDueSQL() string { return statement("next_due") }
