package dml

import (
	"fmt"
	"strings"
	"sync"

	"sexton/internal/each"
	"sexton/internal/pgcatalog"
)

// Edge is one column list that refers to keys, on all leaf tables that hold its rows.
type Edge struct {
	Child pgcatalog.Table
	// Leaves are the tables that statements address: the child itself, or the leaf partitions below it. Row pointers
	// (ctid) mean nothing across partitions.
	Leaves []pgcatalog.Table
	// Columns refer to the key's; Compare is how each of them is compared with it.
	Columns []string
	Compare []pgcatalog.Comparison
	Action  Action
	// Conditions restrict the edge to rows that meet all of them, Except to rows that do not.
	Conditions, Except []Value
	// Where restricts the edge further, with the alias child.
	Where string
	// Target is the column that Assign changes, and its value. Of Move it is only the value.
	Target Value
	// Count, if set, is the aggregate over the CTE changed that statements return, such as
	// the number of rows. Extra are further CTEs, which may read changed and the keys ($1).
	// With EmitsEvent, changed has the column key.
	Count string
	Extra []string
	// PrimaryKey lists the child's key columns in order. It is empty if there is no key.
	// EmitsEvent reports that deleted rows are published as an event with their keys and
	// EventColumns.
	PrimaryKey   []string
	EmitsEvent   bool
	EventColumns []string
	// Indexed are the leaves with an index on the columns. Index is false if a leaf has
	// none: a statement then scans the whole table.
	// CreateIndex are the statements that make these indexes.
	Index       bool
	Indexed     map[uint32]bool
	CreateIndex map[uint32]string
	// Moves reports that the value which is written decides the partition, so that rows are written through the partitioned table.
	Moves bool
}

// Value is a value of a column: one that it is compared with, or one that it becomes.
type Value struct {
	Column string
	// Type is the column's declared type, Base the same without length, precision and domain.
	Type, Base string
	// Array reports that the type is one of arrays.
	Array   bool
	Compare pgcatalog.Comparison
	Value   string
}

// Equal is true for rows of alias whose column has the value.
func (v Value) Equal(alias string, args *Args) string {
	return v.Compare.Equal(alias+"."+pgcatalog.Quote(v.Column), v.parameter(args))
}

// parameter is the value, in its text form, cast to the column's type.
func (v Value) parameter(args *Args) string {
	return fmt.Sprintf("$%d::pg_catalog.text::%s", args.Add(v.Value), v.Type)
}

// Kept is the text form that the function undo_text gives to the value as the session reads it. The session's settings, which decide what a date or a time
// is, are not those of another session.
func (v Value) Kept(names pgcatalog.Names, args *Args) string {
	if v.Array {
		return names.Render(`"sexton".undo_text(`) + v.parameter(args) + ")"
	}
	// Arrays of a few types have another delimiter, so that commas of theirs have no quotes.
	return fmt.Sprintf("pg_catalog.array_to_string(%s(ARRAY[%s])::pg_catalog.text[], ',')", names.Render(`"sexton".undo_text`), v.parameter(args))
}

// Args numbers the parameters of one statement.
type Args struct{ Values []any }

// Add returns the number of a new parameter.
func (a *Args) Add(value any) int {
	a.Values = append(a.Values, value)
	return len(a.Values)
}

// Once returns a function for the number of a parameter that is added when it is first asked for: Postgres refuses parameters that no term mentions.
func (a *Args) Once(value any) func() int {
	return sync.OnceValue(func() int { return a.Add(value) })
}

// Updates reports whether the edge changes rows instead of deleting them.
func (e *Edge) Updates() bool { return e.Action != Remove }

// Partitioned reports whether statements address partitions.
func (e *Edge) Partitioned() bool { return len(e.Leaves) != 1 || e.Leaves[0].OID != e.Child.OID }

// Whole is the child with all its partitions in a FROM clause. As with real foreign keys, tables that inherit from
// a plain one are not its rows.
func (e *Edge) Whole() string {
	if e.Partitioned() {
		return e.Child.SQL() + " AS child"
	}
	return "ONLY " + e.Child.SQL() + " AS child"
}

// Restrictions are the terms beyond the columns that a row has to meet, each beginning with AND.
func (e *Edge) Restrictions(alias string, args *Args) string {
	var sql strings.Builder
	for _, condition := range e.Conditions {
		sql.WriteString(" AND " + condition.Equal(alias, args))
	}
	if e.Where != "" {
		sql.WriteString(" AND (" + strings.ReplaceAll(e.Where, "child.", alias+".") + ")")
	}
	if len(e.Except) > 0 {
		terms := each.Of(e.Except, func(condition Value) string { return condition.Equal(alias, args) })
		fmt.Fprintf(&sql, " AND (%s) IS NOT TRUE", strings.Join(terms, " AND "))
	}
	if e.Action == Assign {
		// NULL counts as different, or such rows would keep their old state for ever.
		fmt.Fprintf(&sql, " AND (%s) IS NOT TRUE", e.Target.Equal(alias, args))
	}
	return sql.String()
}

// Attached keeps a statement from a partition that is detached while the run goes on: it is no part of the
// child any more. The child may be a partition itself.
func (e *Edge) Attached(leaf pgcatalog.Table, args *Args) string {
	if !e.Partitioned() {
		return ""
	}
	return fmt.Sprintf(" AND EXISTS (SELECT FROM pg_catalog.pg_partition_ancestors($%d::pg_catalog.oid) AS above (relid)"+
		" WHERE above.relid::pg_catalog.oid OPERATOR(pg_catalog.=) $%d::pg_catalog.oid)", args.Add(leaf.OID), args.Add(e.Child.OID))
}

// Lock is the clause that locks picked rows. An update that leaves keys alone takes the weaker lock, beside
// which others may still insert rows that refer to the child.
func (e *Edge) Lock() string {
	if e.Updates() {
		return " FOR NO KEY UPDATE"
	}
	return " FOR UPDATE"
}

// Belongs is the condition for rows of alias whose one column compares so, as "= $1", with a key.
func (e *Edge) Belongs(alias, key string, args *Args) string {
	return fmt.Sprintf("%s.%s %s", alias, pgcatalog.Quote(e.Columns[0]), key) + e.Restrictions(alias, args)
}
