package placeholder

import (
	"fmt"
	"strings"
)

// All of the following is to be rendered for the configured schemas. The parameters' numbers are the caller's: attempts that
// of Rules.MaxAttempts (integer), retry that of Rules.RetryPeriod in seconds (float8).

// triedBefore is the condition that the attempt before is long enough ago. statement_timestamp() and not
// clock_timestamp(), which is volatile and would bound no index.
func triedBefore(retry int) string {
	return fmt.Sprintf("detail.last_deletion_attempt_at OPERATOR(pg_catalog.<) "+
		"(pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $%d::pg_catalog.float8))", retry)
}

// triedRecently is its opposite, for rows that were tried. Infinity is how somebody may put a row off for ever: there is no
// next time.
func triedRecently(retry int) string {
	return fmt.Sprintf("detail.last_deletion_attempt_at OPERATOR(pg_catalog.>=) "+
		"(pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $%d::pg_catalog.float8)) "+
		"AND detail.last_deletion_attempt_at OPERATOR(pg_catalog.<) 'infinity'", retry)
}

// arms are the two sorts of detail rows that may be offered, each a condition that the index of the ownerless rows serves:
// never tried, and tried long enough ago.
func arms(attempts, retry int) [2]string {
	ownerless := fmt.Sprintf("detail.namespace_id IS NULL AND detail.deletion_attempts OPERATOR(pg_catalog.<) $%d", attempts)
	return [2]string{ownerless + " AND detail.last_deletion_attempt_at IS NULL", ownerless + " AND " + triedBefore(retry)}
}

// unqueued leaves out placeholders that are in the queue of the users to be deleted: another attempt would do nothing there
// but count, however long the queue is.
const unqueued = `NOT EXISTS (SELECT FROM "public".users_ghost_user_migrations AS queued
    WHERE queued.user_id OPERATOR(pg_catalog.=) detail.placeholder_user_id)`

// jobWaits reports whether the placeholder's job waits or runs.
const jobWaits = `"sexton".job_waits('` + DeleteKind + `',
    '{"user_id":' OPERATOR(pg_catalog.||) detail.placeholder_user_id::pg_catalog.text OPERATOR(pg_catalog.||) '}')`

const (
	detailsTable = "import_placeholder_user_details"
	details      = `"public".` + detailsTable + ` AS detail`
)

// DueSQL is a condition: some placeholder can be offered now. One whose job waits cannot, though it may be eligible: it has a
// second row, or its job is being retried.
func DueSQL(attempts, retry int) string {
	terms := make([]string, 0, 2)
	for _, arm := range arms(attempts, retry) {
		terms = append(terms, fmt.Sprintf("EXISTS (SELECT FROM %s WHERE %s AND %s AND NOT %s)", details, arm, unqueued, jobWaits))
	}
	return "(" + strings.Join(terms, " OR ") + ")"
}

// CountDueSQL is an expression: how many can be offered now, more than 10,000 where it is no use to count on. Their jobs are
// looked for as DueSQL does.
func CountDueSQL(attempts, retry int) string {
	terms := make([]string, 0, 2)
	for _, arm := range arms(attempts, retry) {
		terms = append(terms, fmt.Sprintf("(SELECT 1 FROM %s WHERE %s AND %s AND NOT %s LIMIT 10001)", details, arm, unqueued, jobWaits))
	}
	return "(SELECT pg_catalog.count(*) FROM (" + strings.Join(terms, " UNION ALL ") + ") AS counted)"
}

// NextDueSQL is an expression: in how many seconds (float8) the next row can be offered again, 0 where none is put off. Each
// number of attempts is a stretch of the index of its own.
func NextDueSQL(attempts, retry int) string {
	return fmt.Sprintf(`coalesce((
    SELECT extract(epoch FROM pg_catalog.min(next.last_deletion_attempt_at) OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp())
        OPERATOR(pg_catalog.+) $%[2]d::pg_catalog.float8
    FROM pg_catalog.generate_series(0, $%[1]d OPERATOR(pg_catalog.-) 1) AS tried (times)
    CROSS JOIN LATERAL (
        SELECT detail.last_deletion_attempt_at
        FROM %[3]s
        WHERE detail.namespace_id IS NULL AND detail.deletion_attempts OPERATOR(pg_catalog.=) tried.times AND %[4]s
        ORDER BY detail.last_deletion_attempt_at
        LIMIT 1
    ) AS next
), 0)::pg_catalog.float8`, attempts, retry, details, triedRecently(retry))
}

// loadSQL reads rows that are eligible, in the order of their ids, above the id $3, at most $4, whether the user is a placeholder,
// and whether its job waits.
// UNION, where UNION ALL would do: it keeps the planner from walking through the whole table by its primary key.
func loadSQL() string {
	selects := make([]string, 0, 2)
	for _, arm := range arms(1, 2) {
		selects = append(selects,
			fmt.Sprintf("SELECT detail.id FROM %s WHERE %s AND detail.id OPERATOR(pg_catalog.>) $3 AND %s", details, arm, unqueued))
	}
	// All else is looked for after the limit.
	return fmt.Sprintf(`SELECT detail.id, detail.placeholder_user_id, detail.deletion_attempts, detail.blocked_by,
    EXISTS (SELECT FROM "public".users AS placeholder
        WHERE placeholder.id OPERATOR(pg_catalog.=) detail.placeholder_user_id AND placeholder.user_type OPERATOR(pg_catalog.=) %d),
    %s
FROM (
SELECT * FROM (
%s
) AS eligible ORDER BY eligible.id LIMIT $4
) AS page JOIN %s ON detail.id OPERATOR(pg_catalog.=) page.id
ORDER BY detail.id`, userType, jobWaits, strings.Join(selects, "\nUNION\n"), details)
}

// offerSQL offers the row $3: it inserts the job for the time $4 and counts the attempt if that has made one, or does
// nothing of both. It returns whether the row is still eligible, and the number of attempts where it was counted.
func offerSQL() string {
	both := arms(1, 2)
	return fmt.Sprintf(`
WITH chosen AS MATERIALIZED (
    SELECT detail.id, detail.placeholder_user_id
    FROM %s
    WHERE detail.id OPERATOR(pg_catalog.=) $3 AND (%s OR %s) AND %s
    FOR NO KEY UPDATE
), child AS MATERIALIZED (
    SELECT chosen.id, "sexton".enqueue_new('%s', pg_catalog.jsonb_build_object('user_id', chosen.placeholder_user_id), $4) AS job_id
    FROM chosen
), counted AS (
    UPDATE %s
    SET deletion_attempts = detail.deletion_attempts OPERATOR(pg_catalog.+) 1,
        last_deletion_attempt_at = pg_catalog.statement_timestamp(),
        updated_at = pg_catalog.statement_timestamp()
    FROM child
    WHERE detail.id OPERATOR(pg_catalog.=) child.id AND child.job_id IS NOT NULL
    RETURNING detail.deletion_attempts
)
SELECT EXISTS (SELECT FROM chosen), (SELECT counted.deletion_attempts FROM counted)`, details, both[0], both[1], unqueued, DeleteKind, details)
}
