package ghostuser

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/each"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgschema"
)

// Only the texts without a table of the user's in them go through pgschema.Render as a whole: a user's table may itself
// live in a schema called public.

// ghostType is the user type of the ghost user. The others may be deleted; see "sexton".delete_user.
const (
	ghostType          = 5
	humanType          = 0
	projectBotType     = 6
	serviceAccountType = 13
	placeholderType    = 15
)

// matches is the condition for the step's rows of a user.
func (s *step) matches(alias string, j *job, args *drain.Args) string {
	return s.Belongs(alias, fmt.Sprintf("OPERATOR(pg_catalog.=) $%d::bigint", args.Add(j.userID)), args)
}

// lock is the clause that locks picked rows. Where no key changes the weaker lock will do, beside which others may
// still insert rows that refer to them.
func (s *step) lock(do drain.Action) string {
	if do == drain.Remove || s.key {
		return " FOR UPDATE"
	}
	return " FOR NO KEY UPDATE"
}

// pick is the subquery for at most limit rows of the user.
func (s *step) pick(leaf Table, columns string, j *job, limit int, args *drain.Args) string {
	return fmt.Sprintf("SELECT %s FROM ONLY %s AS picked WHERE %s%s LIMIT $%d",
		columns, leaf.SQL(), s.matches("picked", j, args), s.Attached(leaf, args), args.Add(limit))
}

// windowStatement reads pointers to at most limit rows. Reading many at once matters where an old snapshot keeps
// deleted entries in the index: every read walks over all of them.
func (s *step) windowStatement(leaf Table, j *job, limit int) (string, []any) {
	args := &drain.Args{}
	sql := s.pick(leaf, "picked.ctid", j, limit, args)
	return sql, args.Values
}

// versionsStatement reads where heavyRows of the user's rows are and which transactions wrote them; with only the rows that these pointers lead to.
func (s *step) versionsStatement(leaf Table, j *job, only []pgtype.TID) (string, []any) {
	args := &drain.Args{}
	if only == nil {
		sql := s.pick(leaf, "picked.ctid, picked.xmin", j, heavyRows, args)
		return sql, args.Values
	}
	return fmt.Sprintf("SELECT picked.ctid, picked.xmin FROM ONLY %s AS picked "+
		"WHERE picked.ctid OPERATOR(pg_catalog.=) ANY ($%d::pg_catalog.tid[]) AND (%s) IS TRUE",
		leaf.SQL(), args.Add(only), s.matches("picked", j, args)), args.Values
}

// waitStatement waits until it has locked at most limit rows. The statement behind it in the transaction has a newer
// snapshot: it sees what these rows have become.
func (s *step) waitStatement(leaf Table, j *job, limit int) (string, []any) {
	args := &drain.Args{}
	sql := s.pick(leaf, "", j, limit, args) + s.lock(s.Action)
	return sql, args.Values
}

// pieceStatement does to the rows that the pointers lead to what is to be done. With skip it leaves out rows that
// another session has locked, which costs a lock on each row first; else it waits for them. What has moved since the
// pointers were read is left for the next window.
func (s *step) pieceStatement(names pgschema.Names, leaf Table, j *job, do drain.Action, ghost int64, pointers []pgtype.TID, skip bool) (string, []any) {
	args := &drain.Args{}
	picked := fmt.Sprintf("$%d::pg_catalog.tid[]", args.Add(pointers))
	if skip {
		picked = fmt.Sprintf("ARRAY(SELECT picked.ctid FROM ONLY %s AS picked "+
			"WHERE picked.ctid OPERATOR(pg_catalog.=) ANY (%s) AND (%s) IS TRUE%s SKIP LOCKED)",
			leaf.SQL(), picked, s.matches("picked", j, args), s.lock(do))
	}
	return s.change(names, leaf, j, do, ghost, picked, args), args.Values
}

