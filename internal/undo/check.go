package undo

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
)

// check builds statements that find restored rows whose parent does not exist. Each check
// is for one foreign key or definition.
type check struct {
	// reason is the text in the report for a row without a parent.
	reason string
	// source is the table of the rows. target is the table of the parents. The condition
	// on compares the source's columns with the targetColumns of the target.
	source, target         string
	columns, targetColumns []string
	on                     string
	// restrictions is an additional condition for rows that must have a parent.
	restrictions string
	// lock makes count lock the parents until the commit. matchFull rejects references in
	// which only some columns are NULL.
	lock, matchFull bool
	args            *dml.Args
}

// from returns the FROM item r: the rows with the ctids $2 in the tables $1. The column
// sexton.n has the numbers $3 of the rows.
func (c *check) from() string {
	return fmt.Sprintf(`ROWS FROM (pg_catalog.unnest($1::pg_catalog.oid[]), pg_catalog.unnest($2::pg_catalog.text[]), pg_catalog.unnest($3::pg_catalog.int4[]))
	AS sexton (relation, tid, n)
JOIN %s AS r ON r.tableoid OPERATOR(pg_catalog.=) sexton.relation AND r.ctid OPERATOR(pg_catalog.=) sexton.tid::pg_catalog.tid`, c.source)
}

// columnList returns the referencing columns as an SQL list.
func (c *check) columnList() string { return strings.Join(dml.Qualified("r", c.columns), ", ") }

// needsParent returns the condition for a row that must have a parent.
func (c *check) needsParent() string {
	return fmt.Sprintf("pg_catalog.num_nulls(%s) OPERATOR(pg_catalog.=) 0%s", c.columnList(), c.restrictions)
}

// partlyNull returns the condition for a row in which only some columns of a MATCH FULL
// key are NULL.
func (c *check) partlyNull() string {
	if !c.matchFull || len(c.columns) == 1 {
		return "false"
	}
	return fmt.Sprintf("pg_catalog.num_nulls(%[1]s) OPERATOR(pg_catalog.>) 0 AND pg_catalog.num_nonnulls(%[1]s) OPERATOR(pg_catalog.>) 0", c.columnList())
}

// count returns a statement that counts the rows without a parent, and locks the parents
// that exist.
func (c *check) count() string {
	lock := ""
	if c.lock {
		lock = " FOR KEY SHARE OF other"
	}
	return fmt.Sprintf("SELECT pg_catalog.count(*) FROM %s WHERE %s OR %s AND NOT EXISTS (SELECT FROM %s AS other WHERE %s%s)",
		c.from(), c.partlyNull(), c.needsParent(), c.target, c.on, lock)
}

// parentLinks returns a statement that selects the number of each row that must have a
// parent, and the table and ctid of that parent. If the parent does not exist, the table
// is 0 and the ctid is an empty text.
func (c *check) parentLinks() string {
	return fmt.Sprintf("SELECT sexton.n, coalesce(other.tableoid, 0::pg_catalog.oid), coalesce(other.ctid::pg_catalog.text, '') "+
		"FROM %s LEFT JOIN %s AS other ON %s WHERE %s OR %s", c.from(), c.target, c.on, c.partlyNull(), c.needsParent())
}

// comparing returns a copy of the check that finds parents by other comparisons. compare
// returns the comparison for each column.
func (c check) comparing(compare func(column int, given string) string) check {
	c.args = &dml.Args{Values: []any{nil, nil, nil}}
	terms := make([]string, len(c.columns))
	for i, column := range c.columns {
		terms[i] = compare(i, "r."+pgcatalog.Quote(column))
	}
	c.on = strings.Join(terms, " AND ")
	return c
}

