package loosefk

import (
	"cmp"
	"fmt"
	"time"
)

// Confirming says for how long removed tombstones are remembered. The zero value of a field is its default.
type Confirming struct {
	// Within bounds the wait for older transactions (1 h).
	Within time.Duration
	// Grace is how long sessions are waited for whose transactions the role may not see (10 min).
	Grace time.Duration
}

func (c Confirming) within() float64 { return cmp.Or(c.Within, time.Hour).Seconds() }
func (c Confirming) grace() float64  { return cmp.Or(c.Grace, 10*time.Minute).Seconds() }

// A parent is gone for every transaction that begins after its deletion. One that is older may have seen it, and
// insert a child at any time: not only while it has no transaction id yet, so no horizon of ids tells. Hence the
// first gate, before which all sessions must have ended their transactions that began before a tombstone was removed.
//
// Such a transaction may become a prepared one. It is listed as prepared before its session counts as idle, so
// a look at sessions first and at prepared transactions in a later statement misses none: the second gate is
// that those which there were after the first have ended. Both commits are visible before a transaction disappears
// from its list. The look at children must be a later statement again.
//
// Both gates open for older rows first.
//
// Where a parent has children in another database, the transactions there count as well. Two servers' clocks cannot be
// compared, but lengths of time can: what is open there began at most so long before a moment here that was read first.
// A prepared transaction there does not tell when it began, and keeps the gate shut.

// horizonQuery returns in one row the time before which no session has a transaction open (infinity where none is
// open at all), and whether there are sessions whose transactions cannot be seen: those of other roles, and those
// that do not report. Autovacuum inserts nothing, parallel workers have a leader. A transaction that began in the future began before
// the clock was set back, and counts as older than everything.
func horizonQuery(grace int) string {
	return fmt.Sprintf(`SELECT
    coalesce(pg_catalog.min(CASE WHEN session.seen AND session.xact_start OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() THEN '-infinity'
        WHEN session.seen THEN session.xact_start
        ELSE pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $%d::pg_catalog.float8) END), 'infinity') AS horizon,
    coalesce(pg_catalog.bool_or(NOT session.seen), false) AS blind
FROM (
    SELECT activity.xact_start,
           (activity.state OPERATOR(pg_catalog.=) 'disabled') IS NOT TRUE
               AND (pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') OR coalesce(pg_catalog.pg_has_role(activity.usesysid, 'USAGE'), false)) AS seen
    FROM pg_catalog.pg_stat_activity AS activity
    WHERE activity.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
      AND activity.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
      AND activity.usesysid IS NOT NULL
      AND coalesce(activity.backend_type, '') OPERATOR(pg_catalog.<>) ALL ('{autovacuum worker,parallel worker}')
      AND (activity.usename OPERATOR(pg_catalog.=) current_user AND activity.application_name OPERATOR(pg_catalog.=) '%s') IS NOT TRUE
) AS session`, grace, longName)
}

// preparedQuery lists the prepared transactions of the database.
const preparedQuery = `SELECT prepared.transaction FROM pg_catalog.pg_prepared_xacts AS prepared
WHERE prepared.database OPERATOR(pg_catalog.=) pg_catalog.current_database()`

// ripe is how old a removed tombstone is before a run begins for its sake alone. Runs that have something to do
// confirm younger ones on the way.
const ripe = "interval '1 second'"

// ConfirmableSQL is an expression: whether a run would find something to confirm. The arguments number its parameters:
// the configured name of the database, and the two settings in seconds.
func ConfirmableSQL(database, within, grace int) string {
	return fmt.Sprintf(`coalesce((
    SELECT oldest.swept_at OPERATOR(pg_catalog.<=) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) %s) AND CASE
        WHEN oldest.swept_at OPERATOR(pg_catalog.<=) (pg_catalog.clock_timestamp()
            OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $%d::pg_catalog.float8)) THEN true
        WHEN oldest.prepared IS NOT NULL THEN NOT oldest.prepared OPERATOR(pg_catalog.&&) ARRAY(%s)
        ELSE oldest.swept_at OPERATOR(pg_catalog.<) (SELECT gate.horizon FROM (%s) AS gate)
    END
    FROM (
        SELECT swept.swept_at, swept.prepared
        FROM "sexton".swept AS swept
        WHERE swept.database OPERATOR(pg_catalog.=) $%d
          AND (swept.not_before IS NULL OR swept.not_before OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp())
        ORDER BY swept.id
        LIMIT 1
    ) AS oldest
), false)`, ripe, within, preparedQuery, horizonQuery(grace), database)
}

