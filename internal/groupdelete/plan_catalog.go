package groupdelete

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// key is a foreign key as the catalogue has it.
type key struct {
	name             string
	table, target    uint32
	action           pgcatalog.Action
	columns, targets []string
	// set are the columns that ON DELETE SET changes.
	set []string
}

// All foreign keys of the database, but for those that partitions have inherited and those that stand for the partitions of a
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

// applicationTables are those that are known by name.
func applicationTables() []string {
	return []string{"groups", "projects", "members", "group_group_links", "group_deletion_schedules", "import_placeholder_user_details", "users"}
}

// read reads all keys and the relations that they are about. It returns the application's tables by name.
func (r *resolver) read(ctx context.Context, tx pgx.Tx) (map[string]*pgcatalog.Relation, error) {
	if err := r.readKeys(ctx, tx); err != nil {
		return nil, err
	}
	wanted := applicationTables()
	schemas := slices.Repeat([]string{r.names.Tracked}, len(wanted))
	oids, err := pgcatalog.Named(ctx, tx, schemas, wanted)
	if err != nil {
		return nil, err
	}
	for _, k := range r.keys {
		oids = append(oids, k.table, k.target)
	}
	if err := r.readRoots(ctx, tx, oids); err != nil {
		return nil, err
	}
	for _, root := range r.roots {
		oids = append(oids, root)
	}
	slices.Sort(oids)
	if r.relation, err = pgcatalog.Read(ctx, tx, slices.Compact(oids)); err != nil {
		return nil, err
	}
	if r.operators, err = pgcatalog.ReadOperators(ctx, tx); err != nil {
		return nil, err
	}
	named := map[string]*pgcatalog.Relation{}
	for _, found := range r.relation {
		if found.Schema == r.names.Tracked && slices.Contains(wanted, found.Name) {
			named[found.Name] = found
		}
	}
	return named, nil
}

func (r *resolver) readKeys(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, keysSQL)
	if err != nil {
		return fmt.Errorf("read foreign keys: %w", err)
	}
	r.keys, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (k key, err error) {
		return k, row.Scan(&k.name, &k.table, &k.target, (*string)(&k.action), &k.columns, &k.targets, &k.set)
	})
	if err != nil {
		return fmt.Errorf("read foreign keys: %w", err)
	}
	return nil
}

func (r *resolver) readRoots(ctx context.Context, tx pgx.Tx, oids []uint32) error {
	rows, err := tx.Query(ctx, rootsSQL, oids)
	if err != nil {
		return fmt.Errorf("find partitioned tables: %w", err)
	}
	r.roots = map[uint32]uint32{}
	var relation, root uint32
	_, err = pgx.ForEachRow(rows, []any{&relation, &root}, func() error {
		r.roots[relation] = root
		return nil
	})
	if err != nil {
		return fmt.Errorf("find partitioned tables: %w", err)
	}
	return nil
}
