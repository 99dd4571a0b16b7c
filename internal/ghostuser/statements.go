package ghostuser

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/each"
	"sexton/internal/pgcatalog"
)

// Only the texts without a table of the user's in them go through pgcatalog.Render as a whole: a user's table may itself
// live in a schema called public.

// ghostType is the user type of the ghost user. The others may be deleted; see "sexton".delete_user.
const (
	ghostType          = 5
	humanType          = 0
	projectBotType     = 6
	serviceAccountType = 13
	placeholderType    = 15
)

// matches is the condition for the rows (child) of a user.
func (s *step) matches(j *job, args *drain.Args) string {
	return s.owned("child", fmt.Sprintf("$%d::bigint", args.Add(j.userID)), args)
}

// lock is the clause that locks picked rows. Where no key changes the weaker lock will do, beside which others may
// still insert rows that refer to them.
func (s *step) lock(do drain.Action) string {
	if do == drain.Remove || s.key {
		return " FOR UPDATE"
	}
	return " FOR NO KEY UPDATE"
}

func (j *job) row() int64  { return j.id }
func (j *job) user() int64 { return j.userID }

// owned is the condition for the step's rows of an owner, an expression.
func (s *step) owned(alias, owner string, args *drain.Args) string {
	return s.Belongs(alias, "OPERATOR(pg_catalog.=) "+owner, args)
}

// pick is the query for columns of at most limit rows of each user, locked by the clause lock: where a row is (picked.at), its version
// (picked.version), and the user (wanted.owner).
func (s *step) pick(leaf Table, columns string, of []*job, limit int, lock string, args *drain.Args) string {
	return fmt.Sprintf("SELECT %s FROM pg_catalog.unnest($%d::bigint[]) AS wanted (owner) CROSS JOIN LATERAL ("+
		"SELECT picked.ctid AS at, picked.xmin AS version FROM ONLY %s AS picked WHERE %s%s LIMIT $%d%s) AS picked",
		columns, args.Add(each.Of(of, (*job).user)), leaf.SQL(), s.owned("picked", "wanted.owner", args), s.Attached(leaf, args), args.Add(limit), lock)
}

// pointers is the query for pointers to these rows, in their order on disk.
func (s *step) pointers(leaf Table, of []*job, limit int, lock string, args *drain.Args) string {
	return s.pick(leaf, "picked.at, wanted.owner", of, limit, lock, args) + " ORDER BY picked.at"
}

// windowStatement reads pointers to at most limit rows of each user. Reading many at once matters where an old snapshot keeps
// deleted entries in the index: every read passes over all of them.
func (s *step) windowStatement(leaf Table, of []*job, limit int) (string, []any) {
	args := &drain.Args{}
	sql := s.pointers(leaf, of, limit, "", args)
	return sql, args.Values
}

// versionsStatement reads where heavyRows of the user's rows are and which transactions wrote them; with only the rows that these pointers lead to.
func (s *step) versionsStatement(leaf Table, j *job, only []pointer) (string, []any) {
	args := &drain.Args{}
	if only == nil {
		sql := s.pick(leaf, "picked.at, picked.version", []*job{j}, heavyRows, "", args)
		return sql, args.Values
	}
	sql := s.pointed(leaf, "child.ctid, child.xmin", j, only, "", args)
	return sql, args.Values
}

// waitStatement waits until it has locked at most limit rows. The statement behind it in the transaction has a newer
// snapshot: it sees what these rows have become.
func (s *step) waitStatement(leaf Table, j *job, limit int) (string, []any) {
	args := &drain.Args{}
	sql := s.pick(leaf, "", []*job{j}, limit, s.lock(s.Action), args)
	return sql, args.Values
}

// pointed is the query for columns of the rows (child) that pointers lead to, as long as they are the user's and meet the condition also,
// which may end in a clause that locks them.
func (s *step) pointed(leaf Table, columns string, j *job, to []pointer, also string, args *drain.Args) string {
	return fmt.Sprintf("SELECT %s FROM ONLY %s AS child WHERE child.ctid OPERATOR(pg_catalog.=) ANY ($%d::pg_catalog.tid[]) AND (%s) IS TRUE%s",
		columns, leaf.SQL(), args.Add(tuples(to)), s.matches(j, args), also)
}

func tuples(of []pointer) []pgtype.TID {
	return each.Of(of, func(p pointer) pgtype.TID { return p.At })
}

// pieceStatement does to the rows that the pointers lead to what is to be done. It waits for rows that another session has locked. What has moved
// since the pointers were read is left for the next window.
func (s *step) pieceStatement(names pgcatalog.Names, leaf Table, of []*job, do drain.Action, ghost int64, to []pointer) (string, []any) {
	args := &drain.Args{}
	return s.change(names, leaf, of, do, ghost, fmt.Sprintf("SELECT * FROM unnest($%d::pg_catalog.tid[], $%d::bigint[]) AS wanted (at, owner)",
		args.Add(tuples(to)), args.Add(each.Of(to, func(p pointer) int64 { return p.Owner }))), args)
}

