package dml

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/pgcatalog"
)

// Statements that change rows do not depend on a planner setting: the application's
// triggers run in the same transaction and would be planned with it.

// Direct returns the statement that changes all rows of keys in one leaf. It needs
// REPEATABLE READ: a row that another session changed after the snapshot is then error
// 40001. The lower bound keeps the planner from a sequential scan if the statistics are
// wrong. With both bounds it never chooses one.
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

// Window returns the query for columns of at most limit rows of keys in one leaf. With a
// lock clause, and before another statement of the transaction, it waits for locks.
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

// Piece returns the statement that changes those rows at pointers that still belong to
// keys. With skip it needs READ COMMITTED and leaves out rows that another session has
// locked or changed. Without skip it needs REPEATABLE READ. The subquery makes the
// planner choose a TID scan for any number of pointers.
func (e *Edge) Piece(names pgcatalog.Names, leaf pgcatalog.Table, keys Keys, pointers []pgtype.TID, skip bool) (string, []any) {
	args := &Args{}
	keysAt, pointersAt := args.Add(keys.Values), args.Add(pointers)
	found := func(alias string) string {
		return fmt.Sprintf("%s.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT pg_catalog.unnest($%d::pg_catalog.tid[]))) AND %s",
			alias, pointersAt, e.belong(alias, leaf, keys, keysAt, args))
	}
	if skip {
		picked := fmt.Sprintf("SELECT picked.ctid FROM ONLY %s AS picked WHERE %s%s SKIP LOCKED", leaf.SQL(), found("picked"), e.Lock())
		return e.change(names, leaf, keys, e.atPointers(picked, keys, keysAt, args), args), args.Values
	}
	return e.change(names, leaf, keys, found("child"), args), args.Values
}

// Finds returns the condition that a leaf has a row of keys. keys is an SQL expression.
func (e *Edge) Finds(of *Key, leaf pgcatalog.Table, keys string, args *Args) string {
	return "EXISTS (" + e.rowsQuery(of, leaf, "", "", keys, 0, args) + " OFFSET 0)"
}

// Remain returns the condition that a row of the edge has the key, in any partition. It
// is one index lookup, whatever the statistics are. Without an index, one scan of the
// child serves all of keys, an SQL expression.
func (e *Edge) Remain(of *Key, key []string, keys string, args *Args) string {
	if !e.Index && !of.Composite() {
		column := "child." + pgcatalog.Quote(e.Columns[0])
		found := fmt.Sprintf("SELECT %s AS value FROM %s WHERE %s%s OFFSET 0", column, e.Whole(), e.matches(of, "child", keys), e.Restrictions("child", args))
		left := fmt.Sprintf("ARRAY(SELECT given.key FROM pg_catalog.unnest(%s) AS given (key) JOIN (%s) AS found ON %s)",
			keys, found, e.Compare[0].Equal("found.value", "given.key"))
		return of.KeyCompare[0].Any(key[0], left)
	}
	return fmt.Sprintf("EXISTS (SELECT FROM %s WHERE %s)", e.Whole(),
		firstBetween(e.Compare, Qualified("child", e.Columns), key, e.Restrictions("child", args)))
}

// bounds returns the condition that a single column is in the range of the keys: from the
// lowest one, with both also up to the highest one.
func (e *Edge) bounds(alias string, keys Keys, keysAt int, both bool) string {
	if keys.Of.Composite() {
		return ""
	}
	return e.Compare[0].Bounds(alias+"."+pgcatalog.Quote(e.Columns[0]), keys.Of.Parameter(keysAt), both)
}
