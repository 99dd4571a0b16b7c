package app

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/words"
	"sexton/triggers"
)

// awakeHoldersSQL finds sessions other than workers that hold a lock with the two keys, in whatever mode. An
// advisory lock with two keys has objsubid 2.
const awakeHoldersSQL = `
SELECT pg_catalog.format('pid %s (%s)', held.pid, coalesce(nullif(session.application_name, ''), 'no application_name'))
FROM pg_catalog.pg_locks AS held
LEFT JOIN pg_catalog.pg_stat_activity AS session ON session.pid = held.pid
WHERE held.locktype = 'advisory'
  AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
  AND held.classid = $1::bigint::pg_catalog.oid
  AND held.objid = $2::bigint::pg_catalog.oid
  AND held.objsubid = 2
  AND held.granted
  AND NOT pg_catalog.starts_with(coalesce(session.application_name, ''), 'sexton')
ORDER BY held.pid`

// foreignAwake says which sessions keep a kind's awake lock from the workers of a database, or "" where none
// does. In exclusive mode it keeps writers from waking anybody, so that work waits until the next look.
func foreignAwake(ctx context.Context, db database.Database, kind string) (string, error) {
	key1, key2 := triggers.AwakeKey(db.Names.Jobs, kind)
	rows, err := db.Pool.Query(ctx, awakeHoldersSQL, int64(uint32(key1)), int64(uint32(key2)))
	if err != nil {
		return "", fmt.Errorf("look who holds the awake lock of %s: %w", kind, err)
	}
	holders, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", fmt.Errorf("look who holds the awake lock of %s: %w", kind, err)
	}
	if len(holders) == 0 {
		return "", nil
	}
	return "awake lock held by " + words.Listed(holders), nil
}
