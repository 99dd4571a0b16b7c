package pgcatalog

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

// Index is one index of a table.
type Index struct {
	// Name is the unquoted name. Printed is the qualified name, quoted only if necessary.
	Name, Printed string
	// Method is the access method, such as btree. Only a btree index is ordered.
	Method string
	// Columns holds the key columns in order. An expression is "".
	Columns []string
	// Families, Inputs and Collations have the operator family, the input type and the
	// collation of each column in Columns.
	Families, Inputs []string
	Collations       []Collation
	Primary, Unique  bool
	// Deferrable reports that two rows may have the same key until a transaction ends.
	Deferrable bool
	// Valid is false for an index that is being built or could not be built.
	Valid bool
	// Predicate is the predicate of a partial index if it consists of IS NOT NULL
	// conditions on columns. Any other predicate is "?".
	Predicate string
}

// Complete reports whether the index is valid and has all rows of its table.
func (i Index) Complete() bool { return i.Valid && i.Predicate == "" }

// Order returns, for each of the first columns of the index, its position in the argument
// columns. It returns nil unless the index begins with all of columns.
func (i Index) Order(columns []string) []int {
	if len(i.Columns) < len(columns) {
		return nil
	}
	order := make([]int, len(columns))
	for at := range order {
		if order[at] = slices.Index(columns, i.Columns[at]); order[at] < 0 {
			return nil
		}
	}
	return order
}

// readIndexes reads the indexes of relations and of their leaves.
func readIndexes(ctx context.Context, db dbsqlc.DBTX, relations map[uint32]*Relation) error {
	var tables []uint32
	owners := map[uint32][]*Relation{}
	own := func(table uint32, r *Relation) {
		tables = append(tables, table)
		owners[table] = append(owners[table], r)
	}
	for oid, r := range relations {
		own(oid, r)
		for _, leaf := range r.Leaves {
			if leaf.OID != oid {
				own(leaf.OID, r)
			}
		}
	}
	rows, _ := db.Query(ctx, text("indexes"), tables)
	var table uint32
	var i Index
	var collations []string
	var loose []bool
	target := []any{
		&table, &i.Primary, &i.Unique, &i.Deferrable, &i.Valid, &i.Predicate, &i.Name, &i.Printed, &i.Method,
		&i.Columns, &i.Families, &i.Inputs, &collations, &loose,
	}
	_, err := pgx.ForEachRow(rows, target, func() error {
		found := i
		found.Columns, found.Families, found.Inputs = slices.Clone(i.Columns), slices.Clone(i.Families),
			slices.Clone(i.Inputs)
		found.Collations = make([]Collation, len(collations))
		for at, name := range collations {
			found.Collations[at] = Collation{Name: name, Loose: loose[at]}
		}
		for _, r := range owners[table] {
			r.Indexes[table] = append(r.Indexes[table], found)
		}
		return nil
	})
	return problem.Doing(err, "read indexes")
}

// LeadsTo reports whether an index finds exactly the rows with given values in columns.
// The index must begin with columns, in any order. The columns in given may be before or
// between them, because the same statements compare them with one value. A unique index
// on some of the columns is sufficient, too, because the other columns only filter one
// row.
func LeadsTo(index, columns, given []string, unique bool) bool {
	left := len(columns)
	for _, column := range index {
		switch {
		case slices.Contains(columns, column):
			left--
		case !slices.Contains(given, column):
			return false
		}
		if left == 0 {
			return true
		}
	}
	return unique && len(index) > 0
}

// ExcludesNullsOf reports whether an index's predicate consists of IS NOT NULL conditions
// on some of columns.
func ExcludesNullsOf(predicate string, columns []string) bool {
	if strings.HasPrefix(predicate, "((") {
		predicate = strings.TrimSuffix(strings.TrimPrefix(predicate, "("), ")")
	}
	for term := range strings.SplitSeq(predicate, " AND ") {
		if !slices.ContainsFunc(columns, func(column string) bool {
			return term == "("+column+" IS NOT NULL)" || term == "("+Quote(column)+" IS NOT NULL)"
		}) {
			return false
		}
	}
	return true
}
