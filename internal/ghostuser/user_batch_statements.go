package ghostuser

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/drain"
	"sexton/internal/pgschema"
)

// batchLookStatement selects one row: the users of a batch that are in the queue still, for the batch's kind of deletion, and
// that neither their type nor a step keeps; whether the ghost user is still one; and which steps have rows of any of the users.
func (p *Plan) batchLookStatement(names pgschema.Names, c *userBatch, ghost int64) (string, []any) {
	args := &drain.Args{}
	jobs := make([]int64, 0, len(c.members))
	for _, j := range c.members {
		jobs = append(jobs, j.id)
	}
	usersAt, jobsAt, hardAt, ghostAt := args.Add(c.users()), args.Add(jobs), args.Add(c.hardDelete), args.Add(ghost)
	var free strings.Builder
	for _, s := range p.steps(c.hardDelete) {
		if s.Action == drain.Forbid {
			fmt.Fprintf(&free, "\n\tAND NOT %s", s.exists("OPERATOR(pg_catalog.=) leaving.id", args))
		}
	}
	sql := fmt.Sprintf(`SELECT
ARRAY(
	SELECT job.user_id FROM %s AS job JOIN %s AS leaving ON leaving.id OPERATOR(pg_catalog.=) job.user_id
	WHERE job.id OPERATOR(pg_catalog.=) ANY ($%d::bigint[]) AND job.hard_delete OPERATOR(pg_catalog.=) $%d
	AND coalesce(leaving.user_type, 0) OPERATOR(pg_catalog.=) ANY (ARRAY[%d, %d, %d, %d])%s
),
EXISTS (SELECT FROM %s AS ghost WHERE ghost.id OPERATOR(pg_catalog.=) $%d AND ghost.user_type OPERATOR(pg_catalog.=) %d),
%s`, names.Render(`"public".`)+QueueTable, p.users.SQL(), jobsAt, hardAt, humanType, projectBotType, serviceAccountType, placeholderType, free.String(),
		p.users.SQL(), ghostAt, ghostType, live(p.steps(c.hardDelete), fmt.Sprintf("OPERATOR(pg_catalog.=) ANY ($%d::bigint[])", usersAt), args))
	return sql, args.Values
}

// batchWindowStatement reads pointers to at most batchRows rows of each user.
func (s *step) batchWindowStatement(leaf Table, c *userBatch) (string, []any) {
	args := &drain.Args{}
	return fmt.Sprintf(`SELECT found.ctid, wanted.id FROM pg_catalog.unnest($%d::bigint[]) AS wanted (id)
CROSS JOIN LATERAL (SELECT picked.ctid FROM ONLY %s AS picked WHERE %s%s LIMIT $%d) AS found`,
		args.Add(c.users()), leaf.SQL(), s.Belongs("picked", "OPERATOR(pg_catalog.=) wanted.id", args), s.Attached(leaf, args),
		args.Add(batchRows)), args.Values
}

// batchPieceStatement does to rows of several users what is to be done, and counts them in each one's row of the queue, which it
// locks first, as step.changed does. It returns per user the numbers that step.change has.
func (s *step) batchPieceStatement(names pgschema.Names, leaf Table, ghost int64, pointers []pointer) (string, []any) {
	args := &drain.Args{}
	rows, owners := make([]pgtype.TID, len(pointers)), make([]int64, len(pointers))
	for i, p := range pointers {
		rows[i], owners[i] = p.At, p.Owner
	}
	wanted := fmt.Sprintf("unnest($%d::pg_catalog.tid[], $%d::bigint[]) AS wanted (at, owner)", args.Add(rows), args.Add(owners))
	from, kept := "FROM", fmt.Sprintf("(%s) IS TRUE", s.Belongs("child", "OPERATOR(pg_catalog.=) wanted.owner", args))
	if s.Action == drain.Remove {
		from, kept = "USING", "false"
	}
	counter, queue := counter(s.Action), names.Render(`"public".`)+QueueTable
	return fmt.Sprintf(`WITH held AS MATERIALIZED (
	SELECT queued.user_id FROM %s AS queued WHERE queued.user_id OPERATOR(pg_catalog.=) ANY ($%d::bigint[]) ORDER BY queued.id FOR KEY SHARE
),
changed AS (
	%s %s %s
	WHERE child.ctid OPERATOR(pg_catalog.=) wanted.at AND (%s) IS TRUE%s AND wanted.owner OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT held.user_id FROM held))
	RETURNING wanted.owner, %s AS kept%s
)%s,
totals AS MATERIALIZED (
	SELECT changed.owner, pg_catalog.count(*) AS rows, pg_catalog.count(*) FILTER (WHERE changed.kept) AS kept FROM changed GROUP BY changed.owner
),
counted AS (
	UPDATE %s AS job SET %s = job.%s OPERATOR(pg_catalog.+) totals.rows, updated_at = pg_catalog.clock_timestamp()
	FROM totals WHERE job.user_id OPERATOR(pg_catalog.=) totals.owner
),
added AS MATERIALIZED (SELECT %s FROM totals)
SELECT totals.owner, totals.rows, totals.kept FROM totals CROSS JOIN added`,
		queue, args.Add(slices.Compact(slices.Sorted(slices.Values(owners)))),
		s.verb(leaf, s.Action, ghost, args), from, wanted, s.Belongs("child", "OPERATOR(pg_catalog.=) wanted.owner", args), s.Attached(leaf, args), kept,
		s.keys(s.Action, "child"), s.event(names, s.Action, "changed.owner", "changed", "GROUP BY changed.owner"),
		queue, counter, counter, s.counts(names, s.Action, "pg_catalog.sum(totals.rows)::pg_catalog.int8", args)), args.Values
}
