package dml

import (
	"fmt"
	"strings"
	"sync"

	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// Edge is one column list of a child that refers to keys, with all leaf tables that hold
// the child's rows.
type Edge struct {
	Child pgcatalog.Table
	// Leaves are the tables that statements address: the child itself, or its leaf
	// partitions. A row pointer (ctid) is only valid within one partition.
	Leaves []pgcatalog.Table
	// Columns are the columns that refer to the key, in the order of the key's columns.
	// Compare holds the comparison for each of them.
	Columns []string
	Compare []pgcatalog.Comparison
	Action  Action
	// Conditions restrict the edge to rows that meet all of them. Except excludes rows
	// that meet all of its conditions.
	Conditions, Except []Value
	// Where restricts the edge further. It is SQL in which child is the alias of the row.
	Where string
	// Target is the column that Assign changes, and its new value. For Move it is only
	// the value.
	Target Value
	// Count, if set, is the aggregate that statements return, such as the number of rows.
	// It reads the changed rows from the CTE changed. Extra are further CTEs, which may
	// read changed and the keys ($1). With EmitsEvent, changed has the column key.
	Count string
	Extra []string
	// PrimaryKey lists the child's key columns in order. It is empty if there is no key.
	// EmitsEvent reports that deleted rows are published as an event with their keys and
	// EventColumns.
	PrimaryKey   []string
	EmitsEvent   bool
	EventColumns []string
	// Index reports that all leaves have an index on the columns. Indexed reports it for
	// each leaf by OID. Without an index a statement scans the whole table. CreateIndex
	// holds the statement that creates a leaf's missing index, by OID.
	Index       bool
	Indexed     map[uint32]bool
	CreateIndex map[uint32]string
	// Moves reports that the new value can move a row to another partition. Rows are then
	// written through the partitioned table.
	Moves bool
}

// Value is a column with a value for a comparison or an assignment.
type Value struct {
	Column string
	// Type is the column's declared type. Base is that type without length, precision and
	// domain.
	Type, Base string
	// Array reports that Type is an array.
	Array   bool
	Compare pgcatalog.Comparison
	Value   string
}

// Equal returns the condition that the column has the value. alias is the alias of the
// row.
func (v Value) Equal(alias string, args *Args) string {
	return v.Compare.Equal(alias+"."+pgcatalog.Quote(v.Column), v.parameter(args))
}

// parameter adds the value's text form as a parameter and returns it, cast to the
// column's type.
func (v Value) parameter(args *Args) string {
	return fmt.Sprintf("$%d::pg_catalog.text::%s", args.Add(v.Value), v.Type)
}

// Kept returns an expression for the value as text, in the form that the function
// undo_text returns. Only that form is the same in all sessions: otherwise the form of a
// date or time depends on settings.
func (v Value) Kept(names pgcatalog.Names, args *Args) string {
	if v.Array {
		return names.Render(`"sexton".undo_text(`) + v.parameter(args) + ")"
	}
	// The delimiter of a few array types, such as box[], is a semicolon. Their values
	// contain unquoted commas. The cast to text[] splits such a value, and
	// array_to_string joins the parts again.
	return fmt.Sprintf("pg_catalog.array_to_string(%s(ARRAY[%s])::pg_catalog.text[], ',')",
		names.Render(`"sexton".undo_text`), v.parameter(args))
}

// Args collects the parameters of one statement.
type Args struct{ Values []any }

// Add adds a parameter and returns its number.
func (a *Args) Add(value any) int {
	a.Values = append(a.Values, value)
	return len(a.Values)
}

// Once returns a function that adds the value as a parameter in its first call, and
// returns the parameter's number in every call. A statement that does not use the value
// gets no parameter: Postgres rejects unused ones.
func (a *Args) Once(value any) func() int {
	return sync.OnceValue(func() int { return a.Add(value) })
}

// Updates reports whether the edge changes rows instead of deleting them.
func (e *Edge) Updates() bool { return e.Action != Remove }

// Partitioned reports whether statements address partitions of the child.
func (e *Edge) Partitioned() bool { return len(e.Leaves) != 1 || e.Leaves[0].OID != e.Child.OID }

// FromItem returns the item of a FROM clause for the child with all its partitions. As
// with native foreign keys, rows of tables that inherit from an ordinary table are not
// included.
func (e *Edge) FromItem() string {
	if e.Partitioned() {
		return e.Child.SQL() + " AS child"
	}
	return "ONLY " + e.Child.SQL() + " AS child"
}

// Restrictions returns the conditions on rows of alias that the edge has in addition to
// its columns. Each begins with AND.
func (e *Edge) Restrictions(alias string, args *Args) string {
	var sql strings.Builder
	for _, condition := range e.Conditions {
		sql.WriteString(" AND " + condition.Equal(alias, args))
	}
	if e.Where != "" {
		sql.WriteString(" AND (" + strings.ReplaceAll(e.Where, "child.", alias+".") + ")")
	}
	if len(e.Except) > 0 {
		terms := render.Each(e.Except, func(condition Value) string { return condition.Equal(alias, args) })
		fmt.Fprintf(&sql, " AND (%s) IS NOT TRUE", strings.Join(terms, " AND "))
	}
	if e.Action == Assign {
		// A comparison with NULL counts as different. Otherwise rows with NULL would
		// never be changed.
		fmt.Fprintf(&sql, " AND (%s) IS NOT TRUE", e.Target.Equal(alias, args))
	}
	return sql.String()
}

// Attached returns the condition that the leaf is still attached to the child, which may
// be a partition itself. If the leaf was detached since the run began, its rows are no
// longer rows of the child. The condition begins with AND. It is empty if the child has
// no partitions.
func (e *Edge) Attached(leaf pgcatalog.Table, args *Args) string {
	if !e.Partitioned() {
		return ""
	}
	return fmt.Sprintf(" AND EXISTS (SELECT FROM pg_catalog.pg_partition_ancestors($%d::pg_catalog.oid) AS above (relid)"+
		" WHERE above.relid::pg_catalog.oid OPERATOR(pg_catalog.=) $%d::pg_catalog.oid)", args.Add(leaf.OID),
		args.Add(e.Child.OID))
}

// Lock returns the clause that locks selected rows. An UPDATE that does not change keys
// takes the weaker lock, which lets other sessions insert rows that refer to the child.
func (e *Edge) Lock() string {
	if e.Updates() {
		return " FOR NO KEY UPDATE"
	}
	return " FOR UPDATE"
}

// Belongs returns the condition that the column of a row of alias has a key, for an edge
// with one column. key is the comparison, for example "= $1".
func (e *Edge) Belongs(alias, key string, args *Args) string {
	return fmt.Sprintf("%s.%s %s", alias, pgcatalog.Quote(e.Columns[0]), key) + e.Restrictions(alias, args)
}
