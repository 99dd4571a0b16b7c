package loosefk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgschema"
)

// Only the texts without a table of the user's in them go through pgschema.Render as a whole: a user's table
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
	keysAt := 0
	terms := make([]string, len(p.References))
	for i, reference := range p.References {
		terms[i] = "false"
		if reference.Database == database && reference.Usable() && !slices.Contains(without, reference) {
			if keysAt == 0 { // Postgres refuses parameters that no term mentions.
				keysAt = args.Add(keys)
			}
			terms[i] = fmt.Sprintf("EXISTS (%s OFFSET 0)", reference.Rows(&p.Key, p.Parameter(keysAt), args))
		}
	}
	return "SELECT ARRAY[" + strings.Join(terms, ", ") + "]", args.Values
}

// removeStatement removes those of the tombstones that have no child left in the references marked in
// verify, and returns their ids. References that are also marked in exact are looked at only where the child may
// have kept rows from them. It decides by rows that are not there and never by a count of rows that
// were cleaned: locked rows are skipped, and rows that move during a statement are missed. Row pointers and
// OFFSET 0 make the planner look up one tombstone after the other: statistics of a queue are never right, and
// with wrong ones it read all pending tombstones of the parent in each batch. The keys are left to be confirmed.
func (p *Parent) removeStatement(names pgschema.Names, database string, tombstones []tombstone, verify, exact []bool) (string, []any) {
	args := &drain.Args{}
	nameAt := args.Add(p.Recorded)
	ids, times := places(tombstones)
	idsAt, timesAt := args.Add(ids), args.Add(times)
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
		if reference.Remote || !reference.Usable() {
			continue
		}
		if verifyAt == 0 { // Postgres refuses parameters that no term mentions.
			verifyAt, exactAt = args.Add(verify), args.Add(exact)
		}
		fmt.Fprintf(&sql, "\nAND (NOT ($%d::boolean[])[%d] OR ($%d::boolean[])[%d] AND %s OR NOT %s)",
			verifyAt, i+1, exactAt, i+1, reference.Undisturbed(args), reference.Exists(p.TombstoneKey("tombstone"), args))
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
SELECT removed.id FROM removed`, names.Render(`"sexton".swept`), args.Add(database), nameAt,
		batch.CountRows(names, "'processed'", fmt.Sprintf("$%d::pg_catalog.text", args.Add(p.Label())), "pg_catalog.count(*)"))
	return sql.String(), args.Values
}

// places are the tombstones' places in the index, as parallel arrays.
func places(tombstones []tombstone) (ids []int64, times []pgtype.Timestamptz) {
	ids, times = make([]int64, len(tombstones)), make([]pgtype.Timestamptz, len(tombstones))
	for i, t := range tombstones {
		ids[i], times[i] = t.id, t.consumeAfter
	}
	return ids, times
}

// loadSQL loads at most $4 due tombstones of parents behind a keyset position each, oldest first.
const loadSQL = `
SELECT parent.name, due.*
FROM unnest($1::pg_catalog.text[], $2::pg_catalog.timestamptz[], $3::bigint[]) AS parent (name, consume_after, id)
CROSS JOIN LATERAL (
    SELECT tombstone.id, tombstone.consume_after, tombstone.primary_key_value, tombstone.primary_key_text, tombstone.settled_at IS NOT NULL
    FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) parent.name
      AND tombstone.status OPERATOR(pg_catalog.=) 1
      AND tombstone.consume_after OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
      AND (tombstone.consume_after, tombstone.id) OPERATOR(pg_catalog.>) (parent.consume_after, parent.id)
    ORDER BY tombstone.consume_after, tombstone.id
    LIMIT $4
) AS due
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

// identifiers is a list of column names.
func identifiers(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = pgcatalog.Quote(name)
	}
	return strings.Join(quoted, ", ")
}
