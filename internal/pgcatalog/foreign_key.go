package pgcatalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
)

// Action is the effect of a foreign key when the row that it refers to is deleted: pg_constraint.confdeltype.
type Action string

// The actions.
const (
	NoAction   Action = "a"
	Restrict   Action = "r"
	Cascade    Action = "c"
	SetNull    Action = "n"
	SetDefault Action = "d"
)

// ForeignKey is a foreign key of one table to another, or to itself.
type ForeignKey struct {
	Name string
	// Table has the key, Target is the table that it refers to.
	Table, Target uint32
	// Columns are the table's, TargetColumns those of the target beside them.
	Columns, TargetColumns []string
	OnDelete               Action
}

const foreignKeysSQL = `
SELECT key.conname, key.conrelid, key.confrelid, key.confdeltype::pg_catalog.text, names.columns, names.targets
FROM pg_catalog.pg_constraint AS key
CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(source.attname::pg_catalog.text ORDER BY pair.position) AS columns,
        pg_catalog.array_agg(target.attname::pg_catalog.text ORDER BY pair.position) AS targets
    FROM unnest(key.conkey, key.confkey) WITH ORDINALITY AS pair (source, target, position)
    JOIN pg_catalog.pg_attribute AS source ON source.attrelid = key.conrelid AND source.attnum = pair.source
    JOIN pg_catalog.pg_attribute AS target ON target.attrelid = key.confrelid AND target.attnum = pair.target
) AS names
WHERE key.contype = 'f' AND key.confrelid = ANY ($1) AND key.conparentid = 0
ORDER BY key.conrelid::pg_catalog.regclass::pg_catalog.text, key.conkey, key.conname`

// ForeignKeys returns the foreign keys that refer to any of the tables, by the referring table's name and the place of its
// columns. Keys that partitions have inherited are left out, as are keys that stand for the partitions of a target.
func ForeignKeys(ctx context.Context, db dbsqlc.DBTX, targets []uint32) ([]ForeignKey, error) {
	rows, err := db.Query(ctx, foreignKeysSQL, targets)
	if err != nil {
		return nil, fmt.Errorf("read foreign keys: %w", err)
	}
	var keys []ForeignKey
	var key ForeignKey
	_, err = pgx.ForEachRow(rows, []any{&key.Name, &key.Table, &key.Target, &key.OnDelete, &key.Columns, &key.TargetColumns}, func() error {
		found := key
		found.Columns, found.TargetColumns = slices.Clone(key.Columns), slices.Clone(key.TargetColumns)
		keys = append(keys, found)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read foreign keys: %w", err)
	}
	return keys, nil
}
