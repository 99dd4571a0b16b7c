package loosefk

import (
	"cmp"
	"fmt"
	"strings"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
)

// key returns the columns of the parent that a definition refers to. If they cannot be
// used as a key, it reports an error and returns nil.
func (r *resolver) key(d definitions.Definition, table *pgcatalog.Relation) []string {
	key, ok := d.ParentColumns, true
	if len(key) == 0 {
		if key = r.primaryKey(d, table); key == nil {
			return nil
		}
	}
	for i, column := range key {
		if _, found := table.Columns[column]; !found {
			ok = r.missingColumn(d, element(".parent_column", key, i), d.Parent, table, column)
		}
	}
	columns := strings.Join(key, ", ")
	switch {
	case !ok:
	case len(key) == 1 && !uniqueColumn(table, key[0]):
		r.refuse(d, ".parent_column",
			"name a column with a unique index: if two rows share a key, deleting one would delete the children of both",
			"column %s of parent %s is not unique", columns, d.Parent)
	case len(key) > 1 && !uniqueOnExactly(table, key):
		r.refuse(d, ".parent_column",
			"name all columns of a unique index: if two rows share a key, deleting one would delete the children of both",
			"parent %s has no unique index on exactly %s", d.Parent, columns)
	case deferrable(table, key):
		r.refuse(d, ".parent_column",
			"make it NOT DEFERRABLE: until a transaction ends, two rows may have the same key, and the trigger cannot determine which one was deleted",
			"the constraint on %s of parent %s is deferrable", columns, d.Parent)
	default:
		return key
	}
	return nil
}

// primaryKey returns the key of a definition that names no columns of the parent.
func (r *resolver) primaryKey(d definitions.Definition, table *pgcatalog.Relation) []string {
	key := table.PrimaryKey()
	switch {
	case len(d.Columns) == 1:
		if column := defaultKey(table); column != "" {
			return []string{column}
		}
		r.refuse(d, ".table", "name a unique column with parent_column", "parent %s has no primary key of one column",
			d.Parent)
	case len(key) == 0:
		r.refuse(d, ".table", "name the columns of a unique index with parent_column", "parent %s has no primary key",
			d.Parent)
	case len(key) != len(d.Columns):
		r.refuse(d, ".column", "name one column for each of them, or another unique index with parent_column",
			"the definition names %d columns, but the primary key of parent %s has %d: %s", len(d.Columns), d.Parent, len(key),
			strings.Join(key, ", "))
	default:
		return key
	}
	return nil
}

// checkColumns sets the comparison of each of the child's columns with the parent's key
// column. It returns false if it has reported an error.
func (r *resolver) checkColumns(
	d definitions.Definition, parent *Parent, child *pgcatalog.Relation, operators *pgcatalog.Operators,
	reference *Reference,
) bool {
	ok := true
	for i, name := range d.Columns {
		column := child.Columns[name]
		compare, err := operators.Compare(parent.keys[i], column)
		own, none := operators.Own(column)
		reference.Compare, reference.Own = append(reference.Compare, compare), append(reference.Own, own)
		reference.Types, reference.Bases = append(reference.Types, column.Type), append(reference.Bases, column.Base)
		reference.Moves = reference.Moves || d.OnDelete == definitions.Nullify && column.Partitioning
		if err == nil && reference.noIndexReason == "" && !operators.Servable(column, compare) {
			reference.noIndexReason = fmt.Sprintf("no index on %s.%s can be used: %s.%s has another type or collation",
				d.Child, name, d.Parent, parent.KeyColumns[i])
		}
		ok = r.checkColumn(d, i, parent, child, cmp.Or(err, none)) && ok
	}
	return ok
}

func (r *resolver) checkColumn(d definitions.Definition, i int, parent *Parent, child *pgcatalog.Relation,
	incomparable error,
) bool {
	column, key := d.Columns[i], element(".column", d.Columns, i)
	foreign, found := child.Columns[column]
	switch {
	case !found:
		return r.missingColumn(d, key, d.Child, child, column)
	case incomparable != nil:
		return r.refuse(d, key, "give both columns the same type, or integer types",
			"%s.%s is of type %s, but %s.%s is of type %s: %v",
			d.Child, column, pgcatalog.Short(foreign.Base), d.Parent, parent.KeyColumns[i],
			pgcatalog.Short(parent.KeyTypes[i]), incomparable)
	case d.OnDelete == definitions.Nullify && foreign.NotNull:
		return r.refuse(d, ".on_delete", "drop the constraint, or use async_delete",
			"async_nullify, but %s.%s is NOT NULL", d.Child, column)
	case d.OnDelete == definitions.Nullify && foreign.Generated:
		return r.refuse(d, key, "use async_delete", "%s.%s is a generated column and cannot be set", d.Child, column)
	}
	return true
}

// element returns the path of one item of a key whose value is one name or a list of
// names, such as ".column" or ".column[1]".
func element(key string, names []string, i int) string {
	if len(names) == 1 {
		return key
	}
	return fmt.Sprintf("%s[%d]", key, i)
}
