package dml

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// Statements that change rows must not change planner settings: the application's
// triggers run in the same transaction and would be planned with these settings.

// Direct returns the statement that changes all rows of keys in one leaf. It needs
// REPEATABLE READ: if another session changed a row after the snapshot, the statement
// then fails with 40001. A lower bound on the keys keeps the planner from a sequential
// scan if the statistics are wrong. If both is set, the statement also has an upper
// bound. With two bounds the planner never chooses a sequential scan.
func (e *Edge) Direct(names pgcatalog.Names, leaf pgcatalog.Table, keys Keys, both bool) (string, []any) {
	args := &Args{}
	keysAt := args.Add(keys.Values)
	if e.usesLookups(keys.Of, leaf) {
		picked := e.rowsQuery(keys.Of, leaf, "picked.ctid", "", keys.array(keysAt), 0, args)
		return e.change(names, leaf, keys, e.atPointers(picked, keys, keysAt, args), args), args.Values
	}
	where := e.matches(keys.Of, "child", keys.array(keysAt)) + e.bounds("child", keys, keysAt, both) +
		e.Restrictions("child", args) + e.Attached(leaf, args)
	return e.change(names, leaf, keys, where, args), args.Values
}

// Window returns the query for the given columns of at most limit rows of keys in one
// leaf. lock is a locking clause or "". A locking query waits until other sessions
// release the rows, so that the next statement of the transaction can change them.
func (e *Edge) Window(leaf pgcatalog.Table, columns, lock string, keys Keys, limit int) (string, []any) {
	args := &Args{}
	keysAt, limitAt := args.Add(keys.Values), args.Add(limit)
	if e.usesLookups(keys.Of, leaf) {
		return e.rowsQuery(keys.Of, leaf, columns, lock, keys.array(keysAt), limitAt, args), args.Values
	}
	return fmt.Sprintf("SELECT %s FROM ONLY %s AS picked WHERE %s%s%s%s LIMIT $%d", columns, leaf.SQL(),
		e.matches(keys.Of, "picked", keys.array(keysAt)), e.bounds("picked", keys, keysAt, true),
		e.Restrictions("picked", args), e.Attached(leaf, args), limitAt) + lock, args.Values
}

// Piece returns the statement that changes the rows at pointers. It leaves out rows that
// no longer belong to keys. If skip is set, it needs READ COMMITTED and also leaves out
// rows that another session has locked or changed. Otherwise it needs REPEATABLE READ.
// The subquery makes the planner choose a TID scan for any number of pointers.
func (e *Edge) Piece(names pgcatalog.Names, leaf pgcatalog.Table, keys Keys, pointers []pgtype.TID,
	skip bool,
) (string, []any) {
	args := &Args{}
	keysAt, pointersAt := args.Add(keys.Values), args.Add(pointers)
	found := func(alias string) string {
		return fmt.Sprintf("%s.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT pg_catalog.unnest($%d::pg_catalog.tid[]))) AND %s",
			alias, pointersAt, e.belongs(alias, leaf, keys, keysAt, args))
	}
	if skip {
		picked := fmt.Sprintf("SELECT picked.ctid FROM ONLY %s AS picked WHERE %s%s SKIP LOCKED", leaf.SQL(),
			found("picked"), e.Lock())
		return e.change(names, leaf, keys, e.atPointers(picked, keys, keysAt, args), args), args.Values
	}
	return e.change(names, leaf, keys, found("child"), args), args.Values
}

// Finds returns the condition that a row of the leaf refers to one of the keys. keys is
// an SQL expression.
func (e *Edge) Finds(of *Key, leaf pgcatalog.Table, keys string, args *Args) string {
	return "EXISTS (" + e.rowsQuery(of, leaf, "", "", keys, 0, args) + " OFFSET 0)"
}

