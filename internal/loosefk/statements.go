package loosefk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/definitions"
	"sexton/internal/pgschema"
)

// Only the texts without a table of the user's in them go through pgschema.Render as a whole: a user's table
// may itself live in a schema called public.

// keysParameter is the array of parent keys, typed like the parent's column, composite ones as they are stored. Integers of different width
// share an operator family, so an index on an integer column serves a bigint array as well.
func (p *Parent) keysParameter(n int) string {
	if p.Integer {
		return fmt.Sprintf("$%d::bigint[]", n)
	}
	if p.composite() {
		return fmt.Sprintf("$%d::pg_catalog.text[]", n)
	}
	return fmt.Sprintf("$%d::pg_catalog.text[]::%s[]", n, p.KeyTypes[0])
}

// tombstoneKey is the key of a tombstone row, one value per column.
func (p *Parent) tombstoneKey(tombstone string) []string {
	if p.Integer {
		return []string{tombstone + ".primary_key_value"}
	}
	return p.storedKey(tombstone + ".primary_key_text")
}

// storedKey are the values of a key that is stored as text.
func (p *Parent) storedKey(text string) []string {
	if p.composite() {
		return p.parts(text)
	}
	return []string{fmt.Sprintf("%s::%s", text, p.KeyTypes[0])}
}

// arguments numbers the parameters of one statement.
type arguments struct{ values []any }

func (a *arguments) add(value any) int {
	a.values = append(a.values, value)
	return len(a.values)
}

// restrictions are the terms beyond the foreign key that a child row has to meet, each beginning with AND.
func (r *Reference) restrictions(alias string, args *arguments) string {
	var sql strings.Builder
	for _, condition := range r.Conditions {
		sql.WriteString(" AND " + condition.equal(alias, args))
	}
	if r.Definition.OnDelete == definitions.UpdateColumn {
		// NULL counts as different, or such rows would keep their old state for ever.
		fmt.Fprintf(&sql, " AND (%s) IS NOT TRUE", r.Target.equal(alias, args))
	}
	return sql.String()
}

// equal is true for rows of alias whose column has the value.
func (c typedColumn) equal(alias string, args *arguments) string {
	return c.compare.Equal(alias+"."+identifier(c.Column), fmt.Sprintf("$%d::pg_catalog.text::%s", args.add(c.Value), c.Type))
}

// pick is the subquery for at most limit children of keys, an SQL expression, locked by the clause lock. limitAt is 0 for no limit.
func (p *Parent) pick(r *Reference, leaf Table, columns, lock, keys string, limitAt int, args *arguments) string {
	limit := ""
	if limitAt > 0 {
		limit = fmt.Sprintf(" LIMIT $%d", limitAt)
	}
	if p.lookedUp(r, leaf) {
		found := fmt.Sprintf("SELECT %s FROM ONLY %s AS picked WHERE %s%s",
			columns, leaf.SQL(), r.equal("picked", p.parts("wanted.key")), r.restrictions("picked", args))
		return lookUps(columns, keys, found, lock) + r.attached(leaf, args) + limit
	}
	return fmt.Sprintf("SELECT %s FROM ONLY %s AS picked WHERE %s%s%s%s",
		columns, leaf.SQL(), p.matches(r, "picked", keys), r.restrictions("picked", args), r.attached(leaf, args), limit) + lock
}

// matches is true for rows of alias that have one of keys.
func (p *Parent) matches(r *Reference, alias, keys string) string {
	if p.composite() {
		return p.among(r, alias, keys)
	}
	return r.compare[0].Any(alias+"."+identifier(r.Definition.Columns[0]), keys)
}

// waitStatement waits until it has locked at most limit children of keys. The statement behind it in the
// transaction has a newer snapshot: it sees what these rows have become, and a child that was moved to
// another parent in the meantime is no longer among them.
func (p *Parent) waitStatement(r *Reference, leaf Table, keys doomed, limit int) (string, []any) {
	args := &arguments{}
	keysAt, limitAt := args.add(keys.values), args.add(limit)
	return p.pick(r, leaf, "", r.lock(), p.doomed(r, keys, keysAt), limitAt, args), args.values
}