// skipStatement is the same for the rows of one user, and leaves out what another session has locked. It costs a lock on each row first.
func (s *step) skipStatement(names pgcatalog.Names, leaf Table, j *job, do drain.Action, ghost int64, to []pointer) (string, []any) {
	args := &drain.Args{}
	return s.change(names, leaf, []*job{j}, do, ghost, s.pointed(leaf, "child.ctid AS at", j, to, s.lock(do)+" SKIP LOCKED", args), args)
}

// doublesStatement does the step's other action to the rows whose like the ghost user has already: it cannot have them as well.
// OFFSET 0 keeps the look for the like a look into the index for each row: joined, it could read all that the ghost user has.
func (s *step) doublesStatement(names pgcatalog.Names, leaf Table, j *job, ghost int64, to []pointer, skip bool) (string, []any) {
	args := &drain.Args{}
	ghostAt := args.Add(ghost)
	likes := each.Of(s.twins[leaf.OID], func(twin string) string {
		return fmt.Sprintf("EXISTS (SELECT FROM ONLY %s AS twin WHERE twin.%s OPERATOR(pg_catalog.=) $%d::pg_catalog.int8 AND %s OFFSET 0)",
			leaf.SQL(), pgcatalog.Quote(s.column()), ghostAt, twin)
	})
	also := " AND (" + strings.Join(likes, " OR ") + ")"
	if skip {
		also += s.lock(s.otherwise) + " SKIP LOCKED"
	}
	return s.change(names, leaf, []*job{j}, s.otherwise, ghost, s.pointed(leaf, "child.ctid AS at", j, to, also, args), args)
}

// cleanStatement does it to at most limit rows, without reading pointers first. With skip it leaves out rows that another session has locked.
func (s *step) cleanStatement(names pgcatalog.Names, leaf Table, j *job, ghost int64, limit int, skip bool) (string, []any) {
	args, of, lock := &drain.Args{}, []*job{j}, ""
	if skip {
		lock = s.lock(s.Action) + " SKIP LOCKED"
	}
	return s.change(names, leaf, of, s.Action, ghost, s.pointers(leaf, of, limit, lock, args), args)
}

// change is the statement that does it to the rows that the query wanted finds (at, owner), and counts them in the queue. It locks the users' rows of
// the queue before the first change, and changes nothing of a user that has none any more: a deletion that is cancelled meanwhile has either not
// begun, or is refused. It returns per user how many rows it found, how many it changed, and how many of these refer to the user still, as a trigger
// or a default has kept them.
//
// The condition is repeated on the row itself; IS TRUE keeps the planner from serving that by the index. The rows of a single user are read
// by one sorted list of places, without a join.
func (s *step) change(
	names pgcatalog.Names, leaf Table, of []*job, do drain.Action, ghost int64, wanted string, args *drain.Args,
) (string, []any) {
	const held = " OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT held.user_id FROM held))"
	from, at, owner, perOwner, kept := "FROM wanted", "wanted.at", "wanted.owner", " GROUP BY wanted.owner", "false"
	if do == drain.Remove {
		from = "USING wanted"
	}
	if len(of) == 1 {
		from, at, owner, perOwner = "", "ANY (ARRAY(SELECT wanted.at FROM wanted))", fmt.Sprintf("$%d::bigint", args.Add(of[0].userID)), ""
	}
	if do != drain.Remove {
		kept = "(" + s.owned("child", owner, args) + ") IS TRUE"
	}
	counter, queue, jobsAt := counter(do), names.Render(`"public".`)+QueueTable, args.Add(each.Of(of, (*job).row))
	return fmt.Sprintf(`WITH wanted AS MATERIALIZED (%s),
held AS MATERIALIZED (
	SELECT queued.user_id FROM %s AS queued WHERE queued.id OPERATOR(pg_catalog.=) ANY ($%d::bigint[]) ORDER BY queued.id FOR KEY SHARE
),
changed AS (
	%s %s WHERE child.ctid OPERATOR(pg_catalog.=) %s AND (%s) IS TRUE%s AND %s
	RETURNING %s AS owner, %s AS kept%s
)%s,
totals AS MATERIALIZED (
	SELECT changed.owner, pg_catalog.count(*) AS rows, pg_catalog.count(*) FILTER (WHERE changed.kept) AS kept FROM changed GROUP BY changed.owner
),
counted AS (
	UPDATE %s AS job SET %s = job.%s OPERATOR(pg_catalog.+) totals.rows, updated_at = pg_catalog.clock_timestamp()
	FROM totals WHERE job.id OPERATOR(pg_catalog.=) ANY ($%d::bigint[]) AND job.user_id OPERATOR(pg_catalog.=) totals.owner
),
added AS MATERIALIZED (SELECT %s FROM totals),
found AS (SELECT %s AS owner, pg_catalog.count(*) AS rows FROM wanted%s)
SELECT found.owner, found.rows, coalesce(totals.rows, 0), coalesce(totals.kept, 0)
FROM found LEFT JOIN totals ON totals.owner OPERATOR(pg_catalog.=) found.owner CROSS JOIN added`,
		wanted, queue, jobsAt,
		s.verb(leaf, do, ghost, args), from, at, s.owned("child", owner, args), s.Attached(leaf, args), owner+held, owner, kept,
		s.keys(do, "child"), s.event(names, do, "changed.owner", "changed", "GROUP BY changed.owner"), queue, counter, counter, jobsAt,
		batch.CountRows(names, "'"+field(do)+"'", fmt.Sprintf("$%d::pg_catalog.text", args.Add(s.label)), "pg_catalog.sum(totals.rows)::pg_catalog.int8"),
		owner, perOwner,
	), args.Values
}

