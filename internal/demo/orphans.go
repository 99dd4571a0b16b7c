package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/pgschema"
)

// orphans counts the children that a definition says should be gone or changed and that are not, by plain
// anti-joins over the whole tables. It shares nothing with the engine but the definitions.
func orphans(ctx context.Context, on stage) (int64, error) {
	var total int64
	for _, d := range on.definitions {
		sql, args := orphansOf(d, on.names)
		var count int64
		if err := on.pool.QueryRow(ctx, sql, args...).Scan(&count); err != nil {
			return 0, fmt.Errorf("count orphans of %s in %s: %w", d.Parent, d.Child, err)
		}
		total += count
	}
	return total, nil
}

func orphansOf(d definitions.Definition, names pgschema.Names) (sql string, args []any) {
	table := func(n definitions.Name) string {
		if n.Schema == "" {
			n.Schema = names.Tracked
		}
		return pgx.Identifier{n.Schema, n.Table}.Sanitize()
	}
	column := func(name string) string { return "child." + pgx.Identifier{name}.Sanitize() }
	parentColumns := d.ParentColumns
	if len(parentColumns) == 0 {
		parentColumns = []string{"id"}
	}
	var same, given []string
	for i, name := range parentColumns {
		same = append(same, fmt.Sprintf("parent.%s = %s", pgx.Identifier{name}.Sanitize(), column(d.Columns[i])))
		given = append(given, column(d.Columns[i])+" IS NOT NULL")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "SELECT count(*) FROM %s AS child LEFT JOIN %s AS parent ON %s WHERE %s AND parent.%s IS NULL",
		table(d.Child), table(d.Parent), strings.Join(same, " AND "), strings.Join(given, " AND "), pgx.Identifier{parentColumns[0]}.Sanitize())
	for _, c := range d.Conditions {
		args = append(args, c.Value)
		fmt.Fprintf(&b, " AND %s::text = $%d", column(c.Column), len(args))
	}
	if d.OnDelete == definitions.UpdateColumn {
		args = append(args, d.TargetValue)
		fmt.Fprintf(&b, " AND %s::text IS DISTINCT FROM $%d", column(d.TargetColumn), len(args))
	}
	return b.String(), args
}
