package loosefk

import (
	"slices"

	"sexton/internal/pgcatalog"
)

// ordered returns the indexes of one of a relation's tables that keep an order and can be used.
func ordered(r *pgcatalog.Relation, table uint32) []pgcatalog.Index {
	var found []pgcatalog.Index
	for _, i := range r.Indexes[table] {
		if i.BTree && i.Valid {
			found = append(found, i)
		}
	}
	return found
}

// serves tells whether an index of the table leads straight to the rows with given values of columns. One that is unique
// on some of them does so as well: the others only filter one row.
func serves(r *pgcatalog.Relation, table uint32, columns []string) bool {
	return slices.ContainsFunc(ordered(r, table), func(i pgcatalog.Index) bool {
		if i.Predicate != "" && !excludesNullsOf(i.Predicate, columns) {
			return false
		}
		return i.Order(columns) != nil ||
			i.Unique && !slices.ContainsFunc(i.Columns, func(column string) bool { return !slices.Contains(columns, column) })
	})
}

// identified tells whether exactly these columns, in any order, make a unique index of the table.
func identified(r *pgcatalog.Relation, columns []string) bool {
	return slices.ContainsFunc(ordered(r, r.OID), func(i pgcatalog.Index) bool {
		return i.Unique && i.Complete() && len(i.Columns) == len(columns) && i.Order(columns) != nil
	})
}

// bindIndexes tells the reference which of its tables have an index on its columns.
func (r *Reference) bindIndexes(child *pgcatalog.Relation) {
	columns := r.Definition.Columns
	if len(columns) == 1 {
		r.Index = child.Leads(child.OID, columns[0])
		return
	}
	r.Index, r.stepped, r.indexed = true, true, map[uint32]bool{}
	for _, leaf := range child.Leaves {
		r.indexed[leaf.OID] = serves(child, leaf.OID, columns)
		r.Index = r.Index && r.indexed[leaf.OID]
	}
	tables := child.Leaves
	if len(tables) == 0 {
		tables = []Table{child.Table}
		r.Index = serves(child, child.OID, columns)
	}
	for _, table := range tables {
		order, complete := walkOrder(child, table.OID, columns, r.order)
		if r.order == nil {
			r.order = order
		}
		r.stepped = r.stepped && complete
	}
}

// walkOrder is the order in which an index that has all rows of the table goes through columns: the wanted one, if
// that is not nil and there is such an index. complete is false where there is none.
func walkOrder(r *pgcatalog.Relation, table uint32, columns []string, wanted []int) (order []int, complete bool) {
	for _, i := range ordered(r, table) {
		found := i.Order(columns)
		if found != nil && i.Complete() && (wanted == nil || slices.Equal(found, wanted)) {
			return found, true
		}
	}
	if wanted == nil {
		wanted = make([]int, len(columns))
		for i := range wanted {
			wanted[i] = i
		}
	}
	return wanted, false
}
