package riverjobs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJobsThatStandStillAreNamed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stalled := func() string {
		reason, err := Stalled(t.Context(), b.db.Connected, LooseForeignKeys, "main")
		require.NoError(t, err)
		return reason
	}
	require.Empty(t, stalled())
	b.db.Exec(`INSERT INTO sexton.river_job (id, args, kind, queue, state, max_attempts, attempted_by, attempted_at, scheduled_at)
		VALUES (7, '{"database": "main"}', $1, $1, 'available', 1, '{me}', now(), now())`, LooseForeignKeys)
	require.Empty(t, stalled(), "it has just come")
	b.db.Exec("UPDATE sexton.river_job SET scheduled_at = '2026-01-02T03:04:05Z'")
	require.Equal(t, "a worker: none has fetched job 7, available since 2026-01-02T03:04:05Z", stalled())
	b.db.Exec("UPDATE sexton.river_job SET state = 'running', attempted_at = '2026-01-02T03:04:06Z'")
	require.Equal(t, "worker me: job 7 counts as running there since 2026-01-02T03:04:06Z, and has no run", stalled())
	b.db.Exec("INSERT INTO sexton.runs (kind, database, holder) VALUES ($1, 'main', 'me')", LooseForeignKeys)
	require.Empty(t, stalled(), "it is worked on")
}
