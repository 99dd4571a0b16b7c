package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// The session is found by the name that begin_batch gave it: behind a transaction pooler the process id that its connection
// knows is not the server's. Of several holders the one with the oldest transaction is named. A prepared transaction
// has the process id 0 and no row in pg_stat_activity, and the time is null where the role may not see it.
const blockerSQL = `
SELECT CASE
        WHEN waiting.wait_event IN ('transactionid', 'tuple') THEN 'row locked'
        WHEN waiting.wait_event = 'relation' THEN 'table locked'
        ELSE 'lock held'
    END || ' by ' || CASE WHEN blocker.pid = 0 THEN 'a prepared transaction' ELSE 'pid ' || blocker.pid END
    || coalesce(' (' || coalesce(nullif(holder.application_name, ''), holder.usename::text) || ')', '')
    || coalesce(' since ' || to_char(
        holder.xact_start AT TIME ZONE 'UTC',
        CASE WHEN holder.xact_start > now() - interval '12 hours' THEN 'HH24:MI:SS"Z"' ELSE 'YYYY-MM-DD"T"HH24:MI:SS"Z"' END
    ), '')
FROM pg_catalog.pg_stat_activity AS waiting
CROSS JOIN LATERAL unnest(pg_catalog.pg_blocking_pids(waiting.pid)) AS blocker (pid)
LEFT JOIN pg_catalog.pg_stat_activity AS holder ON holder.pid = blocker.pid
WHERE waiting.datname = current_database()
  AND waiting.wait_event_type = 'Lock'
  AND waiting.application_name = "sexton".session_name($1) || '#' || $2::bigint
ORDER BY holder.xact_start NULLS LAST, blocker.pid
LIMIT 1`

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Blocker asks on another connection whom the session's running transaction waits for: "row locked by pid 4711 (psql) since
// 14:02:03Z", in UTC. It is "" where the transaction waits for nobody. Unlike the other methods it may be called
// while a transaction runs.
func (s *Session) Blocker(ctx context.Context, on querier) (string, error) {
	var text string
	err := on.QueryRow(ctx, s.Names.Render(blockerSQL), s.Fence.Key(), s.Fence.Token()).Scan(&text)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("look who blocks %s: %w", s.Fence.Key(), err)
	}
	return text, nil
}
