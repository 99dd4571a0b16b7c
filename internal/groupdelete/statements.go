package groupdelete

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgschema"
)

// Only texts without a table of the application's in them go through pgschema.Render: such a table may itself live in a
// schema called public.

func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }

// rows are versions of rows in one leaf: where they are, and the transactions that wrote them. Once vacuum has been there another row may
// stand in the same place, but it is not of the same transaction.
type rows struct {
	at      []pgtype.TID
	version []uint32
}

func (r rows) len() int { return len(r.at) }

// slice returns a part of the rows.
func (r rows) slice(from, to int) rows { return rows{r.at[from:to], r.version[from:to]} }

// reverse turns the rows round, in place.
func (r rows) reverse() {
	slices.Reverse(r.at)
	slices.Reverse(r.version)
}

// without returns the rows that are at none of the places.
func (r rows) without(gone []pgtype.TID) rows {
	lost := make(map[pgtype.TID]bool, len(gone))
	for _, at := range gone {
		lost[at] = true
	}
	var left rows
	for i, at := range r.at {
		if !lost[at] {
			left.at, left.version = append(left.at, at), append(left.version, r.version[i])
		}
	}
	return left
}

// window is a number of rows in one leaf whose trees are taken down together.
type window struct {
	table *table
	leaf  pgcatalog.Table
	rows  rows
}

// wantSQL is a CTE of the rows that the first two parameters name.
const wantSQL = "want AS MATERIALIZED (SELECT wanted.at, wanted.version " +
	"FROM unnest($1::pg_catalog.tid[], $2::pg_catalog.xid[]) AS wanted (at, version))"

// matches is the condition for the rows of a key (alias child) that refer to a row (alias parent, or another one).
func (f *ref) matches(parent string) string { return f.on("child", parent) }

// on is matches for any alias.
func (f *ref) on(child, parent string) string {
	terms := make([]string, len(f.columns), len(f.columns)+1)
	for i, column := range f.columns {
		terms[i] = f.compare[i].Equal(child+"."+identifier(column), parent+"."+identifier(f.targets[i]))
	}
	if f.where != "" {
		terms = append(terms, strings.ReplaceAll(f.where, "child.", child+"."))
	}
	return strings.Join(terms, " AND ")
}

// exists is true where rows of the key refer to the row. OFFSET 0 keeps it a look at an index per row, whatever the planner
// thinks of the tables.
func (f *ref) exists(parent string) string {
	return fmt.Sprintf("EXISTS (SELECT FROM %s AS child WHERE %s OFFSET 0)", f.from, f.matches(parent))
}

// targets are the columns of a leaf's rows that its keys refer to.
func targets(refs []*ref) string {
	seen := map[string]bool{}
	var columns []string
	for _, f := range refs {
		for _, column := range f.targets {
			if !seen[column] {
				seen[column] = true
				columns = append(columns, "parent."+identifier(column))
			}
		}
	}
	return strings.Join(columns, ", ")
}

// parents is a CTE of the window's rows, with what the keys refer to.
func parents(leaf pgcatalog.Table, refs []*ref) string {
	return fmt.Sprintf(`%s,
parents AS MATERIALIZED (
	SELECT %s FROM want JOIN ONLY %s AS parent ON parent.ctid OPERATOR(pg_catalog.=) want.at AND parent.xmin OPERATOR(pg_catalog.=) want.version
)`, wantSQL, targets(refs), leaf.SQL())
}

// lookStatement tells which of the keys have rows that refer to any of the window's, other than those themselves where they
// go together: an array of booleans.
func lookStatement(leaf pgcatalog.Table, refs []*ref) string {
	terms := make([]string, len(refs))
	for i, f := range refs {
		terms[i] = fmt.Sprintf("EXISTS (SELECT FROM parents AS parent CROSS JOIN LATERAL (SELECT FROM %s AS child WHERE %s LIMIT 1) AS found)",
			f.from, f.matches("parent")+f.beside("want"))
	}
	return fmt.Sprintf("WITH %s\nSELECT ARRAY[%s]", parents(leaf, refs), strings.Join(terms, ",\n"))
}

