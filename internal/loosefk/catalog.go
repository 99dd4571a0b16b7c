package loosefk

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/definitions"
)

// relation is what the catalogue says about one table that a definition names.
type relation struct {
	Table
	// Kind is pg_class.relkind; 0 where there is no such table.
	Kind      string
	Partition bool
	Columns   map[string]column
	// PrimaryKey lists the key's columns in order.
	PrimaryKey []string
	// Unique lists the columns that are unique by themselves.
	Unique map[string]bool
	Leaves []Table
	// Leading lists the columns that lead a complete, valid index.
	Leading map[string]bool
	// foreign is a partition on another server, if there is one.
	foreign string
	// recorded is the name that tombstones carry.
	recorded string
}

type column struct {
	Name string
	// Type is qualified and quoted, with domains resolved to what they are built on; Full is the declared one,
	// with its length or precision.
	Type    string
	Full    string
	NotNull bool
	// Generated columns cannot be set.
	Generated bool
}

func (r *relation) exists() bool { return r.Kind != "" }

// defaultKey is the column that definitions refer to where they name none: the primary key, or id where
// that identifies a row by itself, as in partitioned tables keyed by (id, partition).
func (r *relation) defaultKey() string {
	switch {
	case len(r.PrimaryKey) == 1:
		return r.PrimaryKey[0]
	case r.identifies("id"):
		return "id"
	default:
		return ""
	}
}

// identifies tells whether the column is unique. A partitioned table can have no unique index without its
// partition key, so there a part of the primary key has to do.
func (r *relation) identifies(column string) bool {
	return r.Unique[column] || r.Kind == "p" && slices.Contains(r.PrimaryKey, column)
}

// catalog is the part of a database that a set of definitions speaks of.
type catalog struct {
	schema    string
	relations map[definitions.Name]*relation
	// indexes are the valid B-trees of all relations and their leaves, by table.
	indexes map[uint32][]tableIndex
}

func (c *catalog) lookup(name definitions.Name) *relation {
	return c.relations[c.qualified(name)]
}

func (c *catalog) qualified(name definitions.Name) definitions.Name {
	if name.Schema == "" {
		name.Schema = c.schema
	}
	return name
}

const relationsSQL = `
SELECT wanted.schema, wanted.name, coalesce(class.oid, 0)::oid, coalesce(class.relkind::text, ''), coalesce(class.relispartition, false),
       format('%I.%I', wanted.schema, wanted.name)
FROM unnest($1::text[], $2::text[]) AS wanted (schema, name)
LEFT JOIN pg_namespace AS namespace ON namespace.nspname = wanted.schema
LEFT JOIN pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = wanted.name AND class.relkind IN ('r', 'p', 'v', 'm', 'f')`

// Domains may be built on domains.
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
SELECT base.attrelid, attribute.attname, format('%I.%I', namespace.nspname, type.typname),
       format_type(attribute.atttypid, attribute.atttypmod),
       attribute.attnotnull, attribute.attgenerated <> '' OR attribute.attidentity = 'a'
FROM base
JOIN pg_attribute AS attribute ON attribute.attrelid = base.attrelid AND attribute.attnum = base.attnum
JOIN pg_type AS type ON type.oid = base.oid
JOIN pg_namespace AS namespace ON namespace.oid = type.typnamespace
WHERE base.typtype <> 'd'`

// Each index with its key columns in order; an empty name is an expression.
const indexesSQL = `
SELECT index.indrelid, index.indisprimary, index.indisunique AND index.indpred IS NULL AND index.indisvalid, index.indpred IS NULL AND index.indisvalid,
       index.indisunique, method.amname = 'btree' AND index.indisvalid, coalesce(pg_get_expr(index.indpred, index.indrelid), ''),
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

const leavesSQL = `
SELECT root.oid, leaf.oid, namespace.nspname, leaf.relname, leaf.relkind::text
FROM unnest($1::oid[]) AS root (oid)
CROSS JOIN LATERAL pg_partition_tree(root.oid) AS tree
JOIN pg_class AS leaf ON leaf.oid = tree.relid
JOIN pg_namespace AS namespace ON namespace.oid = leaf.relnamespace
WHERE tree.isleaf AND leaf.oid <> root.oid
ORDER BY root.oid, leaf.oid`

