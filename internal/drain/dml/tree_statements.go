package dml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// pgcatalog.Render must only be called for SQL that contains no table of the application.
// Such a table may be in a schema called public, which Render replaces.

// Tuple is the position of a row version in its leaf (ctid).
type Tuple = pgtype.TID

// Row is a version of a row in one leaf: its position, and the transaction that wrote it
// (xmin). After a vacuum another row can have the same position, but the same transaction
// has not written it.
type Row struct {
	At      Tuple
	Version uint32
}

// ScanRow scans a row that has the columns tuple and version.
func ScanRow(row pgx.CollectableRow) (one Row, err error) {
	err = row.Scan(&one.At, &one.Version)
	return one, err
}

// Rows are versions of rows in one leaf.
type Rows []Row

// Args returns the arguments of a statement on the rows: their tuples, their versions,
// and more.
func (r Rows) Args(more ...any) []any {
	return append([]any{r.Tuples(), render.Each(r, func(one Row) uint32 { return one.Version })}, more...)
}

// Tuples returns the positions of the rows.
func (r Rows) Tuples() []Tuple { return render.Each(r, func(one Row) Tuple { return one.At }) }

// Without returns the rows that are not at any of the tuples.
func (r Rows) Without(tuples []Tuple) Rows {
	excluded := make(map[Tuple]bool, len(tuples))
	for _, at := range tuples {
		excluded[at] = true
	}
	return slices.DeleteFunc(slices.Clone(r), func(one Row) bool { return excluded[one.At] })
}

// Follow replaces versions of rows by later versions: the row at old[i] is now at
// moved[i], with version[i].
func (r Rows) Follow(old, moved []Tuple, version []uint32) {
	to := make(map[Tuple]int, len(old))
	for i, at := range old {
		to[at] = i
	}
	for i := range r {
		if n, found := to[r[i].At]; found {
			r[i] = Row{moved[n], version[n]}
		}
	}
}

// Window is some rows of one leaf whose trees are deleted together.
type Window struct {
	Table *Table
	Leaf  pgcatalog.Table
	Rows  Rows
	// Cycle holds the indexes of rows that are part of a cycle: they refer to a row below
	// them.
	Cycle map[int]bool
	// Refilled reports that rows below reappear as fast as they are deleted.
	Refilled bool
}

// Owner is the group, user or rule for which rows are deleted. It counts the rows and may
// add further work to the transactions that delete them. Its SQL texts are CTEs.
type Owner struct {
	// ID is parameter $3 of the owner's CTEs. IDType is the SQL type of ID, bigint by
	// default.
	ID     any
	IDType string
	// Deleted is a CTE that records the number of deleted rows, which it reads from
	// total.rows. Changed is a CTE that records the number of rows of the CTE changed.
	Deleted, Changed string
	// Extra returns the further work of a statement that deletes rows of a table.
	Extra func(t *Table) Extra
	// OnDeleted and OnChanged report committed rows. selected is the number that
	// Extra.Selected returned.
	OnDeleted func(t *Table, rows, selected int64)
	OnChanged func(f *Ref, rows int64)
	// Failed is called with each fault that is not a lock conflict.
	Failed func(f batch.Fault)
}

// Extra is further work of a statement that deletes rows of a table. CTE may read the CTE
// deleted, which has the columns that Returning lists with the alias target. Selected is
// an expression of type bigint, or "".
type Extra struct {
	CTE, Selected string
	Returning     []string
}

// returning returns the list of the columns of the CTE deleted.
func (e Extra) returning() string {
	return strings.Join(append([]string{"want.at"}, e.Returning...), ", ")
}

// wantSQL is a CTE of the row versions in the first two parameters. The subqueries hide
// the number of row versions from the planner, which then always joins them with the leaf
// by a TID scan.
const wantSQL = "want AS MATERIALIZED (SELECT wanted.at, wanted.version " +
	"FROM unnest((SELECT $1::pg_catalog.tid[]), (SELECT $2::pg_catalog.xid[])) AS wanted (at, version))"

