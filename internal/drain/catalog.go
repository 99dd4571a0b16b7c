package drain

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// key is a foreign key as pg_constraint has it.
type key struct {
	name             string
	table, target    uint32
	action           pgcatalog.Action
	columns, targets []string
	// set are the columns that ON DELETE SET changes.
	set []string
}

// All foreign keys of the database, except keys that partitions have inherited and keys that stand for the partitions of a
// target. ON DELETE SET may name columns since Postgres 15; before there is no such column in the catalogue.
const keysSQL = `
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
WHERE key.contype = 'f' AND key.conparentid = 0
ORDER BY key.conrelid::pg_catalog.regclass::pg_catalog.text, key.conkey, key.conname`

// rootsSQL finds the partitioned table on top of each relation; for most that is the relation itself.
const rootsSQL = `
SELECT class.oid, CASE WHEN class.relispartition THEN coalesce(pg_catalog.pg_partition_root(class.oid)::pg_catalog.oid, class.oid) ELSE class.oid END
FROM pg_catalog.pg_class AS class
WHERE class.oid = ANY ($1)`

// Catalog is a state of the catalogue: all foreign keys of the database, and the relations that they are about. Its tables are made as they
// are asked for.
type Catalog struct {
	// Relations are by OID.
	Relations map[uint32]*pgcatalog.Relation
	Operators *pgcatalog.Operators
	// Report, if set, learns of columns that cannot be compared.
	Report func(fix, format string, args ...any)

	keys   []key
	roots  map[uint32]uint32
	tables map[uint32]*Table
}

// Read reads all keys, and the relations that they are about or that are among oids.
func Read(ctx context.Context, tx pgx.Tx, oids []uint32) (*Catalog, error) {
	c := &Catalog{tables: map[uint32]*Table{}}
	if err := c.readKeys(ctx, tx); err != nil {
		return nil, err
	}
	oids = slices.Clone(oids)
	for _, k := range c.keys {
		oids = append(oids, k.table, k.target)
	}
	if err := c.readRoots(ctx, tx, oids); err != nil {
		return nil, err
	}
	for _, root := range c.roots {
		oids = append(oids, root)
	}
	slices.Sort(oids)
	var err error
	if c.Relations, err = pgcatalog.Read(ctx, tx, slices.Compact(oids)); err != nil {
		return nil, err
	}
	if c.Operators, err = pgcatalog.ReadOperators(ctx, tx); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Catalog) readKeys(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, keysSQL)
	if err != nil {
		return fmt.Errorf("read foreign keys: %w", err)
	}
	c.keys, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (k key, err error) {
		return k, row.Scan(&k.name, &k.table, &k.target, (*string)(&k.action), &k.columns, &k.targets, &k.set)
	})
	if err != nil {
		return fmt.Errorf("read foreign keys: %w", err)
	}
	return nil
}

func (c *Catalog) readRoots(ctx context.Context, tx pgx.Tx, oids []uint32) error {
	rows, err := tx.Query(ctx, rootsSQL, oids)
	if err != nil {
		return fmt.Errorf("find partitioned tables: %w", err)
	}
	c.roots = map[uint32]uint32{}
	var relation, root uint32
	_, err = pgx.ForEachRow(rows, []any{&relation, &root}, func() error {
		c.roots[relation] = root
		return nil
	})
	if err != nil {
		return fmt.Errorf("find partitioned tables: %w", err)
	}
	return nil
}