// readCatalog reads everything about the named tables in a handful of statements, however many there are.
func readCatalog(ctx context.Context, db dbsqlc.DBTX, schema string, names []definitions.Name) (*catalog, error) {
	c := &catalog{schema: schema, relations: map[definitions.Name]*relation{}, indexes: map[uint32][]tableIndex{}}
	var schemas, tables []string
	for _, name := range names {
		name = c.qualified(name)
		if _, seen := c.relations[name]; seen {
			continue
		}
		c.relations[name] = &relation{}
		schemas, tables = append(schemas, name.Schema), append(tables, name.Table)
	}
	byOID, oids, err := c.readRelations(ctx, db, schemas, tables)
	if err != nil {
		return nil, err
	}
	if err := readColumns(ctx, db, oids, byOID); err != nil {
		return nil, err
	}
	if err := readLeaves(ctx, db, oids, byOID); err != nil {
		return nil, err
	}
	if err := c.readIndexes(ctx, db, byOID); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *catalog) readRelations(ctx context.Context, db dbsqlc.DBTX, schemas, tables []string) (map[uint32]*relation, []uint32, error) {
	rows, err := db.Query(ctx, relationsSQL, schemas, tables)
	if err != nil {
		return nil, nil, fmt.Errorf("read tables: %w", err)
	}
	byOID := map[uint32]*relation{}
	var oids []uint32
	found := relation{}
	_, err = pgx.ForEachRow(rows, []any{
		&found.Schema, &found.Name, &found.OID, &found.Kind, &found.Partition, &found.recorded,
	}, func() error {
		r := c.relations[definitions.Name{Schema: found.Schema, Table: found.Name}]
		*r = found
		r.Columns, r.Unique, r.Leading = map[string]column{}, map[string]bool{}, map[string]bool{}
		if r.exists() {
			byOID[r.OID] = r
			oids = append(oids, r.OID)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read tables: %w", err)
	}
	return byOID, oids, nil
}

func readColumns(ctx context.Context, db dbsqlc.DBTX, oids []uint32, byOID map[uint32]*relation) error {
	rows, err := db.Query(ctx, columnsSQL, oids)
	if err != nil {
		return fmt.Errorf("read columns: %w", err)
	}
	var oid uint32
	var found column
	_, err = pgx.ForEachRow(rows, []any{&oid, &found.Name, &found.Type, &found.Full, &found.NotNull, &found.Generated}, func() error {
		byOID[oid].Columns[found.Name] = found
		return nil
	})
	if err != nil {
		return fmt.Errorf("read columns: %w", err)
	}
	return nil
}

func (c *catalog) readIndexes(ctx context.Context, db dbsqlc.DBTX, byOID map[uint32]*relation) error {
	var oids []uint32
	for oid, r := range byOID {
		oids = append(oids, oid)
		for _, leaf := range r.Leaves {
			if leaf.OID != oid {
				oids = append(oids, leaf.OID)
			}
		}
	}
	rows, err := db.Query(ctx, indexesSQL, oids)
	if err != nil {
		return fmt.Errorf("read indexes: %w", err)
	}
	var (
		oid                       uint32
		primary, unique, complete bool
		index                     tableIndex
		ordered                   bool
		columns                   []string
	)
	_, err = pgx.ForEachRow(rows, []any{&oid, &primary, &unique, &complete, &index.unique, &ordered, &index.predicate, &columns}, func() error {
		if ordered {
			found := index
			found.columns = append([]string(nil), columns...)
			c.indexes[oid] = append(c.indexes[oid], found)
		}
		r := byOID[oid]
		if r == nil {
			return nil // a leaf that no definition names
		}
		if primary {
			r.PrimaryKey = append([]string(nil), columns...)
		}
		if unique && len(columns) == 1 {
			r.Unique[columns[0]] = true
		}
		if complete && len(columns) > 0 {
			r.Leading[columns[0]] = true
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read indexes: %w", err)
	}
	return nil
}

func readLeaves(ctx context.Context, db dbsqlc.DBTX, oids []uint32, byOID map[uint32]*relation) error {
	var roots []uint32
	for _, oid := range oids {
		switch r := byOID[oid]; r.Kind {
		case "p":
			roots = append(roots, oid)
		case "r":
			r.Leaves = []Table{r.Table}
		}
	}
	if len(roots) == 0 {
		return nil
	}
	rows, err := db.Query(ctx, leavesSQL, roots)
	if err != nil {
		return fmt.Errorf("read partitions: %w", err)
	}
	var root uint32
	var leaf Table
	var kind string
	_, err = pgx.ForEachRow(rows, []any{&root, &leaf.OID, &leaf.Schema, &leaf.Name, &kind}, func() error {
		switch kind {
		case "r":
			byOID[root].Leaves = append(byOID[root].Leaves, leaf)
		case "f":
			byOID[root].foreign = leaf.Label()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read partitions: %w", err)
	}
	return nil
}