// joined returns the join of the wanted row versions with their leaf.
func joined(leaf pgcatalog.Table, alias string) string {
	return fmt.Sprintf("want JOIN ONLY %[1]s AS %[2]s ON %[2]s.ctid OPERATOR(pg_catalog.=) want.at AND %[2]s.xmin OPERATOR(pg_catalog.=) want.version",
		leaf.SQL(), alias)
}

// with returns the WITH clause of the CTEs that are not empty.
func with(ctes ...string) string {
	return "WITH " + strings.Join(slices.DeleteFunc(ctes, func(cte string) bool { return cte == "" }), ",\n")
}

// On returns the condition that a row of the key (alias child) refers to a row (alias
// parent).
func (f *Ref) On(child, parent string) string {
	return Pairwise(f.compare, Qualified(child, f.Columns), Qualified(parent, f.Targets)) + f.where(child)
}

// where returns the restriction of a key that does not apply to all rows. It begins with
// AND. It is empty for other keys.
func (f *Ref) where(child string) string {
	if f.Where == "" {
		return ""
	}
	return " AND " + strings.ReplaceAll(f.Where, "child.", child+".")
}

// Exists returns the condition that rows of the key refer to the row of the alias parent.
// It is one index lookup per row, whatever the planner estimates.
func (f *Ref) Exists(parent string) string { return f.exists(parent, false) }

// exists returns the condition of Exists. If without is set, it ignores rows whose
// positions are in the CTE meant.
func (f *Ref) exists(parent string, without bool) string {
	further := f.where("child")
	if without {
		further += " AND NOT child.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT meant.at FROM meant))"
	}
	return fmt.Sprintf("EXISTS (SELECT FROM %s AS child WHERE %s)", f.From,
		firstBetween(f.compare, Qualified("child", f.Columns), Qualified(parent, f.Targets), further))
}

// parents returns a CTE of the window's rows. It has the columns to which the keys refer.
func parents(leaf pgcatalog.Table, refs []*Ref) string {
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
	return fmt.Sprintf("parents AS MATERIALIZED (SELECT %s FROM %s)", strings.Join(columns, ", "),
		joined(leaf, "parent"))
}

// liveRefsStatement returns the query for an array of booleans: for each key, whether
// rows refer to any of the window's rows by it.
func liveRefsStatement(leaf pgcatalog.Table, refs []*Ref) string {
	terms := render.Each(refs, func(f *Ref) string {
		return fmt.Sprintf("EXISTS (SELECT FROM parents AS parent CROSS JOIN LATERAL (SELECT FROM %s AS child WHERE %s LIMIT 1) AS found)",
			f.From, f.On("child", "parent"))
	})
	return fmt.Sprintf("%s\nSELECT ARRAY[%s]", with(wantSQL, parents(leaf, refs)), strings.Join(terms, ",\n"))
}

// childrenStatement returns the query for at most $4 rows that refer to the window's rows
// by a key, in one of its leaves. It leaves out the rows at the tuples $3. The subquery
// leaves the planner one plan, which does not depend on statistics.
func childrenStatement(leaf pgcatalog.Table, f *Ref, in pgcatalog.Table) string {
	return fmt.Sprintf(`%s
SELECT found.at, found.version
FROM parents AS parent
CROSS JOIN LATERAL (
	SELECT child.ctid AS at, child.xmin AS version FROM ONLY %s AS child WHERE %s AND child.ctid OPERATOR(pg_catalog.<>) ALL ($3::pg_catalog.tid[]) OFFSET 0
) AS found
LIMIT $4`, with(wantSQL, parents(leaf, []*Ref{f})), in.SQL(), f.On("child", "parent"))
}

