package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/each"
	"sexton/internal/pgcatalog"
)

// Only texts without a table of the application's in them go through pgcatalog.Render: such a table may itself live in a
// schema called public.

// Row is a version of a row in one leaf: where it is, and the transaction that wrote it. Once vacuum has been there another row may stand in the
// same place, but it is not of the same transaction.
type Row struct {
	At      Tuple
	Version uint32
}

// ScanRow reads a row of a statement that selects tuple and version.
func ScanRow(row pgx.CollectableRow) (one Row, err error) {
	err = row.Scan(&one.At, &one.Version)
	return one, err
}

// Rows are versions of rows in one leaf.
type Rows []Row

// Args are the arguments of a statement on the rows: their tuples, their versions, and more.
func (r Rows) Args(more ...any) []any {
	return append([]any{r.tuples(), each.Of(r, func(one Row) uint32 { return one.Version })}, more...)
}

func (r Rows) tuples() []Tuple { return each.Of(r, func(one Row) Tuple { return one.At }) }

// without returns the rows that are at none of these tuples.
func (r Rows) without(gone []Tuple) Rows {
	lost := make(map[Tuple]bool, len(gone))
	for _, at := range gone {
		lost[at] = true
	}
	return slices.DeleteFunc(slices.Clone(r), func(one Row) bool { return lost[one.At] })
}

// Window is a number of rows in one leaf whose trees are taken down together.
type Window struct {
	Table *Table
	Leaf  pgcatalog.Table
	Rows  Rows
	// Spins reports that rows below come back as fast as they go.
	Spins bool
}

// wantSQL is a CTE of the rows that the first two parameters name.
const wantSQL = "want AS MATERIALIZED (SELECT wanted.at, wanted.version " +
	"FROM unnest($1::pg_catalog.tid[], $2::pg_catalog.xid[]) AS wanted (at, version))"

// matches is the condition for the rows of a key (alias child) that refer to a row (alias parent, or another one).
func (f *Ref) matches(parent string) string { return f.On("child", parent) }

// On is matches for any alias.
func (f *Ref) On(child, parent string) string {
	sql := Pairwise(f.compare, Qualified(child, f.Columns), Qualified(parent, f.Targets))
	if f.Where != "" {
		sql += " AND " + strings.ReplaceAll(f.Where, "child.", child+".")
	}
	return sql
}

// Exists is true where rows of the key refer to the row. OFFSET 0 keeps it a look at an index per row, whatever the planner
// thinks of the tables.
func (f *Ref) Exists(parent string) string {
	return fmt.Sprintf("EXISTS (SELECT FROM %s AS child WHERE %s OFFSET 0)", f.From, f.matches(parent))
}

// targets are the columns of a leaf's rows that its keys refer to.
func targets(refs []*Ref) string {
	seen := map[string]bool{}
	var columns []string
	for _, f := range refs {
		for _, column := range f.Targets {
			if !seen[column] {
				seen[column] = true
				columns = append(columns, "parent."+pgcatalog.Quote(column))
			}
		}
	}
	return strings.Join(columns, ", ")
}

// parents is a CTE of the window's rows, with what the keys refer to.
func parents(leaf pgcatalog.Table, refs []*Ref) string {
	return fmt.Sprintf(`%s,
parents AS MATERIALIZED (
	SELECT %s FROM want JOIN ONLY %s AS parent ON parent.ctid OPERATOR(pg_catalog.=) want.at AND parent.xmin OPERATOR(pg_catalog.=) want.version
)`, wantSQL, targets(refs), leaf.SQL())
}

// lookStatement tells which of the keys have rows that refer to any of the window's, other than those themselves where they
// go together: an array of booleans.
func lookStatement(leaf pgcatalog.Table, refs []*Ref) string {
	terms := each.Of(refs, func(f *Ref) string {
		return fmt.Sprintf("EXISTS (SELECT FROM parents AS parent CROSS JOIN LATERAL (SELECT FROM %s AS child WHERE %s LIMIT 1) AS found)",
			f.From, f.matches("parent")+f.beside("want"))
	})
	return fmt.Sprintf("WITH %s\nSELECT ARRAY[%s]", parents(leaf, refs), strings.Join(terms, ",\n"))
}

