package retention

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
)

// Rule is one retention rule of the configuration.
type Rule struct {
	// Database is the configured name of the database with the table.
	Database, Table, Column string
	Keep                    time.Duration
	// Unit is s or ms if the column is an integer, and otherwise empty.
	Unit       string
	Conditions []definitions.Condition
	// Event reports whether an event is written with the primary keys and EventColumns of
	// deleted rows.
	Event        bool
	EventColumns []string
	// DryRun reports whether due rows are only counted.
	DryRun bool
}

// String returns the name of the rule, which is table.column and the conditions.
func (r Rule) String() string {
	var conditions []string
	for _, c := range r.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s = %s", c.Column, c.Value))
	}
	name := r.Table + "." + r.Column
	if len(conditions) > 0 {
		name += " (" + strings.Join(conditions, ", ") + ")"
	}
	return name
}

// rule is a Rule that is bound to its table.
type rule struct {
	Rule

	// key is the configuration key of the rule, such as retention.rules[3].
	key   string
	table *dml.Table
	// edge holds the leaves and the conditions.
	edge dml.Edge
	// base is the column's type, such as timestamptz, without its domains.
	base string
	// id holds the columns of the primary key. stillDue sets their values.
	id []dml.Value
	// unindexed are the leaves without an index that can return due rows in order.
	unindexed []uint32
	// below are the tables whose rows are deleted together with a row.
	below []*dml.Table
}

// epoch reports whether the column is an integer.
func (r *rule) epoch() bool { return r.Unit != "" }

// column returns the SQL for the column of the table alias.
func (r *rule) column(alias string) string { return alias + "." + pgcatalog.Quote(r.Column) }

// value returns the SQL for the value of the column, as bigint if it is an integer and
// otherwise as timestamptz.
func (r *rule) value(alias string) string {
	switch r.base {
	case "timestamptz":
		return r.column(alias)
	case "timestamp", "date":
		return "pg_catalog.timezone('UTC', " + r.column(alias) + "::pg_catalog.timestamp)"
	}
	return r.column(alias) + "::pg_catalog.int8"
}

// bound converts an SQL expression for a value to the type of the column, so that an
// index on the column can be used.
func (r *rule) bound(value string) string {
	if r.base == "timestamp" || r.base == "date" {
		return "pg_catalog.timezone('UTC', " + value + ")"
	}
	return value
}

// cutoff returns the value below which rows are due at the time now.
func (r *rule) cutoff(now time.Time) any {
	at := now.Add(-r.Keep)
	switch r.Unit {
	case "s":
		return ceil(at.UnixMicro(), 1_000_000)
	case "ms":
		return ceil(at.UnixMicro(), 1000)
	}
	return at
}

func ceil(n, by int64) int64 {
	if n > 0 {
		return (n + by - 1) / by
	}
	return n / by
}

// finite returns a value of the column, or nil if it is infinite. nil then means
// -infinity, because infinity is never due.
func finite(value any) any {
	switch value.(type) {
	case time.Time, int64:
		return value
	}
	return nil
}

// compare orders values of the column. nil sorts first.
func compare(a, b any) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	if x, integer := a.(int64); integer {
		y, _ := b.(int64)
		return cmp.Compare(x, y)
	}
	x, _ := a.(time.Time)
	y, _ := b.(time.Time)
	return x.Compare(y)
}

// due returns the condition that a row of the table alias is due at the cutoff.
func (r *rule) due(alias string, cutoff any, args *dml.Args) string {
	return fmt.Sprintf("%s OPERATOR(pg_catalog.<) %s%s", r.column(alias), r.bound(r.parameter(cutoff, args)),
		r.edge.Restrictions(alias, args))
}

func (r *rule) parameter(value any, args *dml.Args) string {
	if r.epoch() {
		return fmt.Sprintf("$%d::pg_catalog.int8", args.Add(value))
	}
	return fmt.Sprintf("$%d::pg_catalog.timestamptz", args.Add(value))
}

// from returns the condition that the column of a row of the table alias has at least a
// value or, if after is set, more than the value. nil is the lowest value. The text of
// the condition does not depend on value.
func (r *rule) from(alias string, value any, after bool, args *dml.Args) string {
	operator, least := ">=", "'-infinity'"
	if after {
		operator = ">"
	}
	if r.epoch() {
		least = "'-9223372036854775808'"
	}
	return fmt.Sprintf("%s OPERATOR(pg_catalog.%s) %s", r.column(alias), operator,
		r.bound("coalesce("+r.parameter(value, args)+", "+least+")"))
}

// row is a due row. shown identifies the row in messages, and key holds its primary key
// as texts.
type row struct {
	dml.Row

	value any
	shown string
	key   []string
}

func scanRow(from pgx.CollectableRow) (one row, err error) {
	return one, from.Scan(&one.At, &one.Version, &one.value, &one.shown, &one.key)
}

