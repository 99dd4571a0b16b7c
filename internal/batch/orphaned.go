package batch

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/each"
	"sexton/internal/pgcatalog"
)

// RowKey is an SQL expression of type jsonb: an object of the row's columns by name.
func RowKey(row string, columns []string) string {
	terms := each.Of(columns, func(column string) string { return row + "." + pgx.Identifier{column}.Sanitize() })
	return "(SELECT pg_catalog.to_jsonb(keyed) FROM (SELECT " + strings.Join(terms, ", ") + ") AS keyed)"
}

// OrphanedFiles is an INSERT of an event that names a table and keys of rows that are gone, for the owner of the files behind them. From has
// a column key, made by RowKey; with more, an SQL list of names and values with a comma behind, the event says that as well. Behind comes what ends
// the SELECT, such as GROUP BY.
//
// The name is text that the database's settings cannot change the meaning of.
func OrphanedFiles(names pgcatalog.Names, table, more, from, behind string) string {
	return fmt.Sprintf(`INSERT INTO %s (kind, payload)
	SELECT 'files_orphaned', pg_catalog.jsonb_build_object(%s'table', pg_catalog.convert_from(pg_catalog.decode('%x', 'hex'), 'UTF8'),
		'keys', pg_catalog.jsonb_agg(%s.key))
	FROM %s %s`, names.Render(`"sexton".events`), more, table, from, from, behind)
}