// lock is the clause that locks picked rows. An update that leaves keys alone takes the weaker lock, beside
// which others may still insert rows that refer to the child.
func (r *Reference) lock() string {
	if r.Updates() {
		return " FOR NO KEY UPDATE"
	}
	return " FOR UPDATE"
}

// windowStatement reads pointers to at most limit children of keys.
func (p *Parent) windowStatement(r *Reference, leaf Table, keys doomed, limit int) (string, []any) {
	args := &arguments{}
	keysAt, limitAt := args.add(keys.values), args.add(limit)
	return p.pick(r, leaf, "picked.ctid", "", p.doomed(r, keys, keysAt), limitAt, args), args.values
}

// pieceStatement deletes or changes the children of keys that the pointers lead to. It waits for rows that
// somebody else has locked, or with skip leaves them out; what has moved since is left for the next window.
func (p *Parent) pieceStatement(names pgschema.Names, r *Reference, leaf Table, keys doomed, pointers []pgtype.TID, skip bool) (string, []any) {
	args := &arguments{}
	keysAt, pointersAt := args.add(keys.values), args.add(pointers)
	found := func(alias string) string {
		return fmt.Sprintf("%s.ctid OPERATOR(pg_catalog.=) ANY ($%d::pg_catalog.tid[]) AND (%s%s) IS TRUE%s", alias, pointersAt,
			p.matches(r, alias, p.doomed(r, keys, keysAt)), r.restrictions(alias, args), r.attached(leaf, args))
	}
	if skip {
		picked := fmt.Sprintf("SELECT picked.ctid FROM ONLY %s AS picked WHERE %s%s SKIP LOCKED", leaf.SQL(), found("picked"), r.lock())
		return r.change(names, leaf, p.pointed(r, picked, keysAt, args), args), args.values
	}
	return r.change(names, leaf, found("child"), args), args.values
}

// cleanStatement deletes or changes at most limit children of keys in one leaf, without waiting for rows
// that somebody else has locked. It is built around row pointers, as a LIMIT needs a subquery.
func (p *Parent) cleanStatement(names pgschema.Names, r *Reference, leaf Table, keys doomed, limit int) (string, []any) {
	args := &arguments{}
	keysAt, limitAt := args.add(keys.values), args.add(limit)
	picked := p.pick(r, leaf, "picked.ctid", r.lock()+" SKIP LOCKED", p.doomed(r, keys, keysAt), limitAt, args)
	return r.change(names, leaf, p.pointed(r, picked, keysAt, args), args), args.values
}

// pointed is true for the rows of child that picked has pointers to. The foreign-key condition is repeated on the
// row itself; IS TRUE keeps the planner from serving that by the index, which would compare every child with every
// pointer.
func (p *Parent) pointed(r *Reference, picked string, keysAt int, args *arguments) string {
	return fmt.Sprintf("child.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(%s)) AND (%s%s) IS TRUE",
		picked, p.matches(r, "child", p.keysParameter(keysAt)), r.restrictions("child", args))
}

// directStatement deletes or changes all children of keys in one leaf. It waits for rows that somebody else
// has locked. By composite keys it goes to the rows by pointers, as what is looked up must not be joined with the
// table that is changed; what moves while it waits is left to the pass behind it.
func (p *Parent) directStatement(names pgschema.Names, r *Reference, leaf Table, keys doomed) (string, []any) {
	args := &arguments{}
	keysAt := args.add(keys.values)
	if p.lookedUp(r, leaf) {
		picked := p.pick(r, leaf, "picked.ctid", "", p.doomed(r, keys, keysAt), 0, args)
		return r.change(names, leaf, p.pointed(r, picked, keysAt, args), args), args.values
	}
	where := p.matches(r, "child", p.doomed(r, keys, keysAt)) + r.restrictions("child", args) + r.attached(leaf, args)
	return r.change(names, leaf, where, args), args.values
}

