package dml

import (
	"fmt"
	"slices"
	"strings"

	"sexton/internal/pgcatalog"
)

// Action says what to do with the rows that refer to a row which is to go.
type Action int

const (
	// Forbid does nothing: while there are such rows, the row that they refer to stays.
	Forbid Action = iota
	// Remove deletes them first, with all that hangs below them.
	Remove
	// Nullify sets their columns to NULL.
	Nullify
	// SetDefault sets their columns to the defaults.
	SetDefault
	// Assign sets another column of theirs to a value.
	Assign
	// Move has them refer to another row.
	Move
)

// Ref is a foreign key, or a column that the application treats as one.
type Ref struct {
	// Constraint is the key's name; empty for a mere column.
	Constraint string
	// target is the relation that it refers to. If that is a partition, Only has the leaves below it.
	target uint32
	Only   map[uint32]bool
	// Table has the key, or has the partition that has it. Leaves and From are of the latter: the tables that statements
	// address, and the item of a FROM clause for all of them.
	Table            *Table
	Leaves           []pgcatalog.Table
	From             string
	Columns, Targets []string
	// compare is how each of Columns is compared with that of Targets.
	compare []pgcatalog.Comparison
	Action  Action
	// set are the columns that the action changes. setNull reports that a forbidding key would set them to NULL, which they
	// cannot be.
	set     []string
	setNull bool
	// Where restricts the rows of a mere column further, with the alias child.
	Where string
	// Part orders the keys of a table for the caller.
	Part int
}

// Table is an ordinary table, or a partitioned one with all its partitions.
type Table struct {
	*pgcatalog.Relation

	// Refs are the keys that refer to it, in the order in which their rows are deleted: tables that refer to other tables of
	// the plan come before those.
	Refs []*Ref
}

// RefsOf are the keys that refer to rows in the leaf.
func (t *Table) RefsOf(leaf pgcatalog.Table) []*Ref {
	var refs []*Ref
	for _, f := range t.Refs {
		if f.Only == nil || f.Only[leaf.OID] {
			refs = append(refs, f)
		}
	}
	return refs
}

// Chains reports whether rows of the table can be deleted with others of the table that they refer to.
func (t *Table) Chains() bool {
	return len(t.Leaves) == 1 && slices.ContainsFunc(t.Refs, func(f *Ref) bool { return f.Table == t && f.Action == Remove })
}

// Window returns rows of one of the table's leaves; false where the leaf is none of them.
func (t *Table) Window(leaf uint32, rows Rows) (*Window, bool) {
	known := slices.IndexFunc(t.Leaves, func(l pgcatalog.Table) bool { return l.OID == leaf })
	if known < 0 {
		return nil, false
	}
	return &Window{Table: t, Leaf: t.Leaves[known], Rows: rows}, true
}

// Label names the key for people: table.column, or table(column, column).
func (f *Ref) Label() string {
	if len(f.Columns) == 1 {
		return f.Table.Label() + "." + f.Columns[0]
	}
	return f.Table.Label() + "(" + strings.Join(f.Columns, ", ") + ")"
}

// Result is how a part of the work ended.
type Result int

const (
	// Finished means that nothing is left of it.
	Finished Result = iota
	// Yielded means that the run has used its time or was stopped.
	Yielded
	// Blocked means that the rows that are left cannot be deleted now.
	Blocked
)

// Forbids returns the message that the shown row prevents the deletion of a row of t.
func (f *Ref) Forbids(t *Table, shown string) string {
	return fmt.Sprintf("the row with %s refers to %s, and foreign key %s %s", shown, t.Label(), f.Constraint, f.why())
}

// Blocks returns the message that rows of the key can prevent deletions from t.
func (f *Ref) Blocks(t *Table) string {
	return fmt.Sprintf("%s refers to %s, and foreign key %s %s", f.Label(), t.Label(), f.Constraint, f.why())
}

// why says why the key forbids a deletion.
func (f *Ref) why() string {
	if len(f.set) > 0 && f.setNull {
		return "sets NULL what is NOT NULL"
	}
	return "has no action for it"
}
