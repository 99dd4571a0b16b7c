package loosefk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/each"
	"sexton/internal/pgcatalog"
)

// Only the texts without a table of the user's in them go through pgcatalog.Render as a whole: a user's table
// may itself live in a schema called public.

// TombstoneKey is the key of a tombstone row, one value per column.
func (p *Parent) TombstoneKey(tombstone string) []string {
	if p.Integer {
		return []string{tombstone + ".primary_key_value"}
	}
	return p.Stored(tombstone + ".primary_key_text")
}

// probeStatement tells in one row, one boolean per reference, which of the references in a database have children of keys:
// one round trip however many definitions there are.
func (p *Parent) probeStatement(database string, keys any, without ...*Reference) (string, []any) {
	args := &drain.Args{}
	keysAt, terms := args.Once(keys), make([]string, len(p.References))
	for i, reference := range p.References {
		terms[i] = "false"
		if reference.Database == database && reference.Usable() && !slices.Contains(without, reference) {
			terms[i] = fmt.Sprintf("EXISTS (%s OFFSET 0)", reference.Rows(&p.Key, p.Parameter(keysAt()), args))
		}
	}
	return "SELECT ARRAY[" + strings.Join(terms, ", ") + "]", args.Values
}

// removeStatement removes those of the tombstones that have no child left in the references marked in
// verify, and returns their ids. References that are also marked in exact are looked at only where the child may
// have kept rows from them. It decides by rows that are not there and never by a count of rows that
// were cleaned: locked rows are skipped, and rows that move during a statement are missed. Row pointers and
// OFFSET 0 make the planner look up one tombstone after the other: statistics of a queue are never right, and
// with wrong ones it read all pending tombstones of the parent in each batch. With loaded it finds the rows that were loaded, and no
// tombstone that was written since, for half of the time. The keys are left to be confirmed.
func (p *Parent) removeStatement(names pgcatalog.Names, database string, tombstones []tombstone, loaded bool, verify, exact []bool) (string, []any) {
	args := &drain.Args{}
	nameAt := args.Add(p.Recorded)
	ids, times := positions(tombstones)
	finished := fmt.Sprintf("pg_catalog.unnest($%d::bigint[]), pg_catalog.unnest($%d::pg_catalog.timestamptz[])", args.Add(ids), args.Add(times))
	found, at := "id, consume_after", ""
	if loaded {
		finished += fmt.Sprintf(", pg_catalog.unnest($%d::pg_catalog.tid[])", args.Add(each.Of(tombstones, func(t tombstone) pgtype.TID { return t.tuple })))
		found += ", tuple"
		at = "pending.ctid OPERATOR(pg_catalog.=) finished.tuple AND "
	}
	origin, origins, collected := "", "", ""
	if len(tombstones) > 0 && tombstones[0].kept() {
		origin, origins, collected = ", gone.origin", ", origins", ", pg_catalog.array_agg(removed.origin)"
	}
	verifyAt, exactAt := args.Once(verify), args.Once(exact)
	var sql strings.Builder
	table := names.Render(`"public".loose_foreign_keys_deleted_records`)
	fmt.Fprintf(&sql, `WITH removed AS (
DELETE FROM %s AS gone
WHERE gone.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
SELECT tombstone.ctid
FROM ROWS FROM (%s) AS finished (%s)
CROSS JOIN LATERAL (
	SELECT pending.ctid, pending.primary_key_value, pending.primary_key_text
	FROM %s AS pending
	WHERE %spending.fully_qualified_table_name OPERATOR(pg_catalog.=) $%d
	AND pending.consume_after OPERATOR(pg_catalog.=) finished.consume_after
	AND pending.id OPERATOR(pg_catalog.=) finished.id
	AND pending.status OPERATOR(pg_catalog.=) 1
	OFFSET 0
) AS tombstone
WHERE true`, table, finished, found, table, at, nameAt)
	for i, reference := range p.References {
		if reference.Remote || !reference.Usable() {
			continue
		}
		fmt.Fprintf(&sql, "\nAND (NOT ($%d::boolean[])[%d] OR ($%d::boolean[])[%d] AND %s OR NOT %s)",
			verifyAt(), i+1, exactAt(), i+1, reference.Undisturbed(args), reference.Exists(p.TombstoneKey("tombstone"), args))
	}
	fmt.Fprintf(&sql, `
))
RETURNING gone.id, gone.primary_key_value, gone.primary_key_text%s
), remembered AS (
INSERT INTO %s (database, parent, parent_oid, integer_keys, text_keys%s)
SELECT $%d::pg_catalog.text, $%d::pg_catalog.text, $%d::pg_catalog.oid,
	pg_catalog.array_agg(removed.primary_key_value) FILTER (WHERE removed.primary_key_value IS NOT NULL),
	pg_catalog.array_agg(removed.primary_key_text) FILTER (WHERE removed.primary_key_text IS NOT NULL)%s
FROM removed
HAVING %s OPERATOR(pg_catalog.>) 0%s
)
SELECT removed.id FROM removed`, origin, names.Render(`"sexton".swept`), origins, args.Add(database), nameAt, args.Add(p.OID), collected,
		batch.CountRows(names, "'processed'", fmt.Sprintf("$%d::pg_catalog.text", args.Add(p.Label())), "pg_catalog.count(*)"), keeps(tombstones))
	return sql.String(), args.Values
}

