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
	rows, _ := db.Query(ctx, names.Render(statement("tombstones")), tables, sides[0], sides[1], sides[2], sides[3])
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
	rows, _ := db.Query(ctx, names.Render(sql), tables)
	pending, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for tombstones: %w", err)
	}
	return pending, nil
}
