package operator

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbsqlc"
	"sexton/internal/dbtest"
)

// A queue has a row per state of its jobs, in the order of the names. Counting stops at the cap.
func TestQueueStates(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	look := func(most int32) [][]string {
		rows, err := db.Connected.Queries().QueueStates(t.Context(), dbsqlc.QueueStatesParams{Queues: []string{cleanUp, "unheard_of"}, Most: most})
		require.NoError(t, err)
		var told [][]string
		for _, row := range rows {
			since := ""
			if row.Since != nil {
				since = row.Since.UTC().Format(time.DateOnly)
			}
			told = append(told, []string{row.Queue, strconv.FormatBool(row.Paused), since, row.State, strconv.FormatInt(row.Jobs, 10)})
		}
		return told
	}
	states := []string{"available", "discarded", "pending", "retryable", "running", "scheduled"}
	var none [][]string
	for _, queue := range []string{cleanUp, "unheard_of"} {
		for _, state := range states {
			none = append(none, []string{queue, "false", "", state, "0"})
		}
	}
	require.Equal(t, none, look(10))

	db.Exec("INSERT INTO sexton.river_queue (name, paused_at, created_at, updated_at) VALUES ($1, now(), '2024-02-29Z', now())", cleanUp)
	db.Exec(`INSERT INTO sexton.river_job (args, kind, max_attempts, queue, state, finalized_at, scheduled_at)
		SELECT '{}', 'some', 1, $1, state::sexton.river_job_state, CASE WHEN state IN ('completed', 'discarded') THEN now() END, now()
		FROM unnest('{available,available,available,running,scheduled,completed,discarded}'::text[]) AS state`, cleanUp)
	for i, counted := range []string{"2", "1", "0", "0", "1", "1"} {
		require.Equal(t, []string{cleanUp, "true", "2024-02-29", states[i], counted}, look(2)[i])
	}
}

// explained explains queries in place of answering them.
type explained struct {
	dbsqlc.DBTX

	plan *[]string
}

func (e explained) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := e.DBTX.Query(ctx, "EXPLAIN "+sql, args...)
	if err == nil {
		*e.plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	return rows, err
}

// A queue's table is seldom vacuumed, and has few states.
func TestQueueStatesDoNotScan(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec("ALTER TABLE sexton.river_job SET (autovacuum_enabled = off)")
	db.Exec(`INSERT INTO sexton.river_job (kind, queue, args, state, max_attempts, scheduled_at, finalized_at)
		SELECT $1, $1, '{}', 'discarded', 1, now(), now() FROM generate_series(1, 10000)`, cleanUp)
	db.Exec("ANALYZE sexton.river_job")
	var plan []string
	queries := db.Connected.Names.Queries(explained{db.Pool(), &plan})
	_, err := queries.QueueStates(t.Context(), dbsqlc.QueueStatesParams{Queues: []string{cleanUp, "unheard_of"}, Most: 2_000})
	require.NoError(t, err)
	require.NotEmpty(t, plan)
	require.NotContains(t, strings.Join(plan, "\n"), "Seq Scan on river_job")
}

func TestJobsThatStandStillAreNamed(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	look := func() string {
		reason, err := stalled(t.Context(), db.Connected, cleanUp, "main")
		require.NoError(t, err)
		return reason
	}
	require.Empty(t, look())
	db.Exec(`INSERT INTO sexton.river_job (id, args, kind, queue, state, max_attempts, attempted_by, attempted_at, scheduled_at)
		VALUES (7, '{"database": "main"}', $1, $1, 'available', 1, '{me}', now(), now())`, cleanUp)
	require.Empty(t, look(), "it has just come")
	db.Exec("UPDATE sexton.river_job SET scheduled_at = '2026-01-02T03:04:05Z'")
	require.Equal(t, "a worker: none has fetched job 7, available since 2026-01-02T03:04:05Z", look())
	db.Exec("UPDATE sexton.river_job SET state = 'running', attempted_at = '2026-01-02T03:04:06Z'")
	require.Equal(t, "worker me: job 7 counts as running there since 2026-01-02T03:04:06Z, and has no run", look())
	db.Exec("INSERT INTO sexton.runs (kind, database, holder) VALUES ($1, 'main', 'me')", cleanUp)
	require.Empty(t, look(), "it is worked on")
}