// change is the statement that does to children what the definition says.
func (r *Reference) change(names pgschema.Names, leaf Table, where string, args *arguments) string {
	var sql string
	table := "ONLY " + leaf.SQL() + " AS child"
	if r.moves {
		// The partition itself takes no row that belongs into another one.
		table = r.Child.SQL() + " AS child"
		where = fmt.Sprintf("child.tableoid OPERATOR(pg_catalog.=) $%d::pg_catalog.oid AND %s", args.add(leaf.OID), where)
	}
	switch {
	case r.Definition.OnDelete == definitions.Nullify:
		columns := make([]string, len(r.Definition.Columns))
		for i, column := range r.Definition.Columns {
			columns[i] = identifier(column) + " = NULL"
		}
		sql = fmt.Sprintf("UPDATE %s SET %s WHERE %s", table, strings.Join(columns, ", "), where)
	case r.Definition.OnDelete == definitions.UpdateColumn:
		sql = fmt.Sprintf("UPDATE %s SET %s = $%d::pg_catalog.text::%s WHERE %s",
			table, identifier(r.Target.Column), args.add(r.Target.Value), r.Target.Type, where)
	case r.Definition.CleanerClass == definitions.ArtifactsCleaner:
		sql = withOrphanedFiles(names, r, fmt.Sprintf("DELETE FROM ONLY %s AS child WHERE %s", leaf.SQL(), where))
	default:
		sql = fmt.Sprintf("DELETE FROM ONLY %s AS child WHERE %s", leaf.SQL(), where)
	}
	return sql
}

// attached keeps a statement from a partition that is detached while the run goes on: it is no part of the
// child any more.
func (r *Reference) attached(leaf Table, args *arguments) string {
	if !r.partitioned() {
		return ""
	}
	return fmt.Sprintf(" AND pg_catalog.pg_partition_root($%d::pg_catalog.oid)::pg_catalog.oid OPERATOR(pg_catalog.=) $%d::pg_catalog.oid",
		args.add(leaf.OID), args.add(r.Child.OID))
}

// withOrphanedFiles makes a DELETE also write one event that names table and keys, for the owner of the
// files behind the rows. The statement's affected rows are those of its INSERT, hence the count as a row.
func withOrphanedFiles(names pgschema.Names, r *Reference, deletion string) string {
	return fmt.Sprintf("WITH gone AS (%s RETURNING %s AS key),\nevent AS (%s)\nSELECT pg_catalog.count(*) FROM gone",
		deletion, batch.RowKey("child", r.PrimaryKey),
		batch.OrphanedFiles(names, r.Child.Label(), "", "gone", "HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0"))
}

// exists is true where the reference has a child with the key. OFFSET 0 keeps it a subquery of
// its own: with it pulled up into a join, a hundred definitions would be a join of a hundred tables.
func (r *Reference) exists(key []string, args *arguments) string {
	return fmt.Sprintf("EXISTS (SELECT FROM %s WHERE %s%s OFFSET 0)", r.whole(), r.equal("child", key), r.restrictions("child", args))
}

// whole is the child with all its partitions in a FROM clause. As with real foreign keys, tables that inherit from
// a plain one are not its rows.
func (r *Reference) whole() string {
	if r.partitioned() {
		return r.Child.SQL() + " AS child"
	}
	return "ONLY " + r.Child.SQL() + " AS child"
}

// children is the subquery for the children of keys in all partitions.
func (p *Parent) children(r *Reference, keys string, args *arguments) string {
	if p.composite() && r.Index {
		return lookUps("", keys, fmt.Sprintf("SELECT FROM %s WHERE %s%s",
			r.whole(), r.equal("child", p.parts("wanted.key")), r.restrictions("child", args)), "")
	}
	return fmt.Sprintf("SELECT FROM %s WHERE %s%s", r.whole(), p.matches(r, "child", keys), r.restrictions("child", args))
}

// probeStatement tells in one row, one boolean per reference, which of the references in a database have children of keys:
// one round trip however many definitions there are.
func (p *Parent) probeStatement(database string, keys any, without ...*Reference) (string, []any) {
	args := &arguments{}
	keysAt := 0
	terms := make([]string, len(p.References))
	for i, reference := range p.References {
		terms[i] = "false"
		if reference.Database == database && reference.usable() && !slices.Contains(without, reference) {
			if keysAt == 0 { // Postgres refuses parameters that no term mentions.
				keysAt = args.add(keys)
			}
			terms[i] = fmt.Sprintf("EXISTS (%s OFFSET 0)", p.children(reference, p.keysParameter(keysAt), args))
		}
	}
	return "SELECT ARRAY[" + strings.Join(terms, ", ") + "]", args.values
}

