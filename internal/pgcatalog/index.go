package pgcatalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
)

// Index is one index of a table.
type Index struct {
	// Columns are the key columns in order; "" is an expression.
	Columns         []string
	Primary, Unique bool
	// Valid is false for one that is being built or could not be built.
	Valid bool
	// BTree tells it from those that keep no order.
	BTree bool
	// Predicate is that of a partial index.
	Predicate string
}

// Complete tells whether the index has all rows of its table.
func (i Index) Complete() bool { return i.Valid && i.Predicate == "" }

// Order returns the places of columns in the order of the index where it begins with all of them, and else nil.
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

const indexesSQL = `
SELECT index.indrelid, index.indisprimary, index.indisunique, index.indisvalid, method.amname = 'btree',
    coalesce(pg_get_expr(index.indpred, index.indrelid), ''),
    ARRAY(
        SELECT coalesce(attribute.attname, '')::text
        FROM unnest(index.indkey::smallint[]) WITH ORDINALITY AS key (number, position)
        LEFT JOIN pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = key.number
        WHERE key.position <= index.indnkeyatts
        ORDER BY key.position
    )
FROM pg_index AS index
JOIN pg_class AS class ON class.oid = index.indexrelid
JOIN pg_am AS method ON method.oid = class.relam
WHERE index.indrelid = ANY ($1)
ORDER BY index.indexrelid`

// readIndexes reads those of relations and of their leaves.
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
	rows, err := db.Query(ctx, indexesSQL, tables)
	if err != nil {
		return fmt.Errorf("read indexes: %w", err)
	}
	var table uint32
	var i Index
	_, err = pgx.ForEachRow(rows, []any{&table, &i.Primary, &i.Unique, &i.Valid, &i.BTree, &i.Predicate, &i.Columns}, func() error {
		found := i
		found.Columns = slices.Clone(i.Columns)
		for _, r := range owners[table] {
			r.Indexes[table] = append(r.Indexes[table], found)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read indexes: %w", err)
	}
	return nil
}