// childrenStatement reads at most $4 rows of the key, in one of its leaves, that refer to the window's, but for those at the
// places $3. The subquery keeps the planner to the one plan that does not depend on what it knows of the tables.
func childrenStatement(leaf pgcatalog.Table, f *ref, in pgcatalog.Table) string {
	return fmt.Sprintf(`WITH %s
SELECT found.at, found.version
FROM parents AS parent
CROSS JOIN LATERAL (
	SELECT child.ctid AS at, child.xmin AS version FROM ONLY %s AS child WHERE %s AND child.ctid OPERATOR(pg_catalog.<>) ALL ($3::pg_catalog.tid[]) OFFSET 0
) AS found
LIMIT $4`, parents(leaf, []*ref{f}), in.SQL(), f.matches("parent"))
}

// sampleStatement shows one of these rows to people.
func sampleStatement(leaf pgcatalog.Table, f *ref) string {
	return fmt.Sprintf(`WITH %s
SELECT found.shown FROM parents AS parent
CROSS JOIN LATERAL (SELECT %s AS shown FROM %s AS child WHERE %s LIMIT 1) AS found
LIMIT 1`, parents(leaf, []*ref{f}), f.table.Shown("child"), f.from, f.matches("parent"))
}

// locked is a CTE in the place of want for those of the rows that nobody else has locked.
func locked(leaf pgcatalog.Table) string {
	return fmt.Sprintf(`free AS MATERIALIZED (
	SELECT want.at, want.version
	FROM want JOIN ONLY %s AS picked ON picked.ctid OPERATOR(pg_catalog.=) want.at AND picked.xmin OPERATOR(pg_catalog.=) want.version
	FOR UPDATE OF picked SKIP LOCKED
)`, leaf.SQL())
}

// lockStatement locks the rows, once nobody else has a lock that stands against it.
func lockStatement(leaf pgcatalog.Table) string {
	return fmt.Sprintf(`WITH %s,
held AS MATERIALIZED (
	SELECT FROM want JOIN ONLY %s AS doomed ON doomed.ctid OPERATOR(pg_catalog.=) want.at AND doomed.xmin OPERATOR(pg_catalog.=) want.version
	FOR UPDATE OF doomed
)
SELECT pg_catalog.count(*) FROM held`, wantSQL, leaf.SQL())
}

// removeStatement deletes those of the rows below which nothing is left, leaves word of it and counts them for the
// group $3, and for the table $4 of the run. Rows that come in below between its snapshot and its lock on a row are the only ones that are left to
// the key's own action. It returns how many it deleted, where that is not all of them, their places, and how many project bots lost a
// membership. Bare leaves the rows below to the keys' actions; their figures are $5 to $7.
func (p *Plan) removeStatement(names pgschema.Names, t *table, leaf pgcatalog.Table, skip, bare bool) string {
	from, ctes := "want", wantSQL
	if skip {
		from, ctes = "free", wantSQL+",\n"+locked(leaf)
	}
	var below strings.Builder
	refs := t.refsOf(leaf)
	switch chained := slices.ContainsFunc(refs, func(f *ref) bool { return f.chain }); {
	case bare:
	case chained:
		ctes += ",\n" + heldSQL(leaf, refs, from)
		below.WriteString("\n\tAND NOT doomed.ctid OPERATOR(pg_catalog.=) ANY (SELECT held.at FROM held)")
	default:
		for _, f := range refs {
			below.WriteString("\n\tAND NOT " + f.exists("doomed"))
		}
	}
	event, returning := p.event(names, t)
	bots, result := "0", "total"
	if p.bots && t == p.members {
		event, returning, bots = fill(names, botsSQL, "{users}", p.users.SQL()), ", doomed.user_id", "(SELECT pg_catalog.count(*) FROM bot)"
		bots = batch.CountRows(names, "'bots'", "''", bots)
	}
	if bare {
		add := batch.CountRows(names, "below.field", "below.label", "below.rows")
		event += fmt.Sprintf(`,
added AS MATERIALIZED (
	SELECT pg_catalog.sum(%s)
	FROM ROWS FROM (
		pg_catalog.unnest($5::pg_catalog.text[]), pg_catalog.unnest($6::pg_catalog.text[]), pg_catalog.unnest($7::pg_catalog.int8[])
	) AS below (field, label, rows)
	CROSS JOIN total WHERE total.rows OPERATOR(pg_catalog.>) 0
)`, add)
		result = "total CROSS JOIN added"
	}
	return fmt.Sprintf(`WITH RECURSIVE %s,
gone AS (
	DELETE FROM ONLY %s AS doomed USING %s AS want
	WHERE doomed.ctid OPERATOR(pg_catalog.=) want.at AND doomed.xmin OPERATOR(pg_catalog.=) want.version%s
	RETURNING want.at%s
),
total AS MATERIALIZED (SELECT pg_catalog.count(*) AS rows FROM gone)%s%s
SELECT %s,
	CASE WHEN total.rows OPERATOR(pg_catalog.<) pg_catalog.cardinality($1::pg_catalog.tid[]) THEN ARRAY(SELECT gone.at FROM gone) END, %s::bigint FROM %s`,
		ctes, leaf.SQL(), from, below.String(), returning, event, counted(names), t.counts(names), bots, result)
}

