package ghostuser

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// relation is what the catalogue says about one table.
type relation struct {
	Table
	// label leaves the schema out where it is the database's own.
	label string
	// kind is pg_class.relkind.
	kind    string
	root    uint32
	columns map[string]column
	leaves  []Table
	// foreign is a partition on another server, if there is one.
	foreign string
}

type column struct {
	// base is the type with domains resolved, full the declared one with its length or precision.
	base, full string
	notNull    bool
	// generated columns cannot be set, and neither can parts of a partition key without changing the partition.
	generated, partitioning bool
	// leads tells that a complete index begins with the column, unique that it is a part of a unique one.
	leads, unique bool
	hasDefault    bool
}

// foreignKey is a key that refers to users.
type foreignKey struct {
	name   string
	table  uint32
	column string
	// action is pg_constraint.confdeltype.
	action string
	// whole tells that the key is this one column and refers to users by id.
	whole bool
}

// catalog is the part of a database that refers to users.
type catalog struct {
	schema string
	users  *relation
	// byOID has the tables of lists and keys, byName those of the lists.
	byOID  map[uint32]*relation
	keys   []foreignKey
	tables []string
}

const relationsSQL = `
SELECT class.oid, namespace.nspname, class.relname, class.relkind::text,
    CASE WHEN class.relispartition THEN pg_partition_root(class.oid)::oid ELSE class.oid END
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE class.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND (namespace.nspname = $1 OR namespace.nspname = ANY ($2)
      OR class.oid IN (
          SELECT key.conrelid FROM pg_constraint AS key
          JOIN pg_class AS users ON users.oid = key.confrelid AND users.relname = 'users'
          WHERE key.contype = 'f'
      ))`

// Each column with its base type, and what indexes it.
const columnsSQL = `
WITH RECURSIVE base AS (
    SELECT attribute.attrelid, attribute.attnum, type.oid, type.typtype, type.typbasetype
    FROM pg_attribute AS attribute
    JOIN pg_type AS type ON type.oid = attribute.atttypid
    WHERE attribute.attrelid = ANY ($1) AND attribute.attnum > 0 AND NOT attribute.attisdropped
    UNION ALL
    SELECT base.attrelid, base.attnum, type.oid, type.typtype, type.typbasetype
    FROM base
    JOIN pg_type AS type ON type.oid = base.typbasetype
    WHERE base.typtype = 'd'
)
SELECT base.attrelid, attribute.attname, base.oid::regtype::text, format_type(attribute.atttypid, attribute.atttypmod),
    attribute.attnotnull, attribute.attgenerated <> '' OR attribute.attidentity = 'a',
    coalesce(attribute.attnum = ANY (partitioned.partattrs::smallint[]), false),
    EXISTS (
        SELECT FROM pg_index AS index
        WHERE index.indrelid = attribute.attrelid AND index.indisvalid AND index.indpred IS NULL AND index.indkey[0] = attribute.attnum
    ),
    EXISTS (
        SELECT FROM pg_index AS index
        WHERE index.indrelid = attribute.attrelid AND index.indisunique AND attribute.attnum = ANY (index.indkey::smallint[])
    ),
    attribute.atthasdef OR attribute.attidentity <> ''
FROM base
JOIN pg_attribute AS attribute ON attribute.attrelid = base.attrelid AND attribute.attnum = base.attnum
LEFT JOIN pg_partitioned_table AS partitioned ON partitioned.partrelid = base.attrelid
WHERE base.typtype <> 'd'`

const leavesSQL = `
SELECT root.oid, leaf.oid, namespace.nspname, leaf.relname, leaf.relkind::text
FROM unnest($1::oid[]) AS root (oid)
CROSS JOIN LATERAL pg_partition_tree(root.oid) AS tree
JOIN pg_class AS leaf ON leaf.oid = tree.relid
JOIN pg_namespace AS namespace ON namespace.oid = leaf.relnamespace
WHERE tree.isleaf AND leaf.oid <> root.oid
ORDER BY root.oid, leaf.oid`