// Remain returns the condition that a row of the edge refers to the key, in any
// partition. It is one index lookup, whatever the statistics are. If the edge has no
// index, one scan of the child serves all keys in the SQL expression keys.
func (e *Edge) Remain(of *Key, key []string, keys string, args *Args) string {
	if !e.Index && !of.Composite() {
		column := "child." + pgcatalog.Quote(e.Columns[0])
		found := fmt.Sprintf("SELECT %s AS value FROM %s WHERE %s%s OFFSET 0", column, e.FromItem(),
			e.matches(of, "child", keys), e.Restrictions("child", args))
		left := fmt.Sprintf("ARRAY(SELECT given.key FROM pg_catalog.unnest(%s) AS given (key) JOIN (%s) AS found ON %s)",
			keys, found, e.Compare[0].Equal("found.value", "given.key"))
		return of.KeyCompare[0].Any(key[0], left)
	}
	return fmt.Sprintf("EXISTS (SELECT FROM %s WHERE %s)", e.FromItem(),
		firstBetween(e.Compare, Qualified("child", e.Columns), key, e.Restrictions("child", args)))
}

// bounds returns the condition that the edge's column is not below the lowest key and, if
// both is set, not above the highest key. It returns "" for composite keys.
func (e *Edge) bounds(alias string, keys Keys, keysAt int, both bool) string {
	if keys.Of.Composite() {
		return ""
	}
	return e.Compare[0].Bounds(alias+"."+pgcatalog.Quote(e.Columns[0]), keys.Of.Parameter(keysAt), both)
}

// equal returns the condition that the edge's columns have the values of one key.
func (e *Edge) equal(alias string, values []string) string {
	return Pairwise(e.Compare, Qualified(alias, e.Columns), values)
}

// matches returns the condition that a row of alias has one of the keys in an array. For
// composite keys it is a filter, for which Postgres hashes the keys. IS TRUE keeps the
// planner from turning it into a join, which would need nested loops.
func (e *Edge) matches(of *Key, alias, keys string) string {
	if of.Composite() {
		return fmt.Sprintf("EXISTS (SELECT FROM pg_catalog.unnest(%s) AS wanted (key) WHERE %s) IS TRUE", keys,
			e.equal(alias, of.Parts("wanted.key")))
	}
	return e.Compare[0].Any(alias+"."+pgcatalog.Quote(e.Columns[0]), keys)
}

// joinLookups returns a query that joins composite keys with the rows that the subquery
// lookUp finds for each of them. lookUp refers to the key as wanted.key. OFFSET 0 and
// LATERAL make the planner begin with the keys. Otherwise it could, depending on
// statistics, read a whole index and compare each entry with the keys.
func joinLookups(columns, keys, lookUp, lock string) string {
	return fmt.Sprintf("SELECT %s FROM pg_catalog.unnest(%s) AS wanted (key) CROSS JOIN LATERAL (%s OFFSET 0%s) AS picked WHERE true",
		columns, keys, lookUp, lock)
}

// usesLookups reports whether a leaf's rows are found by one index lookup per composite
// key. Without an index each lookup would read the whole table, so one scan finds the
// rows of all keys instead.
func (e *Edge) usesLookups(of *Key, leaf pgcatalog.Table) bool {
	return of.Composite() && e.Indexed[leaf.OID]
}

// rowsQuery returns the subquery for the rows of keys in one leaf. keys is an SQL
// expression, and lock a locking clause or "". limitAt is the number of the parameter
// that limits the rows, or 0.
func (e *Edge) rowsQuery(of *Key, leaf pgcatalog.Table, columns, lock, keys string, limitAt int, args *Args) string {
	limit := ""
	if limitAt > 0 {
		limit = fmt.Sprintf(" LIMIT $%d", limitAt)
	}
	if e.usesLookups(of, leaf) {
		found := fmt.Sprintf("SELECT %s FROM ONLY %s AS picked WHERE %s%s",
			columns, leaf.SQL(), e.equal("picked", of.Parts("wanted.key")), e.Restrictions("picked", args))
		return joinLookups(columns, keys, found, lock) + e.Attached(leaf, args) + limit
	}
	return fmt.Sprintf("SELECT %s FROM ONLY %s AS picked WHERE %s%s%s%s",
		columns, leaf.SQL(), e.matches(of, "picked", keys), e.Restrictions("picked", args), e.Attached(leaf, args),
		limit) + lock
}

