package drain

import (
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
	// target is the relation that it refers to; where that is a partition, Only holds the leaves below it.
	target uint32
	Only   map[uint32]bool
	// Table has the key, or has the partition that has it; leaves and From are of the latter: what statements address,
	// and the item of a FROM clause that stands for all of them.
	Table            *Table
	leaves           []pgcatalog.Table
	From             string
	Columns, Targets []string
	// compare is how each of Columns is compared with that of Targets.
	compare []pgcatalog.Comparison
	Action  Action
	// chain reports that it leads from ordinary rows of a table to others of the same one, which may go on for thousands of rows.
	chain bool
	// set are the columns that the action changes. setNull reports that a forbidding key would set them to NULL, which they
	// cannot be.
	set     []string
	setNull bool
	// Where restricts the rows of a mere column further, with the alias child.
	Where string
	// Part orders the keys of a table for the caller.
	Part int
	// size is that of a statement that changes rows of the key in place, or that finds and deletes them.
	size Size
}

// Table is an ordinary table, or a partitioned one with all its partitions.
type Table struct {
	*pgcatalog.Relation

	// Told reports that the end of each row is an event of the caller's. Apart reports that a row in hand must not go along with rows
	// below it, since it goes in a transaction of its own.
	Told, Apart bool
	// Refs are the keys that refer to it, in the order in which they are worked off: what refers to other tables of
	// the plan comes before them.
	Refs []*Ref
	// size is that of a statement that deletes rows, window that of the rows whose trees are taken down together.
	size   Size
	window float64
	// below is how many rows below one of its rows went with it lately.
	below float64
	// rounds is how often in a row none of its rows went although nothing had been left below them.
	rounds int
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
