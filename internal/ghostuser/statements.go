package ghostuser

import (
	"fmt"
	"strings"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// SQL that contains a table of the application must not be rendered with names.Render.
// Render would replace the schema "public" of such a table by the tracked schema.

// ghostType is the user type of the ghost user.
const ghostType = 5

// deletableSQL is an SQL array of the user types that may be deleted, as in
// "sexton".delete_user: people, project bots, service accounts and placeholders.
const deletableSQL = "'{0,6,13,15}'::pg_catalog.int4[]"

// remainingCap limits the estimate of a user's remaining rows.
const remainingCap = 10_000

func queueTable(names pgcatalog.Names) string { return names.Render(`"public".`) + QueueTable }

// queued returns the query for the users among {keys} that are queued for this kind of
// deletion. The query locks their rows in the queue, so that a cancellation waits for the
// end of the batch. It returns no users if the ghost user no longer exists.
func (p *Plan) queued(names pgcatalog.Names, hardDelete bool, ghost dml.ID) string {
	return fmt.Sprintf("SELECT job.user_id FROM %s AS job WHERE job.user_id OPERATOR(pg_catalog.=) ANY ({keys})"+
		" AND job.hard_delete OPERATOR(pg_catalog.=) %t AND (%s) OPERATOR(pg_catalog.=) ANY (%s) AND EXISTS (%s) FOR KEY SHARE OF job",
		queueTable(names), hardDelete, p.userType("job.user_id", ghost), deletableSQL, p.ghostExists(ghost))
}

// ghostExists returns a query that returns a row if the ghost user exists or is not
// needed.
func (p *Plan) ghostExists(ghost dml.ID) string {
	if ghost.Text == "" {
		return "SELECT"
	}
	sql := fmt.Sprintf("SELECT FROM %s AS ghost WHERE %s", p.users.SQL(), p.is("ghost", p.literal(ghost)))
	if p.gitlab {
		sql += fmt.Sprintf(" AND ghost.user_type OPERATOR(pg_catalog.=) %d", ghostType)
	}
	return sql
}

// userType returns a query for the type of a user.
func (p *Plan) userType(id string, ghost dml.ID) string {
	return fmt.Sprintf("SELECT %s FROM %s AS leaving WHERE %s", p.kind(ghost), p.users.SQL(), p.is("leaving", id))
}

// kind returns an expression for the type of the user in the row leaving. Without
// GitLab's user types, all users but the ghost user have type 0.
func (p *Plan) kind(ghost dml.ID) string {
	switch {
	case p.gitlab:
		return "coalesce(leaving.user_type, 0)::pg_catalog.int4"
	case ghost.Text == "":
		return "0"
	}
	return fmt.Sprintf("CASE WHEN %s THEN %d ELSE 0 END", p.is("leaving", p.literal(ghost)), ghostType)
}

// edge returns the edge for package drain that changes the step's rows in one leaf.
func (p *Plan) edge(names pgcatalog.Names, s *step, leaf Table, do dml.Action, ghost dml.ID) *drain.Edge {
	edge := s.Edge
	edge.Action, edge.EmitsEvent = do, s.EmitsEvent && do == dml.Remove
	edge.Target = dml.Value{Type: dml.KeyType(p.key.KeyTypes[0]), Value: ghost.Text}
	if do == dml.Forbid {
		return &drain.Edge{Edge: &edge, Leaf: leaf, Refusal: s.refusal}
	}
	edge.Count = "pg_catalog.count(*)"
	edge.Extra = []string{fmt.Sprintf(`counted AS (
	UPDATE %s AS job SET %[2]s = job.%[2]s OPERATOR(pg_catalog.+) (SELECT pg_catalog.count(*) FROM changed), updated_at = pg_catalog.clock_timestamp()
	WHERE job.user_id OPERATOR(pg_catalog.=) ANY (%[3]s) AND EXISTS (SELECT FROM changed)
)`, queueTable(names), counter(do), p.key.Parameter(1))}
	if edge.EmitsEvent {
		edge.Extra = append(edge.Extra, "published AS ("+
			batch.DeletedRows(names, s.tableLabel, "'user_id', ("+p.key.Parameter(1)+")[1], ", "changed",
				edge.EventColumns)+")")
	}
	return &drain.Edge{Edge: &edge, Leaf: leaf}
}

// equal returns the condition that the ghost user has an equal row in the leaf, by one of
// the step's twins. OFFSET 0 makes Postgres look up each row by an index. Without it,
// Postgres could choose a join that reads all rows of the ghost user.
func (s *step) equal(leaf Table, ghost string) string {
	return strings.Join(render.Each(s.twins[leaf.OID], func(twin string) string {
		return fmt.Sprintf("EXISTS (SELECT FROM ONLY %s AS twin WHERE twin.%s OPERATOR(pg_catalog.=) %s AND %s OFFSET 0)",
			leaf.SQL(), pgcatalog.Quote(s.column()), ghost, twin)
	}), " OR ")
}

// rows returns the condition that a row (alias child) is one of the user's rows of the
// step.
func (p *Plan) rows(s *step, userID dml.ID, args *dml.Args) string {
	return s.Belongs("child", "OPERATOR(pg_catalog.=) "+p.value(args.Add(p.key.Argument(userID))), args)
}

// live returns an SQL array of booleans, which report for each step whether the user has
// rows. OFFSET 0 keeps the planner from converting the subqueries to a join, which would
// join fifty tables for fifty columns.
func (p *Plan) live(steps []*step, userID dml.ID, args *dml.Args) string {
	if len(steps) == 0 {
		return "'{}'::boolean[]"
	}
	user := "OPERATOR(pg_catalog.=) " + p.value(args.Add(p.key.Argument(userID)))
	return "ARRAY[" + strings.Join(render.Each(steps, func(s *step) string {
		return fmt.Sprintf("EXISTS (SELECT FROM %s WHERE %s OFFSET 0)", s.FromItem(), s.Belongs("child", user, args))
	}), ",\n") + "]"
}

// destroyStatement returns the statement that deletes the user and its row in the queue
// and writes the event. It does so if no step has a row left and the user is queued for
// the same kind of deletion. A user that does not exist is only removed from the queue.
//
// The statement returns whether it deleted the user and whether the ghost user exists. It
// also returns the user's type, whether that type may be deleted, and which steps have
// rows. Finally, it returns the kind of deletion in the queue, or NULL, and the rows that
// all runs have changed. The event has only a hash of the name, which is enough to
// recognize a known name.
func (p *Plan) destroyStatement(names pgcatalog.Names, u *user, ghost dml.ID) (string, []any) {
	args := &dml.Args{}
	returned, payload := []string{p.column("leaving") + " AS id"}, []string{"'user_id', deleted.id"}
	if p.gitlab {
		returned = append(returned, "leaving.username")
		payload = append(payload, "'username_sha256', "+
			"pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(deleted.username::pg_catalog.text, 'UTF8')), 'hex')")
	}
	jobAt, userAt, hardAt := args.Add(u.id), args.Add(p.key.Argument(u.userID)), args.Add(u.hardDelete)
	return fmt.Sprintf(`WITH checked AS MATERIALIZED (SELECT %s AS live),
job AS MATERIALIZED (
	SELECT queued.id, queued.initiator_user_id, queued.hard_delete, queued.moved_rows, queued.deleted_rows, queued.nullified_rows
	FROM %[2]s AS queued WHERE queued.id OPERATOR(pg_catalog.=) $%[3]d AND queued.user_id OPERATOR(pg_catalog.=) %[4]s FOR UPDATE
),
deleted AS (
	DELETE FROM %[5]s AS leaving USING checked, job
	WHERE %[14]s AND job.hard_delete OPERATOR(pg_catalog.=) $%[6]d AND NOT true OPERATOR(pg_catalog.=) ANY (checked.live)
	AND (%[12]s) OPERATOR(pg_catalog.=) ANY (%[7]s)
	RETURNING %[11]s
),
finished AS (
	DELETE FROM %[2]s AS queued USING job
	WHERE queued.id OPERATOR(pg_catalog.=) job.id AND (EXISTS (SELECT FROM deleted) OR (%[10]s) IS NULL)
),
event AS (
	INSERT INTO %[8]s (kind, payload)
	SELECT 'user_destroyed', pg_catalog.jsonb_build_object(
		%[13]s,
		'initiator_user_id', job.initiator_user_id, 'hard_delete', job.hard_delete,
		'moved', job.moved_rows, 'deleted', job.deleted_rows, 'nullified', job.nullified_rows)
	FROM deleted CROSS JOIN job
)
SELECT EXISTS (SELECT FROM deleted), EXISTS (%[9]s), (%[10]s), (%[10]s) OPERATOR(pg_catalog.=) ANY (%[7]s), checked.live, job.hard_delete,
	coalesce(job.moved_rows, 0), coalesce(job.deleted_rows, 0), coalesce(job.nullified_rows, 0)
FROM checked LEFT JOIN job ON true`,
		p.live(p.steps(u.hardDelete), u.userID, args), queueTable(names), jobAt, p.value(userAt), p.users.SQL(), hardAt,
		deletableSQL, names.Render(`"sexton".events`),
		p.ghostExists(ghost),
		p.userType(p.value(userAt), ghost), strings.Join(returned, ", "), p.kind(ghost), strings.Join(payload, ", "),
		p.is("leaving", p.value(userAt))), args.Values
}

// shownStatement returns a statement that selects the name of one of the user's rows.
func (p *Plan) shownStatement(s *step, userID dml.ID) (string, []any) {
	args := &dml.Args{}
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s LIMIT 1", s.shown, s.FromItem(), p.rows(s, userID, args)), args.Values
}

// remainingStatement returns a statement that estimates and stores the user's remaining
// rows. It counts at most remainingCap rows for each step.
func (p *Plan) remainingStatement(names pgcatalog.Names, u *user) (string, []any) {
	args := &dml.Args{}
	capAt := args.Add(remainingCap)
	terms := render.Each(p.steps(u.hardDelete), func(s *step) string {
		return fmt.Sprintf("(SELECT pg_catalog.count(*) FROM (SELECT FROM %s WHERE %s LIMIT $%d) AS counted)",
			s.FromItem(), p.rows(s, u.userID, args), capAt)
	})
	return fmt.Sprintf("UPDATE %s AS job SET remaining_rows = least(%s, $%d) WHERE job.id OPERATOR(pg_catalog.=) $%d RETURNING job.remaining_rows",
		queueTable(names), strings.Join(terms, "\n+ "), capAt, args.Add(u.id)), args.Values
}