// childrenStatement reads at most $4 rows of the key, in one of its leaves, that refer to the window's, except the ones at the
// tuples $3. The subquery keeps the planner to the one plan that does not depend on what it knows of the tables.
func childrenStatement(leaf pgcatalog.Table, f *Ref, in pgcatalog.Table) string {
	return fmt.Sprintf(`WITH %s
SELECT found.At, found.Version
FROM parents AS parent
CROSS JOIN LATERAL (
	SELECT child.ctid AS at, child.xmin AS version FROM ONLY %s AS child WHERE %s AND child.ctid OPERATOR(pg_catalog.<>) ALL ($3::pg_catalog.tid[]) OFFSET 0
) AS found
LIMIT $4`, parents(leaf, []*Ref{f}), in.SQL(), f.matches("parent"))
}

// sampleStatement shows one of these rows to people.
func sampleStatement(leaf pgcatalog.Table, f *Ref) string {
	return fmt.Sprintf(`WITH %s
SELECT found.shown FROM parents AS parent
CROSS JOIN LATERAL (SELECT %s AS shown FROM %s AS child WHERE %s LIMIT 1) AS found
LIMIT 1`, parents(leaf, []*Ref{f}), f.Table.Shown("child"), f.From, f.matches("parent"))
}

// locked is a CTE in the place of want for those of the rows that no other session has locked.
func locked(leaf pgcatalog.Table) string {
	return fmt.Sprintf(`free AS MATERIALIZED (
	SELECT want.at, want.version
	FROM want JOIN ONLY %s AS picked ON picked.ctid OPERATOR(pg_catalog.=) want.at AND picked.xmin OPERATOR(pg_catalog.=) want.version
	FOR UPDATE OF picked SKIP LOCKED
)`, leaf.SQL())
}

// lockStatement locks the rows, once no other session has a lock that stands against it.
func lockStatement(leaf pgcatalog.Table) string {
	return fmt.Sprintf(`WITH %s,
held AS MATERIALIZED (
	SELECT FROM want JOIN ONLY %s AS target ON target.ctid OPERATOR(pg_catalog.=) want.at AND target.xmin OPERATOR(pg_catalog.=) want.version
	FOR UPDATE OF target
)
SELECT pg_catalog.count(*) FROM held`, wantSQL, leaf.SQL())
}

