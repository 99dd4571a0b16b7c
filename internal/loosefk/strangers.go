package loosefk

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/dbsqlc"
)

// Tombstones may carry a name that no definition knows: that of a table which was swapped with another one, detached
// from its root or renamed. The trigger has left the name that it was installed under and the table's OID with them.
// A tombstone means the table that has its name now; only where none has it, the table itself, by whatever name. Both
// failing, it is about that table whose trigger it came from. Whether its parent lives is looked up there.

// strangersSQL lists the names of waiting tombstones that are not among $1.
const strangersSQL = "SELECT parent.name FROM (" + dbsqlc.TombstoneParentsSQL + ") AS parent\n" +
	"WHERE parent.name OPERATOR(pg_catalog.<>) ALL ($1::pg_catalog.text[])"

// adoptPages bounds the pages of one run. The next run goes on where it ends.
const adoptPages = 10

// adoptSQL reads $2 tombstones of each of the names $1 behind a position ($6, $7), and gives them to the parents that they are
// about, of schemas $3 and tables $4 and called $5 in tombstones, due at once. It returns where it has come to with each name, and
// how many it has read.
const adoptSQL = `
WITH stranger AS MATERIALIZED (
    SELECT named.name, named.consume_after, named.id, EXISTS (
        SELECT FROM pg_catalog.pg_class AS class
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid OPERATOR(pg_catalog.=) class.relnamespace
        WHERE pg_catalog.format('%I.%I', namespace.nspname, class.relname) OPERATOR(pg_catalog.=) named.name
    ) AS present
    FROM ROWS FROM (
        pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($6::pg_catalog.timestamptz[]), pg_catalog.unnest($7::pg_catalog.int8[])
    ) AS named (name, consume_after, id)
), home AS MATERIALIZED (
    SELECT known.recorded AS name, class.oid
    FROM unnest($3::pg_catalog.text[], $4::pg_catalog.text[], $5::pg_catalog.text[]) AS known (schema, name, recorded)
    LEFT JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname OPERATOR(pg_catalog.=) known.schema
    LEFT JOIN pg_catalog.pg_class AS class ON class.relnamespace OPERATOR(pg_catalog.=) namespace.oid AND class.relname OPERATOR(pg_catalog.=) known.name
), page AS MATERIALIZED (
    SELECT stranger.name AS stranger, waiting.place, waiting.consume_after, waiting.id, (
        SELECT home.name
        FROM home
        WHERE NOT stranger.present AND home.oid OPERATOR(pg_catalog.=) waiting.parent_oid OR home.name OPERATOR(pg_catalog.=) waiting.tracked_as
        ORDER BY home.name OPERATOR(pg_catalog.=) waiting.tracked_as
        LIMIT 1
    ) AS home
    FROM stranger
    CROSS JOIN LATERAL (
        SELECT tombstone.ctid AS place, tombstone.consume_after, tombstone.id, tombstone.parent_oid, tombstone.tracked_as
        FROM "public".loose_foreign_keys_deleted_records AS tombstone
        WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) stranger.name AND tombstone.status OPERATOR(pg_catalog.=) 1
            AND (tombstone.consume_after, tombstone.id) OPERATOR(pg_catalog.>) (stranger.consume_after, stranger.id)
        ORDER BY tombstone.consume_after, tombstone.id
        LIMIT $2
    ) AS waiting
), free AS MATERIALIZED (
    SELECT waiting.ctid AS place, page.home
    FROM page
    CROSS JOIN LATERAL (
        SELECT tombstone.ctid
        FROM "public".loose_foreign_keys_deleted_records AS tombstone
        WHERE tombstone.ctid OPERATOR(pg_catalog.=) page.place
            AND tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) page.stranger AND tombstone.status OPERATOR(pg_catalog.=) 1
        OFFSET 0
        FOR UPDATE SKIP LOCKED
    ) AS waiting
    WHERE page.home IS NOT NULL
), adopted AS (
    UPDATE "public".loose_foreign_keys_deleted_records AS tombstone
    SET fully_qualified_table_name = free.home, consume_after = pg_catalog.clock_timestamp(), cleanup_attempts = 0, settled_at = NULL
    FROM free
    WHERE tombstone.ctid OPERATOR(pg_catalog.=) free.place
)
SELECT DISTINCT ON (page.stranger) page.stranger, page.consume_after, page.id, pg_catalog.count(*) OVER (PARTITION BY page.stranger)
FROM page
ORDER BY page.stranger, page.consume_after DESC, page.id DESC`

// adopt gives tombstones of unknown names to the parents that they are about. Those without one stay: a run goes on behind the
// ones that earlier runs have passed over, and after the last one from the beginning.
func (r *run) adopt(ctx context.Context, strangers []string) error {
	schemas, names := namesOf(r.engine.Parents)
	recorded := make([]string, len(names))
	for i, parent := range r.engine.Parents {
		recorded[i] = parent.Recorded
	}
	passed := r.engine.Marks.passedOver()
	// A database may print all names in quotes, which tombstones have where they need them.
	unquoted := batch.Statement{SQL: "SET LOCAL quote_all_identifiers = off"}
	size := cmp.Or(r.engine.page, pageSize)
	for page := 0; page < adoptPages && len(strangers) > 0 && !r.ended(); page++ {
		times, ids := make([]pgtype.Timestamptz, len(strangers)), make([]int64, len(strangers))
		for i, name := range strangers {
			at, known := passed[name]
			if !known {
				at = beginning()
			}
			times[i], ids[i] = at.consumeAfter, at.id
			delete(passed, name)
		}
		asked := strangers
		strangers = nil
		_, err := r.engine.Session.Run(ctx, unquoted, batch.Statement{
			SQL: r.engine.Session.Names.Render(adoptSQL), Args: []any{asked, size, schemas, names, recorded, times, ids},
			Scan: func(rows pgx.Rows) error {
				var name string
				var at position
				var read int
				_, err := pgx.ForEachRow(rows, []any{&name, &at.consumeAfter, &at.id, &read}, func() error {
					if read == size {
						strangers, passed[name] = append(strangers, name), at
					}
					return nil
				})
				return err
			},
		})
		if err != nil {
			return fmt.Errorf("find the parents of tombstones with unknown names: %w", err)
		}
	}
	r.engine.Marks.passOver(passed)
	return nil
}

// known are the names of the lanes' parents.
func (r *run) known() []string {
	names := make([]string, len(r.lanes))
	for i, l := range r.lanes {
		names[i] = l.parent.Recorded
	}
	return names
}

// strangers is the statement that looks for unknown names.
func (r *run) strangers(names *[]string) batch.Statement {
	return batch.Statement{SQL: r.engine.Session.Names.Render(strangersSQL), Args: []any{r.known()}, Scan: func(rows pgx.Rows) (err error) {
		*names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}}
}
