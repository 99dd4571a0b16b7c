package extdiff

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

// Queued are the objects that wait to be removed.
type Queued struct {
	// Objects stops at 10,000; Capped tells that there are more.
	Objects int64
	Capped  bool
	// Oldest is how long the first of them has been waiting.
	Oldest time.Duration
}

const (
	readableSQL = `SELECT coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass('"sexton".external_diff_removals'), 'SELECT'), false)`

	// Entries come in the order of their ids, as good as.
	queuedSQL = `
SELECT pg_catalog.count(*), coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.min(queued.queued_at)), 0)::pg_catalog.float8
FROM (SELECT removal.queued_at FROM "sexton".external_diff_removals AS removal ORDER BY removal.id LIMIT $1) AS queued`
)

// ReadQueued reads how many objects wait to be removed where external diffs are not enabled: their trigger queues objects all the
// same, and the functions of the newest version may be missing. There are none where the component was never installed, or the role
// may not know.
func ReadQueued(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) (Queued, error) {
	var queued Queued
	var readable bool
	var seconds float64
	err := db.QueryRow(ctx, names.Render(readableSQL)).Scan(&readable)
	if err == nil && readable {
		err = db.QueryRow(ctx, names.Render(queuedSQL), backlogCap+1).Scan(&queued.Objects, &seconds)
	}
	if err != nil {
		return queued, fmt.Errorf("count objects to be removed: %w", err)
	}
	queued.Capped = queued.Objects > backlogCap
	queued.Objects = min(queued.Objects, backlogCap)
	queued.Oldest = time.Duration(max(0, seconds) * float64(time.Second))
	return queued, nil
}