// removeStatement removes those of the tombstones that have no child left in the references marked in
// verify, and returns their ids. References that are also marked in exact are looked at only where the child may
// have kept rows from them. It decides by rows that are not there and never by a count of rows that
// were cleaned: locked rows are skipped, and rows that move during a statement are missed. Row pointers and
// OFFSET 0 make the planner look up one tombstone after the other: statistics of a queue are never right, and
// with wrong ones it read all pending tombstones of the parent in each batch. The keys are left to be confirmed.
func (p *Parent) removeStatement(names pgschema.Names, database string, tombstones []tombstone, verify, exact []bool) (string, []any) {
	args := &arguments{}
	nameAt := args.add(p.Recorded)
	ids, times := places(tombstones)
	idsAt, timesAt := args.add(ids), args.add(times)
	verifyAt, exactAt := 0, 0
	var sql strings.Builder
	table := names.Render(`"public".loose_foreign_keys_deleted_records`)
	fmt.Fprintf(&sql, `WITH removed AS (
DELETE FROM %s AS gone
WHERE gone.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
SELECT tombstone.ctid
FROM unnest($%d::bigint[], $%d::pg_catalog.timestamptz[]) AS finished (id, consume_after)
CROSS JOIN LATERAL (
	SELECT pending.ctid, pending.primary_key_value, pending.primary_key_text
	FROM %s AS pending
	WHERE pending.fully_qualified_table_name OPERATOR(pg_catalog.=) $%d
	AND pending.consume_after OPERATOR(pg_catalog.=) finished.consume_after
	AND pending.id OPERATOR(pg_catalog.=) finished.id
	AND pending.status OPERATOR(pg_catalog.=) 1
	OFFSET 0
) AS tombstone
WHERE true`, table, idsAt, timesAt, table, nameAt)
	for i, reference := range p.References {
		if reference.Remote || !reference.usable() {
			continue
		}
		if verifyAt == 0 { // Postgres refuses parameters that no term mentions.
			verifyAt, exactAt = args.add(verify), args.add(exact)
		}
		fmt.Fprintf(&sql, "\nAND (NOT ($%d::boolean[])[%d] OR ($%d::boolean[])[%d] AND %s OR NOT %s)",
			verifyAt, i+1, exactAt, i+1, reference.undisturbed(args), reference.exists(p.tombstoneKey("tombstone"), args))
	}
	fmt.Fprintf(&sql, `
))
RETURNING gone.id, gone.primary_key_value, gone.primary_key_text
), remembered AS (
INSERT INTO %s (database, parent, integer_keys, text_keys)
SELECT $%d::pg_catalog.text, $%d::pg_catalog.text, pg_catalog.array_agg(removed.primary_key_value) FILTER (WHERE removed.primary_key_value IS NOT NULL),
	pg_catalog.array_agg(removed.primary_key_text) FILTER (WHERE removed.primary_key_text IS NOT NULL)
FROM removed
HAVING %s OPERATOR(pg_catalog.>) 0
)
SELECT removed.id FROM removed`, names.Render(`"sexton".swept`), args.add(database), nameAt,
		batch.CountRows(names, "'processed'", fmt.Sprintf("$%d::pg_catalog.text", args.add(p.Label())), "pg_catalog.count(*)"))
	return sql.String(), args.values
}

// places are the tombstones' places in the index, as parallel arrays.
func places(tombstones []tombstone) (ids []int64, times []pgtype.Timestamptz) {
	ids, times = make([]int64, len(tombstones)), make([]pgtype.Timestamptz, len(tombstones))
	for i, t := range tombstones {
		ids[i], times[i] = t.id, t.consumeAfter
	}
	return ids, times
}

// loadSQL loads due tombstones of one parent behind a keyset position, oldest first.
const loadSQL = `
SELECT tombstone.id, tombstone.consume_after, tombstone.primary_key_value, tombstone.primary_key_text, tombstone.settled_at IS NOT NULL
FROM "public".loose_foreign_keys_deleted_records AS tombstone
WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) $1
  AND tombstone.status OPERATOR(pg_catalog.=) 1
  AND tombstone.consume_after OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
  AND (tombstone.consume_after, tombstone.id) OPERATOR(pg_catalog.>) ($2, $3)
ORDER BY tombstone.consume_after, tombstone.id
LIMIT $4`

