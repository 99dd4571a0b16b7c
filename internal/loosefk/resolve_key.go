package loosefk

import (
	"cmp"
	"fmt"
	"strings"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// key returns the columns of the parent that a definition refers to, or reports why there are none.
func (r *resolver) key(d definitions.Definition, table *pgcatalog.Relation) ([]string, bool) {
	key, ok := d.ParentColumns, true
	if len(key) == 0 {
		if key, ok = r.primaryKey(d, table); !ok {
			return nil, false
		}
	}
	for i, column := range key {
		if _, found := table.Columns[column]; !found {
			r.missingColumn(d, element(".parent_column", key, i), d.Parent, table, column)
			ok = false
		}
	}
	switch {
	case !ok:
		return nil, false
	case len(key) == 1 && !identifies(table, key[0]):
		r.report(d, problem.Error, ".parent_column",
			fmt.Sprintf("column %s of parent %s is not unique", key[0], d.Parent),
			"name a column with a unique index: a key that two rows share would lose the children of both")
		return nil, false
	case len(key) > 1 && !identified(table, key):
		r.report(d, problem.Error, ".parent_column",
			fmt.Sprintf("parent %s has no unique index on exactly %s", d.Parent, strings.Join(key, ", ")),
			"name all columns of one: a key that two rows share would lose the children of both")
		return nil, false
	case deferrable(table, key):
		r.report(d, problem.Error, ".parent_column",
			fmt.Sprintf("the constraint on %s of parent %s is deferrable", strings.Join(key, ", "), d.Parent),
			"make it NOT DEFERRABLE: until a transaction ends two rows may share the key, and a trigger cannot tell which of them is gone")
		return nil, false
	}
	return key, true
}

// primaryKey is the key that a definition means which names no columns of the parent.
func (r *resolver) primaryKey(d definitions.Definition, table *pgcatalog.Relation) ([]string, bool) {
	if len(d.Columns) == 1 {
		if column := defaultKey(table); column != "" {
			return []string{column}, true
		}
		r.report(d, problem.Error, ".table", fmt.Sprintf("parent %s has no primary key of one column", d.Parent), "name a unique column with parent_column")
		return nil, false
	}
	key := table.PrimaryKey()
	switch {
	case len(key) == 0:
		r.report(d, problem.Error, ".table", fmt.Sprintf("parent %s has no primary key", d.Parent), "name the columns of a unique index with parent_column")
		return nil, false
	case len(key) != len(d.Columns):
		r.report(d, problem.Error, ".column",
			fmt.Sprintf("names %d columns, but the primary key of parent %s has %d: %s",
				len(d.Columns), d.Parent, len(key), strings.Join(key, ", ")),
			"name one for each of them, or the columns of another unique index with parent_column")
		return nil, false
	}
	return key, true
}

// checkColumns looks how the child's columns compare with those of the key, one by one.
func (r *resolver) checkColumns(
	d definitions.Definition, parent *Parent, child *pgcatalog.Relation, operators *pgcatalog.Operators, reference *Reference,
) bool {
	ok := true
	for i, name := range d.Columns {
		column := child.Columns[name]
		compare, err := operators.Compare(parent.keys[i], column)
		own, none := operators.Own(column)
		reference.Compare, reference.Own = append(reference.Compare, compare), append(reference.Own, own)
		reference.Types, reference.Bases = append(reference.Types, column.Type), append(reference.Bases, column.Base)
		reference.Moves = reference.Moves || d.OnDelete == definitions.Nullify && column.Partitioning
		if err == nil && reference.unserved == "" && !operators.Servable(column, compare) {
			reference.unserved = fmt.Sprintf("no index on %s.%s can serve: it is compared as the key of %s, %s.%s, is, by another type or collation",
				d.Child, name, d.Parent, d.Parent, parent.KeyColumns[i])
		}
		ok = r.checkColumn(d, i, parent, child, cmp.Or(err, none)) && ok
	}
	return ok
}

func (r *resolver) checkColumn(d definitions.Definition, i int, parent *Parent, child *pgcatalog.Relation, incomparable error) bool {
	column, key := d.Columns[i], element(".column", d.Columns, i)
	foreign, found := child.Columns[column]
	switch {
	case !found:
		r.missingColumn(d, key, d.Child, child, column)
		return false
	case incomparable != nil:
		r.report(d, problem.Error, key,
			fmt.Sprintf("%s.%s is of type %s, but %s.%s is of type %s: %v", d.Child, column, pgcatalog.Short(foreign.Base),
				d.Parent, parent.KeyColumns[i], pgcatalog.Short(parent.KeyTypes[i]), incomparable),
			"the two columns need one type, or integers of any width")
		return false
	case d.OnDelete == definitions.Nullify && foreign.NotNull:
		r.report(d, problem.Error, ".on_delete",
			fmt.Sprintf("async_nullify, but %s.%s is NOT NULL", d.Child, column), "drop the constraint, or use async_delete")
		return false
	case d.OnDelete == definitions.Nullify && foreign.Generated:
		r.report(d, problem.Error, key, fmt.Sprintf("%s.%s is a generated column and cannot be set", d.Child, column), "use async_delete")
		return false
	}
	return true
}

// element is the path of one item of a key that takes one name or a list of names.
func element(key string, names []string, i int) string {
	if len(names) == 1 {
		return key
	}
	return fmt.Sprintf("%s[%d]", key, i)
}