// belongs returns the condition that a row of alias belongs to keys and meets the edge's
// restrictions. IS TRUE keeps the planner from using an index for it. Another condition,
// such as a row pointer, finds the row.
func (e *Edge) belongs(alias string, leaf pgcatalog.Table, keys Keys, keysAt int, args *Args) string {
	return fmt.Sprintf("(%s%s) IS TRUE%s", e.matches(keys.Of, alias, keys.array(keysAt)), e.Restrictions(alias, args),
		e.Attached(leaf, args))
}

// CleanStatement returns the statement that deletes or changes at most limit rows of keys
// in one leaf. It skips rows that another session has locked. It uses row pointers, since
// DELETE and UPDATE have no LIMIT.
func (e *Edge) CleanStatement(names pgcatalog.Names, leaf pgcatalog.Table, keys Keys, limit int) (string, []any) {
	args := &Args{}
	keysAt, limitAt := args.Add(keys.Values), args.Add(limit)
	picked := e.rowsQuery(keys.Of, leaf, "picked.ctid", e.Lock()+" SKIP LOCKED", keys.array(keysAt), limitAt, args)
	return e.change(names, leaf, keys, e.atPointers(picked, keys, keysAt, args), args), args.Values
}

// atPointers returns the condition that the query picked returns the row pointer of
// child. It repeats the condition on the keys for the row itself. IS TRUE keeps the
// planner from using an index for that condition, which would compare every child with
// every pointer.
func (e *Edge) atPointers(picked string, keys Keys, keysAt int, args *Args) string {
	return fmt.Sprintf("child.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(%s)) AND (%s%s) IS TRUE",
		picked, e.matches(keys.Of, "child", keys.Of.Parameter(keysAt)), e.Restrictions("child", args))
}

// ExactStatement returns the statement that deletes or changes the row versions in seen.
// It leaves out versions that do not belong to keys. lock is the clause that locks the
// rows.
func (e *Edge) ExactStatement(names pgcatalog.Names, leaf pgcatalog.Table, keys Keys, seen Rows,
	lock string,
) (string, []any) {
	args := &Args{}
	keysAt, at := args.Add(keys.Values), seen.Args()
	picked := fmt.Sprintf(`SELECT picked.ctid
FROM ROWS FROM (pg_catalog.unnest($%d::pg_catalog.tid[]), pg_catalog.unnest($%d::pg_catalog.xid[])) AS seen (tuple, maker)
CROSS JOIN LATERAL (
	SELECT picked.ctid FROM ONLY %s AS picked
	WHERE picked.ctid OPERATOR(pg_catalog.=) seen.tuple AND picked.xmin OPERATOR(pg_catalog.=) seen.maker AND (%s%s) IS TRUE
	OFFSET 0%s
) AS picked
WHERE true%s`, args.Add(at[0]), args.Add(at[1]), leaf.SQL(), e.matches(keys.Of, "picked", keys.Of.Parameter(keysAt)),
		e.Restrictions("picked", args), lock, e.Attached(leaf, args))
	return e.change(names, leaf, keys, e.atPointers(picked, keys, keysAt, args), args), args.Values
}

// change returns the statement that applies the edge's action to the rows that meet
// where.
func (e *Edge) change(names pgcatalog.Names, leaf pgcatalog.Table, keys Keys, where string, args *Args) string {
	if e.Action == Remove {
		sql := Change(Remove, "ONLY "+leaf.SQL(), nil, "") + " WHERE " + where
		switch {
		case keys.Keep != nil:
			return e.keepDeleted(names, leaf, keys, where, args)
		case e.Count != "":
			return e.withCount(sql, "false")
		case e.EmitsEvent:
			return e.withEvent(names, sql)
		}
		return sql
	}
	table, inLeaf := "ONLY "+leaf.SQL(), ""
	if e.Moves {
		// An UPDATE of the partition itself fails if the row then belongs to another
		// partition.
		table = e.Child.SQL()
		inLeaf = fmt.Sprintf("child.tableoid OPERATOR(pg_catalog.=) $%d::pg_catalog.oid AND ", args.Add(leaf.OID))
	}
	columns, to := e.Columns, ""
	switch e.Action { //nolint:exhaustive // The other actions have no value.
	case Assign:
		columns, to = []string{e.Target.Column}, e.Target.parameter(args)
	case Move:
		to = e.Target.parameter(args)
	}
	sql := Change(e.Action, table, columns, to)
	if keys.Keep != nil {
		return e.keepChanged(names, keys, columns, sql, table, inLeaf, where, args)
	}
	sql += " WHERE " + inLeaf + where
	if e.Count != "" {
		return e.withCount(sql, fmt.Sprintf("(%s%s) IS TRUE", e.matches(keys.Of, "child", keys.Of.Parameter(1)),
			e.Restrictions("child", args)))
	}
	return sql
}

