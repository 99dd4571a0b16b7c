package loosefk

import "slices"

// tableIndex is a valid B-tree.
type tableIndex struct {
	// columns are the key columns in order; "" is an expression.
	columns   []string
	unique    bool
	predicate string
}

// order returns the places of columns in the order of the index where it begins with all of them, and else nil.
func (i tableIndex) order(columns []string) []int {
	if len(i.columns) < len(columns) {
		return nil
	}
	order := make([]int, len(columns))
	for at := range order {
		if order[at] = slices.Index(columns, i.columns[at]); order[at] < 0 {
			return nil
		}
	}
	return order
}

// serves tells whether the index leads straight to the rows with given values of columns. One that is unique on
// some of them does so as well: the others only filter one row.
func (i tableIndex) serves(columns []string) bool {
	if i.predicate != "" && !excludesNullsOf(i.predicate, columns) {
		return false
	}
	return i.order(columns) != nil ||
		i.unique && !slices.ContainsFunc(i.columns, func(column string) bool { return !slices.Contains(columns, column) })
}

// identified tells whether exactly these columns, in any order, make a unique index of the table.
func (c *catalog) identified(table *relation, columns []string) bool {
	return slices.ContainsFunc(c.indexes[table.OID], func(i tableIndex) bool {
		return i.unique && i.predicate == "" && len(i.columns) == len(columns) && i.order(columns) != nil
	})
}

// bindIndexes tells the reference which of its tables have an index on its columns.
func (c *catalog) bindIndexes(r *Reference, child *relation) {
	columns := r.Definition.Columns
	if len(columns) == 1 {
		r.Index = child.Leading[columns[0]]
		return
	}
	r.Index, r.stepped, r.indexed = true, true, map[uint32]bool{}
	for _, leaf := range child.Leaves {
		serves := slices.ContainsFunc(c.indexes[leaf.OID], func(i tableIndex) bool { return i.serves(columns) })
		r.indexed[leaf.OID] = serves
		r.Index = r.Index && serves
	}
	tables := child.Leaves
	if len(tables) == 0 {
		tables = []Table{child.Table}
		r.Index = slices.ContainsFunc(c.indexes[child.OID], func(i tableIndex) bool { return i.serves(columns) })
	}
	for _, table := range tables {
		order, complete := c.walkOrder(table, columns, r.order)
		if r.order == nil {
			r.order = order
		}
		r.stepped = r.stepped && complete
	}
}

// walkOrder is the order in which an index that has all rows of the table goes through columns: the wanted one, if
// that is not nil and there is such an index. complete is false where there is none.
func (c *catalog) walkOrder(table Table, columns []string, wanted []int) (order []int, complete bool) {
	for _, i := range c.indexes[table.OID] {
		found := i.order(columns)
		if found != nil && i.predicate == "" && (wanted == nil || slices.Equal(found, wanted)) {
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