// dueSQL tells which parents have due tombstones behind their position.
const dueSQL = `
SELECT parent.name
FROM unnest($1::pg_catalog.text[], $2::pg_catalog.timestamptz[], $3::bigint[]) AS parent (name, consume_after, id)
WHERE EXISTS (
    SELECT FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) parent.name
      AND tombstone.status OPERATOR(pg_catalog.=) 1
      AND tombstone.consume_after OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
      AND (tombstone.consume_after, tombstone.id) OPERATOR(pg_catalog.>) (parent.consume_after, parent.id)
    OFFSET 0
)`

// blameSQL counts an attempt for unfinished tombstones, records why, and returns how many it put off and
// how many there were. After the third attempt a tombstone is put off: one that fails for 5 minutes, doubling up to an hour; one that is
// merely too big for the limits ($5) for 5 minutes, from where it starts afresh, as in GitLab.
const blameSQL = `
WITH blamed AS (
    UPDATE "public".loose_foreign_keys_deleted_records AS tombstone
    SET last_error = $4,
        cleanup_attempts = CASE
            WHEN $5 AND tombstone.cleanup_attempts OPERATOR(pg_catalog.>=) 2 THEN 0
            ELSE least(tombstone.cleanup_attempts OPERATOR(pg_catalog.+) 1, 32767)
        END,
        consume_after = CASE
            WHEN tombstone.cleanup_attempts OPERATOR(pg_catalog.<) 2 THEN tombstone.consume_after
            WHEN $5 THEN pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) interval '5 minutes'
            ELSE pg_catalog.clock_timestamp()
                OPERATOR(pg_catalog.+) least(
                    interval '5 minutes' OPERATOR(pg_catalog.*) pg_catalog.power(2, least(tombstone.cleanup_attempts OPERATOR(pg_catalog.-) 2, 10)),
                    interval '1 hour')
        END
    WHERE tombstone.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
        SELECT found.ctid
        FROM unnest($2::bigint[], $3::pg_catalog.timestamptz[]) AS unfinished (id, consume_after)
        CROSS JOIN LATERAL (
            SELECT pending.ctid
            FROM "public".loose_foreign_keys_deleted_records AS pending
            WHERE pending.fully_qualified_table_name OPERATOR(pg_catalog.=) $1
              AND pending.consume_after OPERATOR(pg_catalog.=) unfinished.consume_after
              AND pending.id OPERATOR(pg_catalog.=) unfinished.id
              AND pending.status OPERATOR(pg_catalog.=) 1
            OFFSET 0
        ) AS found
    ))
    RETURNING tombstone.consume_after
)
SELECT pg_catalog.count(*) FILTER (WHERE blamed.consume_after OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()), pg_catalog.count(*) FROM blamed`

// awaitSQL puts tombstones off for $5 seconds that wait for a database which cannot be reached, and returns how many, in
// the form of blameSQL. That is no attempt.
const awaitSQL = `
WITH waiting AS (
    UPDATE "public".loose_foreign_keys_deleted_records AS tombstone
    SET last_error = $4,
        consume_after = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $5::pg_catalog.float8)
    WHERE tombstone.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
        SELECT found.ctid
        FROM unnest($2::bigint[], $3::pg_catalog.timestamptz[]) AS unfinished (id, consume_after)
        CROSS JOIN LATERAL (
            SELECT pending.ctid
            FROM "public".loose_foreign_keys_deleted_records AS pending
            WHERE pending.fully_qualified_table_name OPERATOR(pg_catalog.=) $1
              AND pending.consume_after OPERATOR(pg_catalog.=) unfinished.consume_after
              AND pending.id OPERATOR(pg_catalog.=) unfinished.id
              AND pending.status OPERATOR(pg_catalog.=) 1
            OFFSET 0
        ) AS found
    ))
    RETURNING 1
)
SELECT pg_catalog.count(*), pg_catalog.count(*) FROM waiting`

func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }

// identifiers is a list of column names.
func identifiers(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = identifier(name)
	}
	return strings.Join(quoted, ", ")
}