// keys are the columns that a deletion returns beside, where its rows are told of. Event is the CTE that tells of them, with their user,
// an expression.
func (s *step) keys(do drain.Action, row string) string {
	if do != drain.Remove || !s.Tells {
		return ""
	}
	return ", " + batch.RowKey(row, s.PrimaryKey) + " AS key"
}

func (s *step) event(names pgcatalog.Names, do drain.Action, user, from, behind string) string {
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

// lookStatement selects how each user stands, in the order of look: what the queue says of its deletion, NULL where it is in there no more,
// its type, NULL where it does not exist, whether the ghost user is still one, and which steps of the kind of deletion have rows.
func (p *Plan) lookStatement(names pgcatalog.Names, of []*job, hardDelete bool, ghost int64) (string, []any) {
	args := &drain.Args{}
	return fmt.Sprintf(`SELECT wanted.owner,
(SELECT job.hard_delete FROM %[1]s AS job WHERE job.id OPERATOR(pg_catalog.=) wanted.job AND job.user_id OPERATOR(pg_catalog.=) wanted.owner),
(SELECT coalesce(leaving.user_type, 0)::pg_catalog.int4 FROM %[2]s AS leaving WHERE leaving.id OPERATOR(pg_catalog.=) wanted.owner),
EXISTS (SELECT FROM %[2]s AS ghost WHERE ghost.id OPERATOR(pg_catalog.=) $%[3]d AND ghost.user_type OPERATOR(pg_catalog.=) %[4]d),
%[5]s
FROM unnest($%[6]d::bigint[], $%[7]d::bigint[]) AS wanted (job, owner)`,
		names.Render(`"public".`)+QueueTable, p.users.SQL(), args.Add(ghost), ghostType,
		live(p.steps(hardDelete), "OPERATOR(pg_catalog.=) wanted.owner", args),
		args.Add(each.Of(of, (*job).row)), args.Add(each.Of(of, (*job).user))), args.Values
}

// lockStatement locks the user: from then on no session can insert a row whose foreign key refers to it.
func (p *Plan) lockStatement(j *job) (string, []any) {
	return fmt.Sprintf("SELECT FROM %s AS leaving WHERE leaving.id OPERATOR(pg_catalog.=) $1 FOR UPDATE", p.users.SQL()), []any{j.userID}
}

// destroyStatement deletes the user and its row in the queue and leaves word of it, if no step has a row left and the
// user is in the queue still, for the same kind of deletion. It returns whether it did, which steps have rows, and what has been done for the user.
// A reader of the event needs only a way to recognise a name that is known already.
func (p *Plan) destroyStatement(names pgcatalog.Names, j *job) (string, []any) {
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
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s LIMIT 1", s.shown, s.Whole(), s.matches(j, args)), args.Values
}

// leftStatement counts the user's rows of the step, as many as a parameter behind the others says.
func (s *step) leftStatement(j *job) (string, []any) {
	args := &drain.Args{}
	where := s.matches(j, args)
	return fmt.Sprintf("SELECT pg_catalog.count(*) FROM (SELECT FROM %s WHERE %s LIMIT $%d) AS counted", s.Whole(), where, len(args.Values)+1), args.Values
}

// remainingStatement estimates how many rows the steps have for the user. It counts no further than remainingCap each.
func (p *Plan) remainingStatement(names pgcatalog.Names, steps []*step, j *job) (string, []any) {
	args := &drain.Args{}
	capAt := args.Add(remainingCap)
	terms := each.Of(steps, func(s *step) string {
		return fmt.Sprintf("(SELECT pg_catalog.count(*) FROM (SELECT FROM %s WHERE %s LIMIT $%d) AS counted)",
			s.Whole(), s.matches(j, args), capAt)
	})
	return fmt.Sprintf("UPDATE %s AS job SET remaining_rows = least(%s, $%d) WHERE job.id OPERATOR(pg_catalog.=) $%d RETURNING job.remaining_rows",
		names.Render(`"public".`)+QueueTable, strings.Join(terms, "\n+ "), capAt, args.Add(j.id)), args.Values
}
