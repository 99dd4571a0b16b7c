package riverjobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
)

// QueueState describes one queue of River's.
type QueueState struct {
	Queue  string
	Paused bool
	// Since is when River made the queue, which it forgets a day after the last worker that served it; zero: there is none.
	Since time.Time
	// Jobs counts the jobs by state, up to the cap.
	Jobs map[string]int64
}

// Each count reads one stretch of the index by which River fetches its jobs, in its order. Without that order the planner expects to meet
// enough jobs soon in a table that was not vacuumed lately, and reads all of it for a queue or state that has none.
const queueStatesSQL = `
SELECT wanted.name,
    EXISTS (SELECT FROM "sexton".river_queue AS queue WHERE queue.name = wanted.name AND queue.paused_at IS NOT NULL),
    (SELECT queue.created_at FROM "sexton".river_queue AS queue WHERE queue.name = wanted.name),
    state.name::pg_catalog.text,
    (SELECT pg_catalog.count(*) FROM (
        SELECT FROM "sexton".river_job AS job
        WHERE job.state = state.name AND job.queue = wanted.name
        ORDER BY job.priority, job.scheduled_at, job.id
        LIMIT $2
    ) AS counted)
FROM pg_catalog.unnest($1::pg_catalog.text[]) AS wanted (name)
CROSS JOIN pg_catalog.unnest(ARRAY['available', 'pending', 'running', 'retryable', 'scheduled', 'discarded']::"sexton".river_job_state[]) AS state (name)
ORDER BY 1, 3`

// QueueStates looks at the queues of the kinds in jobs, the database with River's tables. Jobs that ended well or
// were cancelled are not counted.
func QueueStates(ctx context.Context, jobs database.Database, queues []string, most int) ([]QueueState, error) {
	rows, err := jobs.Pool.Query(ctx, jobs.Names.Render(queueStatesSQL), queues, most)
	if err != nil {
		return nil, fmt.Errorf("look at queues: %w", err)
	}
	var states []QueueState
	var name, state string
	var paused bool
	var since *time.Time
	var count int64
	_, err = pgx.ForEachRow(rows, []any{&name, &paused, &since, &state, &count}, func() error {
		if len(states) == 0 || states[len(states)-1].Queue != name {
			one := QueueState{Queue: name, Paused: paused, Jobs: map[string]int64{}}
			if since != nil {
				one.Since = *since
			}
			states = append(states, one)
		}
		states[len(states)-1].Jobs[state] = count
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look at queues: %w", err)
	}
	return states, nil
}
