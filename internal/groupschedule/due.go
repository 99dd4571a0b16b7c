package groupschedule

import _ "embed"

// NextDueSQL is an expression, to be rendered for the configured schemas: in how many seconds (float8) the next group falls
// due, at a midnight (UTC) or when it has been put off for long enough; 0 where none does.
//
//go:embed queries/next_due.sql
var NextDueSQL string

var (
	//go:embed queries/due.sql
	dueSQL string
	//go:embed queries/opening.sql
	openingSQL string
	//go:embed queries/put_off.sql
	putOffSQL string
)

// DueSQL is a condition, to be rendered for the configured schemas: some group can be decided about now.
func DueSQL() string { return "EXISTS (SELECT\n" + dueSQL + ")" }

// CountDueSQL is an expression, to be rendered for the configured schemas: about how many it can be, 10,001 where there are more.
func CountDueSQL() string {
	return "(SELECT pg_catalog.count(*) FROM (SELECT\n" + dueSQL + "LIMIT 10001) AS counted)"
}

// pageSQL is a page of due groups above $1 by their ids, $2 at most.
func pageSQL() string {
	return "SELECT due.id\n" + dueSQL + "  AND due.id OPERATOR(pg_catalog.>) $1 ORDER BY due.id LIMIT $2"
}

const (
	// decideSQL decides about group $1, whose destruction would begin at $2.
	decideSQL = `SELECT decided.outcome, coalesce(decided.user_id, 0), coalesce(decided.path, ''), coalesce(decided.reason, '')
		FROM "sexton".decide_group_deletion($1, $2) AS decided`
	// forgetSQL removes what is recorded of groups that are not to be deleted any more.
	forgetSQL = `DELETE FROM "sexton".group_deletion_failures AS failure
		WHERE NOT EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id OPERATOR(pg_catalog.=) failure.group_id)`
	// forgetGoneSQL removes what is recorded of destructions whose group another session has deleted meanwhile.
	forgetGoneSQL = `DELETE FROM "sexton".group_destructions AS destruction
		WHERE NOT EXISTS (SELECT FROM "public".groups WHERE groups.id OPERATOR(pg_catalog.=) destruction.group_id)`
)
