package integration

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// testRunLateChild inserts a child in a transaction that is older than its parent's deletion, after everything
// was cleaned up. Nobody notifies the two workers of its commit, and there is no tick.
func testRunLateChild(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	first, second := s.started(t), s.started(t)
	older, err := pgx.Connect(t.Context(), s.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, older.Close(context.WithoutCancel(t.Context()))) }()
	exec := func(sql string) {
		_, err := older.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	exec("BEGIN")
	exec("SELECT FROM parents WHERE id = 1")
	s.exec(t, "DELETE FROM parents WHERE id = 1")
	s.wait(t, time.Minute, "the clean-up", noWork)
	s.wait(t, time.Minute, "the workers to sleep", asleep, awakeKey()...)
	require.Equal(t, int64(1), s.count(t, "SELECT count(*) FROM sexton.swept"))
	require.Contains(t, p.run(t, s.dir, s.url, 0, "status", "--json"), `"confirming": 1`)
	exec("INSERT INTO children VALUES (1000, 1)")
	s.wait(t, time.Minute, "the workers to sleep on", asleep, awakeKey()...)
	exec("COMMIT")
	s.wait(t, 2*time.Minute, "the late child to be gone", "NOT EXISTS (SELECT FROM children WHERE parent_id = 1)")
	s.wait(t, 2*time.Minute, "nothing to be left to confirm", "NOT EXISTS (SELECT FROM sexton.swept)")
	s.wait(t, 2*time.Minute, "the run to be recorded", "(SELECT sum((stats ->> 'late_children')::bigint) = 1 FROM sexton.runs)")
	first.stop(t)
	second.stop(t)
	s.cleanedUp(t)
}