// figures are the fields of the statistics that rows of the table belong to: one by table, and perhaps one for all.
func (t *table) figures() []batch.Figure {
	figures := []batch.Figure{{Field: "deleted", Label: t.Label()}}
	switch t.what {
	case project:
		return append(figures, batch.Figure{Field: "projects"})
	case group:
		return append(figures, batch.Figure{Field: "groups"})
	case ordinary:
	}
	return figures
}

// counts is the number of rows in total, which it adds to the run's figures.
func (t *table) counts(names pgschema.Names) string {
	rows := "total.rows"
	for _, f := range t.figures() {
		label := "''"
		if f.Label != "" {
			label = "$4::pg_catalog.text"
		}
		rows = batch.CountRows(names, "'"+f.Field+"'", label, rows)
	}
	return rows
}

// botsSQL are CTEs that pass the project bots (user type 6) among the members in gone to the queue of users who are deleted, on
// behalf of the user who asked for the destruction $3. A bot belongs to its group or project, and has no use without it.
const botsSQL = `,
bot AS MATERIALIZED (
	SELECT gone.user_id FROM gone JOIN {users} AS users ON users.id OPERATOR(pg_catalog.=) gone.user_id AND users.user_type OPERATOR(pg_catalog.=) 6
),
stopped AS (
	UPDATE {users} AS users SET state = 'blocked' FROM bot
	WHERE users.id OPERATOR(pg_catalog.=) bot.user_id AND (users.state OPERATOR(pg_catalog.=) 'blocked') IS NOT TRUE
),
queued AS (
	INSERT INTO "public".users_ghost_user_migrations (user_id, initiator_user_id, hard_delete, consume_after, created_at, updated_at)
	SELECT DISTINCT bot.user_id, (SELECT begun.user_id FROM "sexton".group_destructions AS begun WHERE begun.group_id OPERATOR(pg_catalog.=) $3),
		false, pg_catalog.now(), pg_catalog.now(), pg_catalog.now()
	FROM bot
	ON CONFLICT DO NOTHING
)`

// counted is a CTE that counts the rows for the group $3.
func counted(names pgschema.Names) string {
	return fmt.Sprintf(`,
counted AS (
	UPDATE %s AS progress SET done = progress.done OPERATOR(pg_catalog.+) total.rows, updated_at = pg_catalog.clock_timestamp()
	FROM total WHERE progress.group_id OPERATOR(pg_catalog.=) $3 AND total.rows OPERATOR(pg_catalog.>) 0
)`, names.Render(`"sexton".group_destructions`))
}

