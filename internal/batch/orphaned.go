package batch

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// RowKey returns an SQL expression of type jsonb: an object of the row's key columns by
// name. With further columns it is an array of two objects, the key and these columns.
func RowKey(row string, key, columns []string) string {
	object := func(columns []string) string {
		terms := render.Each(columns, func(column string) string { return row + "." + pgx.Identifier{column}.Sanitize() })
		return "(SELECT pg_catalog.to_jsonb(keyed) FROM (SELECT " + strings.Join(terms, ", ") + ") AS keyed)"
	}
	if len(columns) == 0 {
		return object(key)
	}
	return "pg_catalog.jsonb_build_array(" + object(key) + ", " + object(columns) + ")"
}

// DeletedRows returns an INSERT of one event for the deleted rows of a table. It inserts
// no event if there are no rows. The CTE from has the rows' keys in its column key, as
// returned by RowKey. Without further columns the event is files_orphaned with keys. With
// columns it is rows_deleted with keys and rows. more is an SQL list of further names and
// values, with a comma after it.
//
// The table's name is decoded, so that the database's settings cannot change its meaning.
func DeletedRows(names pgcatalog.Names, table, more, from string, columns []string) string {
	kind, lists := "files_orphaned", fmt.Sprintf("'keys', pg_catalog.jsonb_agg(%s.key)", from)
	if len(columns) > 0 {
		kind = "rows_deleted"
		lists = fmt.Sprintf("'keys', pg_catalog.jsonb_agg(%[1]s.key OPERATOR(pg_catalog.->) 0), "+
			"'rows', pg_catalog.jsonb_agg(%[1]s.key OPERATOR(pg_catalog.->) 1)", from)
	}
	return fmt.Sprintf(`INSERT INTO %s (kind, payload)
	SELECT '%s', pg_catalog.jsonb_build_object(%s'table', pg_catalog.convert_from(pg_catalog.decode('%x', 'hex'), 'UTF8'),
		%s)
	FROM %s HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0`, names.Render(`"sexton".events`), kind, more, table, lists, from)
}