// ShownStatement returns the query for the text by which messages describe the row at the
// tuple $1.
func ShownStatement(t *Table, leaf pgcatalog.Table) string {
	return fmt.Sprintf("SELECT %s FROM ONLY %s AS child WHERE child.ctid OPERATOR(pg_catalog.=) $1::pg_catalog.tid",
		t.Shown("child"), leaf.SQL())
}

// LockStatement returns the statement that locks the rows. It waits for rows that other
// sessions have locked or, if skip is set, leaves them out.
func LockStatement(leaf pgcatalog.Table, skip bool) string {
	lock := "FOR UPDATE OF target"
	if skip {
		lock += " SKIP LOCKED"
	}
	return fmt.Sprintf("%s,\nheld AS MATERIALIZED (SELECT FROM %s %s)\nSELECT pg_catalog.count(*) FROM held",
		with(wantSQL), joined(leaf, "target"), lock)
}

// locked returns the condition that LockStatement has locked a row of alias in the same
// transaction.
func locked(alias string) string {
	return fmt.Sprintf("\n\tAND %s.xmax OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id()::pg_catalog.xid", alias)
}

// HoldStatement returns the statement that locks a window's rows. lock is the locking
// clause, such as FOR UPDATE. The statement fails with batch.Unmet unless all of the rows
// are as they were read.
func HoldStatement(leaf pgcatalog.Table, lock string) string {
	return fmt.Sprintf(`%s,
held AS MATERIALIZED (SELECT FROM %s %s OF held)
SELECT "sexton".require(pg_catalog.count(*) OPERATOR(pg_catalog.=) pg_catalog.cardinality($1::pg_catalog.tid[])) FROM held`,
		with(wantSQL), joined(leaf, "held"), lock)
}

// UnchangedStatement returns the query that reports whether all rows of a window are as
// they were read.
func UnchangedStatement(leaf pgcatalog.Table) string {
	return fmt.Sprintf("%s\nSELECT pg_catalog.count(*) OPERATOR(pg_catalog.=) pg_catalog.cardinality($1::pg_catalog.tid[]) FROM %s",
		with(wantSQL), joined(leaf, "held"))
}

// RequireDeletedStatement returns a statement that fails with batch.Unmet if one of the
// rows still exists.
func RequireDeletedStatement(leaf pgcatalog.Table) string {
	return fmt.Sprintf("%s\nSELECT \"sexton\".require(pg_catalog.count(*) OPERATOR(pg_catalog.=) 0) FROM %s",
		with(wantSQL), joined(leaf, "target"))
}

// RemoveStatement returns the statement that deletes the wanted rows to which no row
// refers. If they refer only to each other, it deletes all of them. It returns the number
// of deleted rows, their tuples unless all were deleted, and the number that the owner
// selects. With skip it leaves out rows that LockStatement has not locked before. It does
// not lock rows itself: its snapshot could be older than the lock, so it would miss rows
// below that the former lock holder has inserted.
func (o *Owner) RemoveStatement(t *Table, leaf pgcatalog.Table, skip bool) string {
	ctes, condition := []string{wantSQL}, ""
	if skip {
		condition = locked("target")
	}
	var childless, outside []string
	for _, f := range t.RefsOf(leaf) {
		childless, outside = append(childless, "NOT "+f.Exists("target")),
			append(outside, f.exists("target", f.Table == t && f.Action == Remove))
	}
	switch {
	case t.Chains():
		ctes = append(ctes, fmt.Sprintf("meant AS MATERIALIZED (SELECT want.at FROM %s WHERE true%s)",
			joined(leaf, "target"), condition),
			fmt.Sprintf("outside AS MATERIALIZED (\n\tSELECT FROM meant JOIN ONLY %s AS target"+
				" ON target.ctid OPERATOR(pg_catalog.=) meant.at\n\tWHERE %s\n\tLIMIT 1\n)",
				leaf.SQL(), strings.Join(outside, "\n\t\tOR ")))
		condition += fmt.Sprintf("\n\tAND (NOT EXISTS (SELECT FROM outside) OR %s)",
			strings.Join(childless, "\n\t\tAND "))
	case len(childless) > 0:
		condition += "\n\tAND " + strings.Join(childless, "\n\tAND ")
	}
	return o.deletion(t, leaf, ctes, condition, "")
}