// Keys that partitions have inherited, and those that stand for the partitions of partitioned users, are left out.
const keysSQL = `
SELECT key.conname, key.conrelid, coalesce(attribute.attname, '')::text, key.confdeltype::text,
    cardinality(key.conkey) = 1 AND target.attname = 'id'
FROM pg_constraint AS key
LEFT JOIN LATERAL (
    SELECT position.number, referenced.attname
    FROM unnest(key.confkey) WITH ORDINALITY AS position (attnum, number)
    JOIN pg_attribute AS referenced ON referenced.attrelid = key.confrelid AND referenced.attnum = position.attnum
    ORDER BY referenced.attname = 'id' DESC, position.number
    LIMIT 1
) AS target ON true
LEFT JOIN pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = key.conkey[target.number]
WHERE key.contype = 'f' AND key.confrelid = $1 AND key.conparentid = 0
ORDER BY key.conrelid::regclass::text, attribute.attnum, key.conname`

// readCatalog reads all tables of the schema and of the others that lists name, and every key to users.
func readCatalog(ctx context.Context, tx pgx.Tx, schema string, schemas []string) (*catalog, error) {
	c := &catalog{schema: schema, byOID: map[uint32]*relation{}}
	rows, err := tx.Query(ctx, relationsSQL, schema, schemas)
	if err != nil {
		return nil, fmt.Errorf("read tables: %w", err)
	}
	var found relation
	var oids, roots []uint32
	_, err = pgx.ForEachRow(rows, []any{&found.OID, &found.Schema, &found.Name, &found.kind, &found.root}, func() error {
		r := found
		r.columns, r.label = map[string]column{}, r.Name
		if r.Schema != schema {
			r.label = r.Schema + "." + r.Name
		}
		c.byOID[r.OID] = &r
		oids = append(oids, r.OID)
		switch r.kind {
		case "r":
			r.leaves = []Table{r.Table}
		case "p":
			roots = append(roots, r.OID)
		}
		if r.root == r.OID {
			c.tables = append(c.tables, r.label)
		}
		if r.Schema == schema && r.Name == "users" {
			c.users = &r
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read tables: %w", err)
	}
	if err := c.readColumns(ctx, tx, oids); err != nil {
		return nil, err
	}
	if err := c.readLeaves(ctx, tx, roots); err != nil {
		return nil, err
	}
	return c, c.readKeys(ctx, tx)
}

func (c *catalog) readColumns(ctx context.Context, tx pgx.Tx, oids []uint32) error {
	rows, err := tx.Query(ctx, columnsSQL, oids)
	if err != nil {
		return fmt.Errorf("read columns: %w", err)
	}
	var oid uint32
	var name string
	var found column
	_, err = pgx.ForEachRow(rows, []any{
		&oid, &name, &found.base, &found.full, &found.notNull, &found.generated, &found.partitioning, &found.leads, &found.unique, &found.hasDefault,
	}, func() error {
		c.byOID[oid].columns[name] = found
		return nil
	})
	if err != nil {
		return fmt.Errorf("read columns: %w", err)
	}
	return nil
}

func (c *catalog) readLeaves(ctx context.Context, tx pgx.Tx, roots []uint32) error {
	rows, err := tx.Query(ctx, leavesSQL, roots)
	if err != nil {
		return fmt.Errorf("read partitions: %w", err)
	}
	var root uint32
	var leaf Table
	var kind string
	_, err = pgx.ForEachRow(rows, []any{&root, &leaf.OID, &leaf.Schema, &leaf.Name, &kind}, func() error {
		switch kind {
		case "r":
			c.byOID[root].leaves = append(c.byOID[root].leaves, leaf)
		case "f":
			c.byOID[root].foreign = leaf.SQL()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read partitions: %w", err)
	}
	return nil
}

func (c *catalog) readKeys(ctx context.Context, tx pgx.Tx) error {
	if c.users == nil {
		return nil
	}
	rows, err := tx.Query(ctx, keysSQL, c.users.OID)
	if err != nil {
		return fmt.Errorf("read foreign keys: %w", err)
	}
	var key foreignKey
	_, err = pgx.ForEachRow(rows, []any{&key.name, &key.table, &key.column, &key.action, &key.whole}, func() error {
		c.keys = append(c.keys, key)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read foreign keys: %w", err)
	}
	return nil
}

// named returns the table of that name, or nil.
func (c *catalog) named(schema, table string) *relation {
	for _, r := range c.byOID {
		if r.Schema == schema && r.Name == table {
			return r
		}
	}
	return nil
}
