package dml

import (
	"fmt"
	"slices"
	"strings"

	"sexton/internal/pgcatalog"
)

// Action is the change that a deletion makes to the rows that refer to the deleted row.
type Action int

const (
	// Forbid changes no row. The row is not deleted while rows refer to it.
	Forbid Action = iota
	// Remove deletes the referring rows first, with all rows below them.
	Remove
	// Nullify sets the referring columns to NULL.
	Nullify
	// SetDefault sets the referring columns to their defaults.
	SetDefault
	// Assign sets another column of the referring rows to a value.
	Assign
	// Move makes the referring rows refer to another row.
	Move
)

// Ref is a foreign key, or a loose reference, which is treated like a foreign key.
type Ref struct {
	// Constraint is the name of the foreign key. It is empty for a loose reference.
	Constraint string
	// target is the relation that the key refers to. If it is a partition, Only holds the
	// OIDs of its leaves.
	target uint32
	Only   map[uint32]bool
	// Table is the referencing table, or its top partitioned table if only a partition
	// has the key. Leaves are the tables with the key's rows that statements address, and
	// From is the item of a FROM clause for all of them.
	Table            *Table
	Leaves           []pgcatalog.Table
	From             string
	Columns, Targets []string
	// compare holds the comparison of each column with its target.
	compare []pgcatalog.Comparison
	Action  Action
	// set holds the columns that the action changes. setNull reports that the action is
	// Forbid only because it would set columns to NULL that are NOT NULL.
	set     []string
	setNull bool
	// Where restricts the rows of a loose reference. It is SQL in which child is the
	// alias of the row.
	Where string
	// Part orders the keys of a table. The caller chooses its meaning.
	Part int
}

// Table is an ordinary table, or a partitioned one with all its partitions.
type Table struct {
	*pgcatalog.Relation

	// Refs are the keys that refer to the table, in the order in which their rows are
	// deleted: a table that refers to other tables of the plan comes before these.
	Refs []*Ref
}

// RefsOf returns the keys that refer to rows in the leaf.
func (t *Table) RefsOf(leaf pgcatalog.Table) []*Ref {
	var refs []*Ref
	for _, f := range t.Refs {
		if f.Only == nil || f.Only[leaf.OID] {
			refs = append(refs, f)
		}
	}
	return refs
}

// Chains reports whether rows of the table can be deleted in one statement with rows of
// the same table that they refer to.
func (t *Table) Chains() bool {
	return len(t.Leaves) == 1 && slices.ContainsFunc(t.Refs,
		func(f *Ref) bool { return f.Table == t && f.Action == Remove })
}

// Window returns a window of rows in one of the table's leaves. It returns false if the
// table has no such leaf.
func (t *Table) Window(leaf uint32, rows Rows) (*Window, bool) {
	known := slices.IndexFunc(t.Leaves, func(l pgcatalog.Table) bool { return l.OID == leaf })
	if known < 0 {
		return nil, false
	}
	return &Window{Table: t, Leaf: t.Leaves[known], Rows: rows}, true
}

// Label returns the key's name for users: table.column, or table(column, column).
func (f *Ref) Label() string {
	if len(f.Columns) == 1 {
		return f.Table.Label() + "." + f.Columns[0]
	}
	return f.Table.Label() + "(" + strings.Join(f.Columns, ", ") + ")"
}

// Result is the outcome of one step of a deletion.
type Result int

const (
	// Finished means that no row is left.
	Finished Result = iota
	// Yielded means that the run has used its time or was stopped.
	Yielded
	// Blocked means that rows are left that cannot be deleted now.
	Blocked
)

// Forbids returns the message that one row prevents the deletion of a row of t. shown is
// the text that describes the row.
func (f *Ref) Forbids(t *Table, shown string) string {
	return fmt.Sprintf("the row with %s refers to %s, and foreign key %s %s", shown, t.Label(), f.Constraint, f.why())
}

// Blocks returns the message that rows of the key can prevent deletions from t.
func (f *Ref) Blocks(t *Table) string {
	return fmt.Sprintf("%s refers to %s, and foreign key %s %s", f.Label(), t.Label(), f.Constraint, f.why())
}

// why returns the reason why the key forbids a deletion.
func (f *Ref) why() string {
	if len(f.set) > 0 && f.setNull {
		return "sets NOT NULL columns to NULL"
	}
	return "has no ON DELETE action"
}
