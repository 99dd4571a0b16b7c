package riverjobs

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestQueueStates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	look := func(most int) []QueueState {
		states, err := QueueStates(t.Context(), b.db.Connected, []string{LooseForeignKeys, "unheard_of"}, most)
		require.NoError(t, err)
		return states
	}
	none := map[string]int64{"available": 0, "discarded": 0, "pending": 0, "retryable": 0, "running": 0, "scheduled": 0}
	require.Equal(t, []QueueState{{Queue: LooseForeignKeys, Jobs: none}, {Queue: "unheard_of", Jobs: none}}, look(10))

	b.db.Exec("INSERT INTO sexton.river_queue (name, paused_at, created_at, updated_at) VALUES ($1, now(), '2024-02-29Z', now())", LooseForeignKeys)
	b.db.Exec(`INSERT INTO sexton.river_job (args, kind, max_attempts, queue, state, finalized_at, scheduled_at)
		SELECT '{}', 'some', 1, $1, state::sexton.river_job_state, CASE WHEN state IN ('completed', 'discarded') THEN now() END, now()
		FROM unnest('{available,available,available,running,scheduled,completed,discarded}'::text[]) AS state`, LooseForeignKeys)
	got := look(2)[0]
	require.Equal(t, time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), got.Since.UTC())
	require.Equal(t, QueueState{Queue: LooseForeignKeys, Paused: true, Since: got.Since, Jobs: map[string]int64{
		"available": 2, "discarded": 1, "pending": 0, "retryable": 0, "running": 1, "scheduled": 1,
	}}, got, "counting stops at the cap")
}

// A queue's table is seldom vacuumed, and has few states.
func TestQueueStatesDoNotScan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("ALTER TABLE sexton.river_job SET (autovacuum_enabled = off)")
	b.db.Exec(`INSERT INTO sexton.river_job (kind, queue, args, state, max_attempts, scheduled_at, finalized_at)
		SELECT $1, $1, '{}', 'discarded', 1, now(), now() FROM generate_series(1, 10000)`, LooseForeignKeys)
	b.db.Exec("ANALYZE sexton.river_job")
	rows, err := b.db.Pool().Query(t.Context(), "EXPLAIN "+b.db.Connected.Names.Render(queueStatesSQL), []string{LooseForeignKeys, "unheard_of"}, 2_000)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotContains(t, strings.Join(plan, "\n"), "Seq Scan on river_job")
}