// checks returns the checks for a group. Foreign keys are included only if triggers are
// silenced, because otherwise the server checks them. Of the definitions, only the one
// that changed the rows is checked for changed rows, because the rows met the others
// before the change.
func (w *work) checks(g *restored) (checks []check) {
	if g.table == nil {
		return nil
	}
	for _, key := range g.table.keys {
		if !w.silent {
			break
		}
		c := check{
			reason: "foreign key " + key.Name + " has no parent row in " + key.Target, source: key.Source,
			target:  key.Target,
			columns: key.Columns, targetColumns: key.TargetColumns, lock: key.Lockable, matchFull: key.MatchFull,
		}
		if key.Only {
			c.target = "ONLY " + key.Target // Like the server, the check does not count rows of inheriting tables as parents.
		}
		checks = append(checks, c.comparing(func(column int, given string) string {
			return fmt.Sprintf("other.%s %s %s", pgcatalog.Quote(key.TargetColumns[column]), key.Operators[column], given)
		}))
	}
	_, by := w.engine.reference(w.unit, g.set)
	for parent, reference := range loosefk.References(w.engine.Parents[g.on.Name]) {
		if !reference.Usable() || reference.Remote || reference.Child.OID != g.table.OID || g.changes() &&
			reference != by {
			continue
		}
		c := check{
			reason: "its parent row in " + parent.Recorded + " does not exist", source: g.table.Name,
			target:  parent.SQL(),
			columns: reference.Columns, targetColumns: parent.KeyColumns,
		}.comparing(func(column int, given string) string {
			return reference.Compare[column].Equal(given, "other."+pgcatalog.Quote(parent.KeyColumns[column]))
		})
		if !g.changes() {
			c.restrictions = reference.Restrictions("r", c.args)
		}
		checks = append(checks, c)
	}
	return checks
}

// lacksParents reports whether any of the rows has no parent.
func (w *work) lacksParents(ctx context.Context, checks []check, rows *restoredRows) (bool, error) {
	var all pgx.Batch
	found := false
	for i := range checks {
		all.Queue(checks[i].count(), rows.args(&checks[i])...).QueryRow(func(row pgx.Row) error {
			var count int64
			err := row.Scan(&count)
			found = found || count > 0
			return err
		})
	}
	if all.Len() == 0 {
		return false, nil
	}
	if err := w.tx.SendBatch(ctx, &all).Close(); err != nil {
		return false, fmt.Errorf("find parents: %w", err)
	}
	return found, nil
}

// position is the place of a row in the database: its table and its ctid.
type position struct {
	relation uint32
	tid      string
}

// dependent is a restored row that refers to a parent. reason is the text in the report
// if that parent does not exist.
type dependent struct {
	of     *restored
	row    int32
	reason string
}

// leaveDangling marks rows as not restored if they have no parent, or if they refer,
// directly or indirectly, to a row without a parent. It reports whether it marked any.
func (w *work) leaveDangling(ctx context.Context) (bool, error) {
	found := false
	for _, g := range w.deleted {
		lacking, err := w.lacksParents(ctx, w.checks(g), &g.back)
		if err != nil {
			return false, err
		}
		found = found || lacking
	}
	if !found {
		return false, nil
	}
	where := map[position]dependent{}
	for _, g := range w.deleted {
		for i, row := range g.back.rows {
			where[position{g.back.relations[i], g.back.tids[i]}] = dependent{of: g, row: row}
		}
	}
	type key struct {
		of  *restored
		row int32
	}
	below, dangling := map[key][]dependent{}, []dependent{}
	for _, g := range w.deleted {
		for _, c := range w.checks(g) {
			var row int32
			var at position
			links, _ := w.tx.Query(ctx, c.parentLinks(), g.back.args(&c)...)
			if _, err := pgx.ForEachRow(links, []any{&row, &at.relation, &at.tid}, func() error {
				if parent, ours := where[at]; at.relation == 0 {
					dangling = append(dangling, dependent{g, row, c.reason})
				} else if ours {
					below[key{parent.of, parent.row}] = append(below[key{parent.of, parent.row}],
						dependent{g, row, c.reason})
				}
				return nil
			}); err != nil {
				return false, fmt.Errorf("find parents: %w", err)
			}
		}
	}
	left := map[key]bool{}
	for ; len(dangling) > 0; dangling = dangling[1:] {
		one := dangling[0]
		if at := (key{one.of, one.row}); !left[at] {
			left[at] = true
			one.of.leave(one.reason, one.row)
			dangling = append(dangling, below[at]...)
		}
	}
	return len(left) > 0, nil
}
