package placeholder

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/definitions"
	"sexton/internal/pgschema"
)

// aboveSQL selects the tables, named as tombstones name them, whose deleted rows take rows of the tables $1 along, at any
// depth: by a loose foreign key, from child ($2, $3) to parent ($4, $5), or by a native one with CASCADE. Keys to users are left
// out: they are the references themselves.
const aboveSQL = `
WITH RECURSIVE edge (child, parent) AS (
    SELECT pg_catalog.format('%I.%I', loose.child_schema, loose.child), pg_catalog.format('%I.%I', loose.parent_schema, loose.parent)
    FROM unnest($2::pg_catalog.text[], $3::pg_catalog.text[], $4::pg_catalog.text[], $5::pg_catalog.text[])
        AS loose (child_schema, child, parent_schema, parent)
    UNION ALL
    SELECT pg_catalog.format('%I.%I', child_schema.nspname, child.relname), pg_catalog.format('%I.%I', parent_schema.nspname, parent.relname)
    FROM pg_catalog.pg_constraint AS native
    JOIN pg_catalog.pg_class AS child ON child.oid = native.conrelid
    JOIN pg_catalog.pg_namespace AS child_schema ON child_schema.oid = child.relnamespace
    JOIN pg_catalog.pg_class AS parent ON parent.oid = native.confrelid
    JOIN pg_catalog.pg_namespace AS parent_schema ON parent_schema.oid = parent.relnamespace
    WHERE native.contype = 'f' AND native.confdeltype = 'c' AND native.confrelid <> pg_catalog.to_regclass('"public".users')
), above (name) AS (
    SELECT pg_catalog.unnest($1::pg_catalog.text[]) COLLATE pg_catalog."C"
    UNION
    SELECT edge.parent COLLATE pg_catalog."C" FROM above JOIN edge ON edge.child = above.name
)
SELECT above.name FROM above ORDER BY above.name`

// Above returns the tables whose tombstones may take away rows of the columns' tables: what refers to a placeholder whose group
// has just gone often waits for its own deletion. defs are those of the loose foreign keys.
func (r *References) Above(
	ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, defs []definitions.Definition, columns []string,
) ([]string, error) {
	var tables []string
	for _, c := range r.columns {
		if slices.Contains(columns, c.label) {
			tables = append(tables, c.table)
		}
	}
	var sides [4][]string
	for _, d := range defs {
		if d.OnDelete != definitions.Delete {
			continue
		}
		for i, name := range []definitions.Name{d.Child, d.Parent} {
			if name.Schema == "" {
				name.Schema = names.Tracked
			}
			sides[2*i], sides[2*i+1] = append(sides[2*i], name.Schema), append(sides[2*i+1], name.Table)
		}
	}
	rows, err := db.Query(ctx, names.Render(aboveSQL), tables, sides[0], sides[1], sides[2], sides[3])
	if err != nil {
		return nil, fmt.Errorf("look for parents of references: %w", err)
	}
	above, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for parents of references: %w", err)
	}
	return above, nil
}

// Pending returns those of the tables that have pending tombstones in a database.
func Pending(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, tables []string) ([]string, error) {
	const sql = `
SELECT wanted.name FROM pg_catalog.unnest($1::pg_catalog.text[]) AS wanted (name)
WHERE EXISTS (
    SELECT FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name = wanted.name AND tombstone.status = 1
)
ORDER BY wanted.name`
	rows, err := db.Query(ctx, names.Render(sql), tables)
	if err != nil {
		return nil, fmt.Errorf("look for tombstones: %w", err)
	}
	pending, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for tombstones: %w", err)
	}
	return pending, nil
}