// withCount returns a statement that runs change and selects e.Count. kept is an SQL
// condition that is true for a row that a trigger left unchanged. Such rows are not
// counted.
func (e *Edge) withCount(change, kept string) string {
	key := ""
	if e.EmitsEvent && !e.Updates() {
		key = batch.RowKey("child", e.PrimaryKey, e.EventColumns) + " AS key, "
	}
	ctes := append([]string{
		fmt.Sprintf("written AS (%s RETURNING %s%s AS kept)", change, key, kept),
		"changed AS (SELECT written.* FROM written WHERE NOT written.kept)",
	}, e.Extra...)
	return "WITH " + strings.Join(ctes, ",\n") + "\nSELECT " + e.Count + " FROM changed"
}

// Change returns the beginning of a statement that changes rows, up to its WHERE clause.
// It sets the columns to NULL, to their defaults or to the expression to.
func Change(do Action, table string, columns []string, to string) string {
	switch do {
	case Remove:
		return fmt.Sprintf("DELETE FROM %s AS child", table)
	case Nullify:
		to = "NULL"
	case SetDefault:
		to = "DEFAULT"
	case Assign, Move, Forbid: // Forbid has no statement.
	}
	set := render.Each(columns, func(column string) string { return pgcatalog.Quote(column) + " = " + to })
	return fmt.Sprintf("UPDATE %s AS child SET %s", table, strings.Join(set, ", "))
}

// withEvent returns a statement that runs a DELETE and inserts an event. The event has
// the table and the keys of the deleted rows, so that the application can delete their
// files. The statement returns the number of deleted rows, since its number of affected
// rows is that of the INSERT.
func (e *Edge) withEvent(names pgcatalog.Names, deletion string) string {
	return fmt.Sprintf("WITH deleted AS (%s RETURNING %s AS key),\nevent AS (%s)\nSELECT pg_catalog.count(*) FROM deleted",
		deletion, batch.RowKey("child", e.PrimaryKey, e.EventColumns), e.event(names, "deleted"))
}

// event returns the INSERT of an event with the keys in the column key of the CTE from.
func (e *Edge) event(names pgcatalog.Names, from string) string {
	return batch.DeletedRows(names, e.Child.Label(), "", from, e.EventColumns)
}

// Exists returns the condition that a row of the edge refers to the key. OFFSET 0 keeps
// it a separate subquery. Otherwise a statement with a hundred edges would be a join of a
// hundred tables.
func (e *Edge) Exists(key []string, args *Args) string {
	return fmt.Sprintf("EXISTS (SELECT FROM %s WHERE %s%s OFFSET 0)", e.FromItem(), e.equal("child", key),
		e.Restrictions("child", args))
}

// Rows returns the subquery for the rows of keys in all partitions of the child. keys is
// an SQL expression.
func (e *Edge) Rows(of *Key, keys string, args *Args) string {
	if of.Composite() && e.Index {
		return joinLookups("", keys, fmt.Sprintf("SELECT FROM %s WHERE %s%s",
			e.FromItem(), e.equal("child", of.Parts("wanted.key")), e.Restrictions("child", args)), "")
	}
	return fmt.Sprintf("SELECT FROM %s WHERE %s%s", e.FromItem(), e.matches(of, "child", keys),
		e.Restrictions("child", args))
}