// CascadeStatement returns the statement that deletes the rows and counts the $4 rows
// below them, which the actions of the keys delete.
func (o *Owner) CascadeStatement(t *Table, leaf pgcatalog.Table) string {
	return o.deletion(t, leaf, []string{wantSQL}, "", " OPERATOR(pg_catalog.+) $4::bigint")
}

func (o *Owner) deletion(t *Table, leaf pgcatalog.Table, ctes []string, condition, more string) string {
	extra := o.Extra(t)
	ctes = append(ctes, fmt.Sprintf(`deleted AS (
	DELETE FROM ONLY %s AS target USING want
	WHERE target.ctid OPERATOR(pg_catalog.=) want.at AND target.xmin OPERATOR(pg_catalog.=) want.version%s
	RETURNING %s
)`, leaf.SQL(), condition, extra.returning()),
		fmt.Sprintf("total AS MATERIALIZED (SELECT pg_catalog.count(*)%s AS rows FROM deleted)", more), extra.CTE,
		o.Deleted)
	return fmt.Sprintf(`%s
SELECT total.rows, CASE WHEN total.rows OPERATOR(pg_catalog.<) pg_catalog.cardinality($1::pg_catalog.tid[]) THEN ARRAY(SELECT deleted.at FROM deleted) END,
	%s::bigint
FROM total`, with(ctes...), cmp.Or(extra.Selected, "0"))
}

// ExtraStatement returns the statement that does the owner's further work for rows that
// the next statement deletes by the action of a foreign key.
func (o *Owner) ExtraStatement(t *Table, leaf pgcatalog.Table) string {
	extra := o.Extra(t)
	return fmt.Sprintf("%s\nSELECT pg_catalog.num_nulls($3::%s)::bigint, %s::bigint", with(wantSQL,
		fmt.Sprintf("deleted AS (SELECT %s FROM %s)", extra.returning(), joined(leaf, "target")), extra.CTE),
		cmp.Or(o.IDType, "bigint"), cmp.Or(extra.Selected, "0"))
}

// ChangeStatement returns the statement that applies the key's action to rows and counts
// the changed rows for the owner $3. It returns their old and new tuples, their new
// versions, and the new tuples of rows that still have the same key. If skip is set, it
// leaves out rows that LockStatement has not locked before.
func (o *Owner) ChangeStatement(f *Ref, leaf pgcatalog.Table, skip bool) string {
	condition := ""
	if skip {
		condition = locked("child")
	}
	// Without the cast, Postgres would compare two ROWs column by column, by the
	// operators of their types.
	key := func(alias string) string {
		return "ROW(" + strings.Join(Qualified(alias, f.Columns), ", ") + ")::pg_catalog.record"
	}
	return with(wantSQL, fmt.Sprintf(`written AS (
	%s FROM want JOIN ONLY %s AS was ON was.ctid OPERATOR(pg_catalog.=) want.at
	WHERE child.ctid OPERATOR(pg_catalog.=) want.at AND child.xmin OPERATOR(pg_catalog.=) want.version%s
	RETURNING want.at, child.ctid AS moved, child.xmin AS version, %s OPERATOR(pg_catalog.*=) %s AS kept
)`, Change(f.Action, "ONLY "+leaf.SQL(), f.set, ""), leaf.SQL(), condition, key("child"), key("was")),
		"changed AS (SELECT FROM written WHERE NOT written.kept)", o.Changed) + `
SELECT pg_catalog.array_agg(written.at), pg_catalog.array_agg(written.moved), pg_catalog.array_agg(written.version),
	pg_catalog.array_agg(written.moved) FILTER (WHERE written.kept)
FROM written`
}
