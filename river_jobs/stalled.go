package riverjobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
)

// stalledSQL finds a job of kind $1 for database $2 that has waited for a fetch for 30 s, or been running as long without a run.
const stalledSQL = `
SELECT job.id, job.state = 'running', coalesce(job.attempted_by[pg_catalog.cardinality(job.attempted_by)], ''), since.at
FROM "sexton".river_job AS job
CROSS JOIN LATERAL (SELECT CASE WHEN job.state = 'running' THEN job.attempted_at ELSE job.scheduled_at END AS at) AS since
WHERE job.state IN ('available', 'running')
  AND job.queue = $1
  AND coalesce(job.args ->> 'database', $2) = $2
  AND since.at < pg_catalog.clock_timestamp() - interval '30 seconds'
  AND (job.state = 'available' OR NOT EXISTS (
      SELECT FROM "sexton".runs AS run
      WHERE run.kind = $1 AND run.database = $2 AND run.ended_at IS NULL AND run.started_at >= job.attempted_at
  ))
ORDER BY since.at
LIMIT 1`

// Stalled says which job of a kind with a schedule has been given to no worker, or to one that does not work on it, or "".
func Stalled(ctx context.Context, jobs database.Database, kind, name string) (string, error) {
	var id int64
	var running bool
	var client string
	var since time.Time
	err := jobs.Pool.QueryRow(ctx, jobs.Names.Render(stalledSQL), kind, name).Scan(&id, &running, &client, &since)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for jobs that stand still: %w", err)
	case running:
		return fmt.Sprintf("worker %s: job %d counts as running there since %s, and has no run", client, id, since.UTC().Format(time.RFC3339)), nil
	}
	return fmt.Sprintf("a worker: none has fetched job %d, available since %s", id, since.UTC().Format(time.RFC3339)), nil
}