// position is the place in a leaf after which the next window begins.
type position struct {
	// value is the last value that was read, or nil at the start. If after is set, rows
	// whose column equals value are excluded.
	value any
	after bool
	// except holds the rows whose column equals value and that could not be deleted.
	except []dml.Tuple
}

// window returns the query for at most limit due rows of a leaf, ordered by the column.
// If other rows reference the leaf, it also returns the primary keys.
func (r *rule) window(leaf pgcatalog.Table, cutoff any, at position, limit int) (sql string, args []any) {
	list := &dml.Args{}
	shown := "'', NULL::pg_catalog.text[]"
	if len(r.table.RefsOf(leaf)) > 0 {
		key := make([]string, len(r.id))
		for i, column := range r.id {
			key[i] = "target." + pgcatalog.Quote(column.Column) + "::pg_catalog.text"
		}
		shown = fmt.Sprintf("%s, ARRAY[%s]::pg_catalog.text[]", r.table.Shown("target"), strings.Join(key, ", "))
	}
	except := at.except
	if except == nil {
		except = []dml.Tuple{}
	}
	sql = fmt.Sprintf(`SELECT target.ctid, target.xmin, %s, %s FROM ONLY %s AS target
WHERE %s AND %s%s AND target.ctid OPERATOR(pg_catalog.<>) ALL ($%d::pg_catalog.tid[])
ORDER BY %s LIMIT $%d`, r.value("target"), shown, leaf.SQL(), r.from("target", at.value, at.after, list), r.due("target", cutoff, list),
		r.edge.Attached(leaf, list), list.Add(except), r.column("target"), list.Add(limit))
	return sql, list.Values
}

// last returns the query for the value of the nth due row after a position in a leaf.
func (r *rule) last(leaf pgcatalog.Table, cutoff any, at position, n int) batch.Statement {
	list := &dml.Args{}
	sql := fmt.Sprintf("SELECT %s FROM ONLY %s AS target WHERE %s AND %s ORDER BY %s OFFSET $%d LIMIT 1",
		r.value("target"), leaf.SQL(),
		r.from("target", at.value, at.after, list), r.due("target", cutoff, list), r.column("target"), list.Add(n-1))
	return batch.Statement{SQL: sql, Args: list.Values}
}

// direct returns the statement that deletes at most limit due rows after a position in a
// leaf. If the rule writes an event, the statement returns the number of rows. No row may
// reference the leaf.
func (r *rule) direct(names pgcatalog.Names, leaf pgcatalog.Table, cutoff any, at position, limit int) batch.Statement {
	list := &dml.Args{}
	sql := fmt.Sprintf(`DELETE FROM ONLY %[1]s AS target WHERE target.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
	SELECT found.ctid FROM ONLY %[1]s AS found WHERE %[2]s AND %[3]s%[4]s ORDER BY %[5]s LIMIT $%[6]d
)) AND %[7]s`, leaf.SQL(), r.from("found", at.value, at.after, list), r.due("found", cutoff, list), r.edge.Attached(leaf, list),
		r.column("found"), list.Add(limit), r.due("target", cutoff, list))
	if r.Event {
		sql = fmt.Sprintf("WITH deleted AS (%s RETURNING %s AS key),\nevent AS (%s)\nSELECT pg_catalog.count(*) FROM deleted",
			sql,
			batch.RowKey("target", r.edge.PrimaryKey, r.EventColumns),
			batch.DeletedRows(names, r.table.Label(), "", "deleted", r.EventColumns))
	}
	return batch.Statement{SQL: sql, Args: list.Values}
}

// oldest returns the query for the lowest value of the due rows after a position in a
// leaf.
func (r *rule) oldest(leaf pgcatalog.Table, cutoff any, at position) (sql string, args []any) {
	list := &dml.Args{}
	sql = fmt.Sprintf("SELECT %s FROM ONLY %s AS target WHERE %s AND %s%s ORDER BY %s LIMIT 1", r.value("target"),
		leaf.SQL(),
		r.from("target", at.value, at.after, list), r.due("target", cutoff, list), r.edge.Attached(leaf, list),
		r.column("target"))
	return sql, list.Values
}

// stillDue returns the query that reports whether the row with a key is due. It returns
// no row if that row was deleted.
func (r *rule) stillDue(leaf pgcatalog.Table, cutoff any, key []string) (sql string, args []any) {
	list := &dml.Args{}
	terms := make([]string, len(r.id))
	for i, column := range r.id {
		column.Value = key[i]
		terms[i] = column.Equal("target", list)
	}
	sql = fmt.Sprintf("SELECT (%s) IS TRUE FROM ONLY %s AS target WHERE %s", r.due("target", cutoff, list), leaf.SQL(),
		strings.Join(terms, " AND "))
	return sql, list.Values
}

// createIndex returns the statement that creates an index on a leaf for the query for due
// rows.
func (r *rule) createIndex(leaf pgcatalog.Table) string {
	var columns []string
	for _, condition := range r.edge.Conditions {
		columns = append(columns, condition.Column)
	}
	return r.table.CreateIndex(leaf, append(columns, r.Column)...)
}
