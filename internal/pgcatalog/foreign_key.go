package pgcatalog

import (
	"context"
	"fmt"

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
	OnDelete      Action
	// Columns are the table's, TargetColumns those of the target beside them, Set the ones that ON DELETE SET changes.
	Columns, TargetColumns, Set []string
}

// ON DELETE SET may name columns since Postgres 15; before there is no such column in the catalogue.
const foreignKeysSQL = `
SELECT key.conname, key.conrelid, key.confrelid, key.confdeltype::pg_catalog.text, names.columns, names.targets,
    coalesce((
        SELECT pg_catalog.array_agg(attribute.attname::pg_catalog.text ORDER BY attribute.attnum)
        FROM pg_catalog.jsonb_array_elements_text(
            nullif(pg_catalog.to_jsonb(key) OPERATOR(pg_catalog.->) 'confdelsetcols', 'null'::pg_catalog.jsonb)) AS listed (number)
        JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = listed.number::smallint
    ), names.columns)
FROM pg_catalog.pg_constraint AS key
CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(source.attname::pg_catalog.text ORDER BY pair.position) AS columns,
        pg_catalog.array_agg(target.attname::pg_catalog.text ORDER BY pair.position) AS targets
    FROM unnest(key.conkey, key.confkey) WITH ORDINALITY AS pair (source, target, position)
    JOIN pg_catalog.pg_attribute AS source ON source.attrelid = key.conrelid AND source.attnum = pair.source
    JOIN pg_catalog.pg_attribute AS target ON target.attrelid = key.confrelid AND target.attnum = pair.target
) AS names
WHERE key.contype = 'f' AND key.conparentid = 0 AND ($1::pg_catalog.oid[] IS NULL OR key.confrelid = ANY ($1))
ORDER BY key.conrelid::pg_catalog.regclass::pg_catalog.text, key.conkey, key.conname`

// ForeignKeys returns the foreign keys that refer to any of the tables, by the referring table's name and the place of its
// columns. Keys that partitions have inherited are left out, as are keys that stand for the partitions of a target.
func ForeignKeys(ctx context.Context, db dbsqlc.DBTX, targets []uint32) ([]ForeignKey, error) {
	return foreignKeys(ctx, db, append([]uint32{}, targets...))
}

// AllForeignKeys are those of the whole database.
func AllForeignKeys(ctx context.Context, db dbsqlc.DBTX) ([]ForeignKey, error) {
	return foreignKeys(ctx, db, nil)
}

func foreignKeys(ctx context.Context, db dbsqlc.DBTX, targets []uint32) ([]ForeignKey, error) {
	rows, err := db.Query(ctx, foreignKeysSQL, targets)
	if err != nil {
		return nil, fmt.Errorf("read foreign keys: %w", err)
	}
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (key ForeignKey, err error) {
		return key, row.Scan(&key.Name, &key.Table, &key.Target, &key.OnDelete, &key.Columns, &key.TargetColumns, &key.Set)
	})
	if err != nil {
		return nil, fmt.Errorf("read foreign keys: %w", err)
	}
	return keys, nil
}