// forgetStatement removes rows of a database where no reference has a child of keys.
func (p *Parent) forgetStatement(names pgcatalog.Names, database string, ids []int64, keys any) (string, []any) {
	args := &drain.Args{}
	var sql strings.Builder
	sql.WriteString("\n" + names.Render(statement("forget")))
	args.Add(database)
	args.Add(ids)
	keysAt := args.Once(keys)
	for _, reference := range p.References {
		if reference.Usable() {
			fmt.Fprintf(&sql, "\n  AND NOT EXISTS (%s OFFSET 0)", reference.Rows(&p.Key, p.Parameter(keysAt()), args))
		}
	}
	return sql.String(), args.Values
}

// lateStatement removes rows and writes the tombstones that the parent's trigger would write for those of their keys
// that have a child in a live reference, or are among the keys with remote children. A parent that was made anew owns
// its children. With kept, tombstones go on to name the sets that their parents are kept in.
func (p *Parent) lateStatement(
	names pgcatalog.Names, database string, ids []int64, keys, remoteKeys any, live []bool, kept bool,
) (string, []any) {
	args := &drain.Args{}
	databaseAt, idsAt, nameAt, keysAt := args.Add(database), args.Add(ids), args.Add(p.Recorded), args.Add(keys)
	column, form, key := p.candidate()
	terms := []string{fmt.Sprintf("candidate.key OPERATOR(pg_catalog.=) ANY ($%d::%s[])", args.Add(remoteKeys), form)}
	terms = append(terms, p.children(func(r *Reference) bool { return !r.Remote }, key, live, args)...)
	returning, origin, former := "", "", ""
	if kept {
		list, of := "text_keys", "coalesce(swept.text_keys, swept.integer_keys::pg_catalog.text[]) AS text_keys" // The key's type may have changed.
		if p.Integer {
			list, of = "integer_keys", "swept.integer_keys"
		}
		returning, origin = " RETURNING "+of+", swept.origins", ", origin"
		former = fmt.Sprintf(`, (
	SELECT pg_catalog.max(former.origin)
	FROM confirmed
	CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(confirmed.%s), pg_catalog.unnest(confirmed.origins)) AS former (key, origin)
	WHERE former.key OPERATOR(pg_catalog.=) candidate.key
)`, list)
	}
	return fmt.Sprintf(`WITH confirmed AS (
DELETE FROM %s AS swept WHERE swept.database OPERATOR(pg_catalog.=) $%d AND swept.id OPERATOR(pg_catalog.=) ANY ($%d::bigint[])%s
), late AS (
INSERT INTO %s (fully_qualified_table_name, %s%s)
SELECT DISTINCT $%d::pg_catalog.text, candidate.key%s
FROM pg_catalog.unnest($%d::%s[]) AS candidate (key)
WHERE %s
AND (%s)
RETURNING 1
)
SELECT pg_catalog.count(*) FROM late`, names.Render(`"sexton".swept`), databaseAt, idsAt, returning,
		names.Render(`"public".loose_foreign_keys_deleted_records`), column, origin, nameAt, former, keysAt, form, p.Without(key),
		strings.Join(terms, "\nOR ")), args.Values
}

// positions are the tombstones' positions in the index, as parallel arrays.
func positions(tombstones []tombstone) (ids []int64, times []pgtype.Timestamptz) {
	times, ids = arrays(each.Of(tombstones, func(t tombstone) position { return t.position }))
	return ids, times
}