// horizonSQL is horizonQuery and the time where database $1 has anything to confirm, and no row elsewhere. It keeps the horizon for sweptSQL in the
// same transaction, as seconds: as text a time may be read back in another zone.
func horizonSQL() string {
	return fmt.Sprintf(`SELECT gate.horizon, gate.blind, pg_catalog.clock_timestamp(),
    pg_catalog.set_config('sexton.horizon', extract(epoch FROM gate.horizon)::pg_catalog.text, true)
FROM (%s) AS gate
WHERE EXISTS (SELECT FROM "sexton".swept AS swept WHERE swept.database OPERATOR(pg_catalog.=) $1)`, horizonQuery(2))
}

// sweptSQL reads rows of database $1 behind id $2, oldest first: what they are about, whether they have been waited
// for long enough ($5) and twice as long, whether both gates are open, whether the first one is (horizon $4, or the kept one) while prepared
// transactions are there, which are to be noted then, and whether transactions in other databases alone keep them shut
// (parents $6, horizon $7).
const sweptSQL = `
SELECT oldest.id, oldest.parent, oldest.integer_keys, oldest.text_keys, oldest.early, oldest.expired,
       gate.here AND gate.elsewhere AS open,
       oldest.prepared IS NULL AND oldest.swept_at OPERATOR(pg_catalog.<) present.horizon
           AND pg_catalog.cardinality(present.transactions) OPERATOR(pg_catalog.<>) 0 AS unnoted,
       gate.here AND NOT gate.elsewhere AS held
FROM (
    SELECT swept.*,
           swept.swept_at OPERATOR(pg_catalog.<=) (pg_catalog.clock_timestamp()
               OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $5::pg_catalog.float8)) AS early,
           swept.swept_at OPERATOR(pg_catalog.<=) (pg_catalog.clock_timestamp()
               OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => 2::pg_catalog.float8 OPERATOR(pg_catalog.*) $5::pg_catalog.float8)) AS expired
    FROM "sexton".swept AS swept
    WHERE swept.database OPERATOR(pg_catalog.=) $1
      AND swept.id OPERATOR(pg_catalog.>) $2
      AND (swept.not_before IS NULL OR swept.not_before OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp())
    ORDER BY swept.id
    LIMIT $3
) AS oldest
CROSS JOIN (
    SELECT ARRAY(` + preparedQuery + `) AS transactions, coalesce(
        $4::pg_catalog.timestamptz,
        CASE WHEN pg_catalog.current_setting('sexton.horizon', true) OPERATOR(pg_catalog.<>) ''
            THEN pg_catalog.to_timestamp(pg_catalog.current_setting('sexton.horizon')::pg_catalog.float8) END,
        '-infinity'
    ) AS horizon
) AS present
CROSS JOIN LATERAL (
    SELECT CASE WHEN oldest.prepared IS NULL THEN oldest.swept_at OPERATOR(pg_catalog.<) present.horizon
            AND pg_catalog.cardinality(present.transactions) OPERATOR(pg_catalog.=) 0
                ELSE NOT oldest.prepared OPERATOR(pg_catalog.&&) present.transactions END AS here,
           NOT oldest.parent OPERATOR(pg_catalog.=) ANY ($6::pg_catalog.text[])
               OR oldest.swept_at OPERATOR(pg_catalog.<) $7::pg_catalog.timestamptz AS elsewhere
) AS gate
ORDER BY oldest.id`

// noteSQL notes the prepared transactions for rows whose first gate is open. Transactions that have ended since it was
// found open need not be waited for.
const noteSQL = `
UPDATE "sexton".swept AS swept
SET prepared = ARRAY(` + preparedQuery + `)
WHERE swept.database OPERATOR(pg_catalog.=) $1 AND swept.id OPERATOR(pg_catalog.=) ANY ($2::bigint[]) AND swept.prepared IS NULL`

// forgetSQL removes confirmed rows.
const forgetSQL = `
DELETE FROM "sexton".swept AS swept
WHERE swept.database OPERATOR(pg_catalog.=) $1 AND swept.id OPERATOR(pg_catalog.=) ANY ($2::bigint[])`

// ageSQL tells in another database for how many seconds its oldest transaction has been open, and whether there are any
// that cannot be seen.
func ageSQL() string {
	return fmt.Sprintf(`SELECT CASE WHEN gate.horizon OPERATOR(pg_catalog.=) 'infinity' THEN 0 WHEN gate.horizon OPERATOR(pg_catalog.=) '-infinity' THEN 1e9
    ELSE greatest(extract(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) gate.horizon), 0) END::pg_catalog.float8, gate.blind
FROM (%s) AS gate`, horizonQuery(1))
}

// holdSQL keeps rows $2, and all rows of parent $4 that are due, from being looked at for $3 seconds.
const holdSQL = `
UPDATE "sexton".swept AS swept
SET not_before = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3::pg_catalog.float8)
WHERE swept.database OPERATOR(pg_catalog.=) $1
  AND (swept.id OPERATOR(pg_catalog.=) ANY ($2::bigint[])
      OR swept.parent OPERATOR(pg_catalog.=) $4 AND (swept.not_before IS NULL OR swept.not_before OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()))`