// doublesStatement does to those of the rows that the ghost user cannot have, as it has their like, what becomes of them instead.
// OFFSET 0 keeps the look for the like a look into the index for each row: joined, it could read all that the ghost user has.
func (s *step) doublesStatement(names pgschema.Names, leaf Table, j *job, ghost int64, pointers []pgtype.TID, skip bool) (string, []any) {
	args := &drain.Args{}
	pointersAt, ghostAt := args.Add(pointers), args.Add(ghost)
	likes := each.Of(s.twins[leaf.OID], func(twin string) string {
		return fmt.Sprintf("EXISTS (SELECT FROM ONLY %s AS twin WHERE twin.%s OPERATOR(pg_catalog.=) $%d::pg_catalog.int8 AND %s OFFSET 0)",
			leaf.SQL(), pgcatalog.Quote(s.column()), ghostAt, twin)
	})
	lock := ""
	if skip {
		lock = s.lock(s.otherwise) + " SKIP LOCKED"
	}
	picked := fmt.Sprintf("ARRAY(SELECT child.ctid FROM ONLY %s AS child "+
		"WHERE child.ctid OPERATOR(pg_catalog.=) ANY ($%d::pg_catalog.tid[]) AND (%s) IS TRUE AND (%s)%s)",
		leaf.SQL(), pointersAt, s.matches("child", j, args), strings.Join(likes, " OR "), lock)
	return s.change(names, leaf, j, s.otherwise, ghost, picked, args), args.Values
}

// cleanStatement does the same to at most limit rows.
func (s *step) cleanStatement(names pgschema.Names, leaf Table, j *job, ghost int64, limit int) (string, []any) {
	args := &drain.Args{}
	picked := "ARRAY(" + s.pick(leaf, "picked.ctid", j, limit, args) + s.lock(s.Action) + " SKIP LOCKED)"
	return s.change(names, leaf, j, s.Action, ghost, picked, args), args.Values
}

// directStatement does it to at most limit rows at once, without reading pointers first. It returns a third number: of
// rows that it found.
func (s *step) directStatement(names pgschema.Names, leaf Table, j *job, ghost int64, limit int) (string, []any) {
	args := &drain.Args{}
	found := s.pick(leaf, "picked.ctid", j, limit, args)
	changed := s.changed(names, leaf, j, s.Action, ghost, "ARRAY(SELECT found.ctid FROM found)", args)
	return fmt.Sprintf("WITH found AS MATERIALIZED (%s),\n%s\nSELECT %s, totals.kept, (SELECT pg_catalog.count(*) FROM found) FROM totals",
		found, changed, s.counts(names, s.Action, "totals.rows", args)), args.Values
}

// change is the statement that does it to the rows that an array of pointers leads to, counts them in the queue and
// returns two numbers: of rows that it changed, and of those among them that refer to the user still, as a trigger or a
// default has kept them.
func (s *step) change(names pgschema.Names, leaf Table, j *job, do drain.Action, ghost int64, picked string, args *drain.Args) string {
	return "WITH " + s.changed(names, leaf, j, do, ghost, picked, args) +
		fmt.Sprintf("\nSELECT %s, totals.kept FROM totals", s.counts(names, do, "totals.rows", args))
}

// counts is the number of rows, which it adds to the run's figures.
func (s *step) counts(names pgschema.Names, do drain.Action, rows string, args *drain.Args) string {
	return batch.CountRows(names, "'"+field(do)+"'", fmt.Sprintf("$%d::pg_catalog.text", args.Add(s.label)), rows)
}

// changed are the WITH queries of change. They lock the user's row of the queue before the first change, and change nothing
// where there is none any more: a deletion that is cancelled meanwhile has either not begun, or is refused.
//
// The condition is repeated on the row itself; IS TRUE keeps the planner from serving that by the index.
func (s *step) changed(names pgschema.Names, leaf Table, j *job, do drain.Action, ghost int64, picked string, args *drain.Args) string {
	where := fmt.Sprintf("child.ctid OPERATOR(pg_catalog.=) ANY (%s) AND (%s) IS TRUE%s", picked, s.matches("child", j, args), s.Attached(leaf, args))
	kept := "false"
	if do != drain.Remove {
		kept = fmt.Sprintf("(%s) IS TRUE", s.matches("child", j, args))
	}
	counter, queue, jobAt := counter(do), names.Render(`"public".`)+QueueTable, args.Add(j.id)
	return fmt.Sprintf(`held AS MATERIALIZED (SELECT queued.user_id FROM %s AS queued WHERE queued.id OPERATOR(pg_catalog.=) $%d FOR KEY SHARE),
changed AS (%s WHERE %s AND EXISTS (SELECT FROM held) RETURNING %s AS kept%s)%s,
totals AS MATERIALIZED (SELECT pg_catalog.count(*) AS rows, pg_catalog.count(*) FILTER (WHERE changed.kept) AS kept FROM changed),
counted AS (
	UPDATE %s AS job SET %s = job.%s OPERATOR(pg_catalog.+) totals.rows, updated_at = pg_catalog.clock_timestamp()
	FROM totals WHERE job.id OPERATOR(pg_catalog.=) $%d AND totals.rows OPERATOR(pg_catalog.>) 0
)`,
		queue, jobAt, s.verb(leaf, do, ghost, args), where, kept, s.keys(do, "child"),
		s.event(names, do, "(SELECT held.user_id FROM held)", "changed", someRows), queue, counter, counter, jobAt)
}

