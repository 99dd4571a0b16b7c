package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

func TestJudgeClock(t *testing.T) {
	t.Parallel()
	require.Empty(t, judgeClock(time.Second, 0))
	require.Empty(t, judgeClock(-3*time.Second, 2*time.Second), "the round trip may explain all but a second")
	for offset, want := range map[time.Duration]struct {
		severity problem.Severity
		text     string
	}{
		1100 * time.Millisecond: {problem.Warning, "1.1s behind"},
		-5 * time.Second:        {problem.Warning, "5s ahead of"},
		-time.Minute:            {problem.Error, "1m0s ahead of"},
	} {
		found := judgeClock(offset, 0)
		require.Len(t, found, 1)
		require.Equal(t, want.severity, found[0].Severity, offset)
		require.Contains(t, found[0].Message, "this machine's clock is "+want.text+" the server's")
	}
}

func TestJudgeQueue(t *testing.T) {
	t.Parallel()
	require.Empty(t, judgeQueue(0.1))
	require.Equal(t, problem.Warning, judgeQueue(0.11)[0].Severity)
	require.Contains(t, judgeQueue(0.11)[0].Message, "11 % full")
	require.Equal(t, problem.Warning, judgeQueue(0.5)[0].Severity)
	require.Equal(t, problem.Error, judgeQueue(0.51)[0].Severity)
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	const sql = `-- worker: GRANT ALL ON TABLE "sexton".no TO :"worker";
GRANT USAGE ON SCHEMA "sexton" TO :"worker";
GRANT SELECT, UPDATE
    ON TABLE "sexton".leases, "public".tombstones
    TO :"viewer", :"worker";
GRANT EXECUTE ON FUNCTION "sexton".enqueue(text, jsonb), "sexton".other() TO :"worker";
GRANT SELECT ON TABLE "sexton".viewed TO :"viewer";
`
	require.Equal(t, []right{
		{"SCHEMA", "sexton", "", "USAGE"},
		{"TABLE", "sexton", "leases", "SELECT"},
		{"TABLE", "sexton", "leases", "UPDATE"},
		{"TABLE", "it's; odd", "tombstones", "SELECT"},
		{"TABLE", "it's; odd", "tombstones", "UPDATE"},
		{"FUNCTION", "sexton", "enqueue", "EXECUTE"},
		{"FUNCTION", "sexton", "other", "EXECUTE"},
	}, needs(sql, pgcatalog.Names{Tracked: "it's; odd"}))
}

func TestLift(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"client":             "remove lock_timeout from the connection string",
		"user":               "ALTER ROLE r RESET lock_timeout",
		"database user":      "ALTER ROLE r IN DATABASE d RESET lock_timeout",
		"database":           "ALTER ROLE r IN DATABASE d SET lock_timeout = 0",
		"configuration file": "ALTER ROLE r IN DATABASE d SET lock_timeout = 0",
	} {
		require.Equal(t, want, lift("lock_timeout", source, "r", "d"), source)
	}
}

func TestStopped(t *testing.T) {
	t.Parallel()
	minutely, err := cron.ParseStandard("* * * * *")
	require.NoError(t, err)
	leapDays, err := cron.ParseStandard("0 0 31 2 *")
	require.NoError(t, err)
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	long := noon.Add(-24 * time.Hour)
	after := noon.Add

	require.False(t, stopped(minutely, noon, long, after(2*time.Minute+59*time.Second)))
	require.True(t, stopped(minutely, noon, long, after(3*time.Minute)))
	require.False(t, stopped(minutely, long, noon, after(2*time.Minute+59*time.Second)), "the worker has just started")
	require.True(t, stopped(minutely, long, noon, after(3*time.Minute)))
	require.True(t, stopped(minutely, time.Time{}, noon, after(3*time.Minute)), "it has never ticked")
	require.False(t, stopped(leapDays, noon, long, after(3*time.Minute)), "it never ticks")
}

// An idle session that catches up on what others have defined shows the time of its last statement as the beginning of a transaction.
func TestIdleSessionsHaveNoOldTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(`CREATE TABLE activity AS SELECT * FROM pg_catalog.pg_stat_activity LIMIT 0;
		INSERT INTO activity (datname, pid, backend_type, xact_start, state) VALUES
			(current_database(), 1, 'client backend', '2026-01-01', 'idle'), (current_database(), 2, 'client backend', '2026-01-01', 'active'),
			(current_database(), 3, 'client backend', '2026-01-01', 'disabled')`)
	found := db.Rows(strings.ReplaceAll(sqlText("transactions"), "pg_catalog.pg_stat_activity", "activity"), 1.0)
	require.Len(t, found, 2)
	require.ElementsMatch(t, []string{"2", "3"}, []string{found[0][0], found[1][0]})
}