// removeStatement deletes those of the rows below which nothing is left, and counts them for the
// owner $3, and for the table $4 of the run. Rows that come in below between its snapshot and its lock on a row are the only ones that are left to
// the key's own action. It returns how many it deleted, where that is not all of them, their tuples, and what the owner selects
// beside. Bare leaves the rows below to the keys' actions; their figures are $5 to $7.
func (o *Owner) removeStatement(names pgcatalog.Names, t *Table, leaf pgcatalog.Table, skip, bare bool) string {
	from, ctes := "want", wantSQL
	if skip {
		from, ctes = "free", wantSQL+",\n"+locked(leaf)
	}
	var below strings.Builder
	refs := t.RefsOf(leaf)
	switch chained := slices.ContainsFunc(refs, func(f *Ref) bool { return f.chain }); {
	case bare:
	case chained:
		ctes += ",\n" + heldSQL(leaf, refs, from)
		below.WriteString("\n\tAND NOT target.ctid OPERATOR(pg_catalog.=) ANY (SELECT held.at FROM held)")
	default:
		for _, f := range refs {
			below.WriteString("\n\tAND NOT " + f.Exists("target"))
		}
	}
	beside, result := o.Beside(t), "total"
	if bare {
		add := batch.CountRows(names, "below.field", "below.label", "below.rows")
		beside.CTEs += fmt.Sprintf(`,
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
	DELETE FROM ONLY %s AS target USING %s AS want
	WHERE target.ctid OPERATOR(pg_catalog.=) want.at AND target.xmin OPERATOR(pg_catalog.=) want.version%s
	RETURNING want.at%s
),
total AS MATERIALIZED (SELECT pg_catalog.count(*) AS rows FROM gone)%s%s
SELECT %s,
	CASE WHEN total.rows OPERATOR(pg_catalog.<) pg_catalog.cardinality($1::pg_catalog.tid[]) THEN ARRAY(SELECT gone.at FROM gone) END, %s::bigint FROM %s`,
		ctes, leaf.SQL(), from, below.String(), beside.Returning, beside.CTEs, o.Deleted, o.counts(names, t), cmp.Or(beside.Selected, "0"), result)
}

// counts is the number of rows in total, which it adds to the run's figures.
func (o *Owner) counts(names pgcatalog.Names, t *Table) string {
	rows := "total.rows"
	for _, f := range o.Figures(t) {
		label := "''"
		if f.Label != "" {
			label = "$4::pg_catalog.text"
		}
		rows = batch.CountRows(names, "'"+f.Field+"'", label, rows)
	}
	return rows
}

// tellStatement does what the owner does beside the end of rows that are about to go with others.
func (o *Owner) tellStatement(t *Table, leaf pgcatalog.Table) string {
	beside := o.Beside(t)
	return fmt.Sprintf(`WITH %s,
gone AS (
	SELECT want.at%s FROM want JOIN ONLY %s AS target ON target.ctid OPERATOR(pg_catalog.=) want.at AND target.xmin OPERATOR(pg_catalog.=) want.version
)%s
SELECT $3::bigint`, wantSQL, beside.Returning, leaf.SQL(), beside.CTEs)
}

// goneStatement fails with a division by zero, and with it the transaction, where one of the rows is still there: then word was
// left of something that has not happened.
func goneStatement(leaf pgcatalog.Table) string {
	return fmt.Sprintf(`WITH %s
SELECT 1 OPERATOR(pg_catalog./) (pg_catalog.count(*) OPERATOR(pg_catalog.=) 0)::integer
FROM want JOIN ONLY %s AS target ON target.ctid OPERATOR(pg_catalog.=) want.at AND target.xmin OPERATOR(pg_catalog.=) want.version`,
		wantSQL, leaf.SQL())
}

// changeStatement does to rows what the key's action says, and has the owner $3 count the ones that it changed. It returns their old and new
// tuples and versions, and the new tuples of rows that have the same key as before. The run counts them for the column $4.
func (o *Owner) changeStatement(names pgcatalog.Names, f *Ref, leaf pgcatalog.Table, skip bool) string {
	from, ctes := "want", wantSQL
	if skip {
		from, ctes = "free", wantSQL+",\n"+locked(leaf)
	}
	// The texts are cast, as Postgres would compare two ROWs column by column, by operators of their types.
	key := func(alias string) string {
		return "ROW(" + strings.Join(Qualified(alias, f.Columns), ", ") + ")::pg_catalog.record"
	}
	return fmt.Sprintf(`WITH %s,
written AS (
	%s FROM %s AS want JOIN ONLY %s AS was ON was.ctid OPERATOR(pg_catalog.=) want.at
	WHERE child.ctid OPERATOR(pg_catalog.=) want.at AND child.xmin OPERATOR(pg_catalog.=) want.version
	RETURNING want.at, child.ctid AS moved, child.xmin AS version, %s OPERATOR(pg_catalog.*=) %s AS kept
),
changed AS (SELECT FROM written WHERE NOT written.kept)%s
SELECT pg_catalog.array_agg(written.at), pg_catalog.array_agg(written.moved), pg_catalog.array_agg(written.version),
	pg_catalog.array_agg(written.moved) FILTER (WHERE written.kept)
FROM written HAVING %s OPERATOR(pg_catalog.>=) 0`,
		ctes, Change(f.Action, "ONLY "+leaf.SQL(), f.set, ""), from, leaf.SQL(), key("child"), key("was"), o.Changed,
		batch.CountRows(names, "'"+o.Field+"'", "$4::pg_catalog.text", "pg_catalog.count(*) FILTER (WHERE NOT written.kept)"))
}

// UnchangedStatement reports whether a window's rows are all still there as they were read.
func UnchangedStatement(leaf pgcatalog.Table) string {
	return fmt.Sprintf(`WITH %s
SELECT pg_catalog.count(*) OPERATOR(pg_catalog.=) pg_catalog.cardinality($1::pg_catalog.tid[])
FROM want JOIN ONLY %s AS held ON held.ctid OPERATOR(pg_catalog.=) want.at AND held.xmin OPERATOR(pg_catalog.=) want.version`,
		wantSQL, leaf.SQL())
}

// HoldStatement keeps other sessions from changing a window's rows until the transaction ends; new rows may still refer to them. It fails with a
// division by zero where they are not all there as they were read.
func HoldStatement(leaf pgcatalog.Table) string {
	return fmt.Sprintf(`WITH %s,
held AS MATERIALIZED (
	SELECT FROM want JOIN ONLY %s AS held ON held.ctid OPERATOR(pg_catalog.=) want.at AND held.xmin OPERATOR(pg_catalog.=) want.version
	FOR NO KEY UPDATE OF held
)
SELECT 1 OPERATOR(pg_catalog./) (pg_catalog.count(*) OPERATOR(pg_catalog.=) pg_catalog.cardinality($1::pg_catalog.tid[]))::integer FROM held`,
		wantSQL, leaf.SQL())
}