// keys are the columns that a deletion returns beside, where its rows are told of. Event is the CTE that tells of them, with their user,
// an expression.
func (s *step) keys(do drain.Action, row string) string {
	if do != drain.Remove || !s.Tells {
		return ""
	}
	return ", " + batch.RowKey(row, s.PrimaryKey) + " AS key"
}

const someRows = "HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0"

func (s *step) event(names pgschema.Names, do drain.Action, user, from, behind string) string {
	if do != drain.Remove || !s.Tells {
		return ""
	}
	return ",\ntold AS (" + batch.OrphanedFiles(names, s.tableLabel, "'user_id', "+user+", ", from, behind) + ")"
}

// verb is the beginning of a statement that changes rows, up to where it says which.
func (s *step) verb(leaf Table, do drain.Action, ghost int64, args *drain.Args) string {
	to := ""
	if do == drain.Move {
		to = fmt.Sprintf("$%d::bigint", args.Add(ghost))
	}
	return drain.Change(do, "ONLY "+leaf.SQL(), s.Columns, to)
}

// exists is true where those whom owner stands for have rows of the step. OFFSET 0 keeps it a subquery of its own: pulled up into a join,
// fifty columns would be a join of fifty tables.
func (s *step) exists(owner string, args *drain.Args) string {
	return fmt.Sprintf("EXISTS (SELECT FROM %s WHERE %s OFFSET 0)", s.Whole(), s.Belongs("child", owner, args))
}

// live is an array of booleans, one per step: whether those whom owner stands for have rows of it.
func live(steps []*step, owner string, args *drain.Args) string {
	if len(steps) == 0 {
		return "'{}'::boolean[]"
	}
	return "ARRAY[" + strings.Join(each.Of(steps, func(s *step) string { return s.exists(owner, args) }), ",\n") + "]"
}

// lookStatement tells in one row how the user stands: what the queue says of its deletion, NULL where it is in there no more,
// its type, NULL where it does not exist, whether the ghost user is still one, and which steps have rows.
func (p *Plan) lookStatement(names pgschema.Names, j *job, ghost int64) (string, []any) {
	args := &drain.Args{}
	jobAt, userAt, ghostAt := args.Add(j.id), args.Add(j.userID), args.Add(ghost)
	sql := fmt.Sprintf(`SELECT
(SELECT job.hard_delete FROM %s AS job WHERE job.id OPERATOR(pg_catalog.=) $%d AND job.user_id OPERATOR(pg_catalog.=) $%d),
(SELECT coalesce(leaving.user_type, 0)::integer FROM %s AS leaving WHERE leaving.id OPERATOR(pg_catalog.=) $%d),
EXISTS (SELECT FROM %s AS ghost WHERE ghost.id OPERATOR(pg_catalog.=) $%d AND ghost.user_type OPERATOR(pg_catalog.=) %d),
%s`, names.Render(`"public".`)+QueueTable, jobAt, userAt, p.users.SQL(), userAt, p.users.SQL(), ghostAt, ghostType,
		live(p.steps(j.hardDelete), fmt.Sprintf("OPERATOR(pg_catalog.=) $%d::bigint", userAt), args))
	return sql, args.Values
}

// lockStatement locks the user: from then on no session can insert a row whose foreign key refers to it.
func (p *Plan) lockStatement(j *job) (string, []any) {
	return fmt.Sprintf("SELECT FROM %s AS leaving WHERE leaving.id OPERATOR(pg_catalog.=) $1 FOR UPDATE", p.users.SQL()), []any{j.userID}
}