// event is a CTE that leaves word of the rows in gone, and what they have to return for it.
func (p *Plan) event(names pgschema.Names, t *table) (cte, returning string) {
	kind, columns := "project_destroyed", [][2]string{{"project_id", "id"}, {"group_id", "group_id"}, {"path", "path"}}
	switch {
	case t.what == ordinary:
		return "", ""
	case t.what == group:
		kind, columns = "group_destroyed", [][2]string{{"group_id", "id"}, {"parent_id", "parent_id"}, {"path", "path"}}
	case !p.projectPath:
		columns = columns[:2]
	}
	var payload strings.Builder
	for _, c := range columns {
		fmt.Fprintf(&payload, "'%s', gone.%s, ", c[0], c[1])
		returning += ", doomed." + c[1]
	}
	return fmt.Sprintf(",\nevent AS (INSERT INTO %s (kind, payload) SELECT '%s', pg_catalog.jsonb_build_object(%s'destroyed_with', $3::bigint) FROM gone)",
		names.Render(`"sexton".events`), kind, payload.String()), returning
}

// tellStatement leaves word of rows that are about to go with others.
func (p *Plan) tellStatement(names pgschema.Names, t *table, leaf pgcatalog.Table) string {
	event, returning := p.event(names, t)
	return fmt.Sprintf(`WITH %s,
gone AS (
	SELECT want.at%s FROM want JOIN ONLY %s AS doomed ON doomed.ctid OPERATOR(pg_catalog.=) want.at AND doomed.xmin OPERATOR(pg_catalog.=) want.version
)%s
SELECT $3::bigint`, wantSQL, returning, leaf.SQL(), event)
}

// goneStatement fails with a division by zero, and with it the transaction, where one of the rows is still there: then word was
// left of something that has not happened.
func goneStatement(leaf pgcatalog.Table) string {
	return fmt.Sprintf(`WITH %s
SELECT 1 OPERATOR(pg_catalog./) (pg_catalog.count(*) OPERATOR(pg_catalog.=) 0)::integer
FROM want JOIN ONLY %s AS doomed ON doomed.ctid OPERATOR(pg_catalog.=) want.at AND doomed.xmin OPERATOR(pg_catalog.=) want.version`,
		wantSQL, leaf.SQL())
}

// changeStatement does to rows what the key's action says, and notes at the group $3 that there is no way back. It returns
// their old and new places and versions, and how many refer to the same row as before, as a trigger or a default has kept them.
// The run counts them for the column $4.
func (f *ref) changeStatement(names pgschema.Names, leaf pgcatalog.Table, skip bool) string {
	from, ctes, to := "want", wantSQL, "NULL"
	if skip {
		from, ctes = "free", wantSQL+",\n"+locked(leaf)
	}
	if f.action == setDefault {
		to = "DEFAULT"
	}
	set := make([]string, len(f.set))
	for i, column := range f.set {
		set[i] = identifier(column) + " = " + to
	}
	return fmt.Sprintf(`WITH %s,
changed AS (
	UPDATE ONLY %s AS child SET %s FROM %s AS want
	WHERE child.ctid OPERATOR(pg_catalog.=) want.at AND child.xmin OPERATOR(pg_catalog.=) want.version
	RETURNING want.at, child.ctid AS moved, child.xmin AS version
),
touched AS (
	UPDATE %s AS progress SET touched = true
	WHERE progress.group_id OPERATOR(pg_catalog.=) $3 AND NOT progress.touched AND EXISTS (SELECT FROM changed)
)
SELECT pg_catalog.array_agg(changed.at), pg_catalog.array_agg(changed.moved), pg_catalog.array_agg(changed.version) FROM changed
HAVING %s OPERATOR(pg_catalog.>=) 0`,
		ctes, leaf.SQL(), strings.Join(set, ", "), from, names.Render(`"sexton".group_destructions`),
		batch.CountRows(names, "'nullified'", "$4::pg_catalog.text", "pg_catalog.count(*)"))
}