// destroyStatement deletes the user and its row in the queue and leaves word of it, if no step has a row left and the
// user is in the queue still, for the same kind of deletion. It returns whether it did, which steps have rows, and what has been done for the user.
// A reader of the event needs only a way to recognise a name that is known already.
func (p *Plan) destroyStatement(names pgschema.Names, j *job) (string, []any) {
	args := &drain.Args{}
	jobAt, userAt, hardAt := args.Add(j.id), args.Add(j.userID), args.Add(j.hardDelete)
	queue := names.Render(`"public".`) + QueueTable
	sql := fmt.Sprintf(`WITH looked AS MATERIALIZED (SELECT %s AS live),
job AS MATERIALIZED (
	SELECT queued.id, queued.initiator_user_id, queued.hard_delete, queued.moved_rows, queued.deleted_rows, queued.nullified_rows
	FROM %s AS queued WHERE queued.id OPERATOR(pg_catalog.=) $%d AND queued.user_id OPERATOR(pg_catalog.=) $%d
		AND queued.hard_delete OPERATOR(pg_catalog.=) $%d FOR UPDATE
),
gone AS (
	DELETE FROM %s AS leaving USING looked, job
	WHERE leaving.id OPERATOR(pg_catalog.=) $%d AND NOT true OPERATOR(pg_catalog.=) ANY (looked.live)
	AND coalesce(leaving.user_type, 0) OPERATOR(pg_catalog.=) ANY (ARRAY[%d, %d, %d, %d])
	RETURNING leaving.id, leaving.username
),
finished AS (
	DELETE FROM %s AS queued USING gone WHERE queued.id OPERATOR(pg_catalog.=) $%d
),
event AS (
	INSERT INTO %s (kind, payload)
	SELECT 'user_destroyed', pg_catalog.jsonb_build_object(
		'user_id', gone.id, 'username_sha256', pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(gone.username::pg_catalog.text, 'UTF8')), 'hex'),
		'initiator_user_id', job.initiator_user_id, 'hard_delete', job.hard_delete,
		'moved', job.moved_rows, 'deleted', job.deleted_rows, 'nullified', job.nullified_rows)
	FROM gone CROSS JOIN job
)
SELECT %s OPERATOR(pg_catalog.>) 0, looked.live, coalesce(job.moved_rows, 0), coalesce(job.deleted_rows, 0), coalesce(job.nullified_rows, 0)
FROM looked LEFT JOIN job ON true`,
		live(p.steps(j.hardDelete), fmt.Sprintf("OPERATOR(pg_catalog.=) $%d::bigint", userAt), args), queue, jobAt, userAt, hardAt, p.users.SQL(), userAt,
		humanType, projectBotType, serviceAccountType, placeholderType,
		queue, jobAt, names.Render(`"sexton".events`), batch.CountRows(names, "'users_processed'", "''", "(SELECT pg_catalog.count(*) FROM gone)"))
	return sql, args.Values
}

// shownStatement names one of the user's rows.
func (s *step) shownStatement(j *job) (string, []any) {
	args := &drain.Args{}
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s LIMIT 1", s.shown, s.Whole(), s.matches("child", j, args)), args.Values
}

// remainingStatement estimates how many rows the steps have for the user. It counts no further than remainingCap each.
func (p *Plan) remainingStatement(names pgschema.Names, steps []*step, j *job) (string, []any) {
	args := &drain.Args{}
	capAt := args.Add(remainingCap)
	terms := each.Of(steps, func(s *step) string {
		return fmt.Sprintf("(SELECT pg_catalog.count(*) FROM (SELECT FROM %s WHERE %s LIMIT $%d) AS counted)",
			s.Whole(), s.matches("child", j, args), capAt)
	})
	return fmt.Sprintf("UPDATE %s AS job SET remaining_rows = least(%s, $%d) WHERE job.id OPERATOR(pg_catalog.=) $%d RETURNING job.remaining_rows",
		names.Render(`"public".`)+QueueTable, strings.Join(terms, "\n+ "), capAt, args.Add(j.id)), args.Values
}
