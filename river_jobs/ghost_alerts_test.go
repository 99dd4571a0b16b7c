package riverjobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/ghostuser"
	"sexton/internal/jobrun"
	"sexton/internal/metrics"
	"sexton/internal/pgtest"
)

func TestGhostErrorRate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		processed, failed, unfinished int64
		share                         float64
		alarming                      bool
	}{
		{0, 0, 50, 0, false},
		{0, 9, 50, 1, false},
		{9, 1, 0, 0.1, false},
		{8, 2, 0, 0.2, true},
		{0, 10, 0, 1, true},
		{90, 10, 0, 0.1, false},
		{89, 11, 0, 0.11, true},
	} {
		share, alarming := ghostErrorRate(&ghostuser.Stats{UsersProcessed: test.processed, UsersFailed: test.failed, UsersUnfinished: test.unfinished})
		require.InDelta(t, test.share, share, 1e-9, "%+v", test)
		require.Equal(t, test.alarming, alarming, "%+v", test)
	}
}

// runGhosts runs one pass and returns how often it counted each of the alerts.
func (b bundle) runGhosts(t *testing.T) (backlog, errors int64) {
	t.Helper()
	ended := &endings{}
	b.deps.Runner.Observer = ended
	b.log.Take()
	require.Equal(t, jobrun.Done, b.ran(t, MigrateRecordsToGhostUserArgs{}).Outcome)
	for _, count := range ended.last.Counts {
		switch count.Metric {
		case metrics.GhostBacklogAlerts:
			backlog += count.N
		case metrics.GhostErrorAlerts:
			errors += count.N
		}
	}
	return backlog, errors
}

// endings keeps how the last run ended.
type endings struct{ last jobrun.Ended }

func (e *endings) RunEnded(ended jobrun.Ended) { e.last = ended }

func (*endings) CountsAdded(string, string, []jobrun.Count) {}

const (
	backlogWarning = `level=WARN msg="many users wait to be deleted"`
	errorWarning   = `level=WARN msg="many users could not be deleted"`
)

func TestGhostErrorAlertAndFailures(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	b.db.Exec(`
		INSERT INTO users (id, username, email, name) SELECT n, 'user' || n, n || '@example.com', 'User' FROM generate_series(11, 20) AS n;
		INSERT INTO issues (id, project_id, title, author_id) SELECT n, 1, 'by ' || n, n FROM generate_series(11, 20) AS n;
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = 'P0042'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON issues FOR EACH ROW WHEN (old.author_id IN (11, 12)) EXECUTE FUNCTION refuse();
		SELECT sexton.delete_user(id, NULL) FROM users WHERE id > 10;`)
	backlog, errors := b.runGhosts(t)
	require.Equal(t, []int64{0, 1}, []int64{backlog, errors})
	log := b.log.String()
	require.Contains(t, log, errorWarning+" kind="+GhostUsers+" database=main processed=8 failed=2 error_share=0.2 alert_above=0.1")
	require.NotContains(t, log, backlogWarning)
	for _, user := range []int{11, 12} {
		require.Regexp(t, fmt.Sprintf(`level=ERROR msg=user_failed kind=%s database=main user_id=%d hard_delete=false outcome=failed moved=0 deleted=0 nullified=0 `+
			`table=issues sqlstate=P0042 error="not this one" stack="PL/pgSQL function .*refuse\(\) line 1 at RAISE`, GhostUsers, user), log)
	}
	require.Regexp(t, `msg=run_ended .*processed=8 failed=2`, log)

	// The same share of fewer users says nothing.
	b.db.Exec("UPDATE users_ghost_user_migrations SET consume_after = now()")
	backlog, errors = b.runGhosts(t)
	require.Equal(t, []int64{0, 0}, []int64{backlog, errors})
	require.NotContains(t, b.log.String(), errorWarning)
}

func TestGhostBacklogAlert(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	b.db.Exec(`
		INSERT INTO users (id, username, email, name) SELECT n, 'user' || n, n || '@example.com', 'User' FROM generate_series(1001, 2001) AS n;
		INSERT INTO users_ghost_user_migrations (user_id, consume_after, created_at)
		SELECT id, now() + '1 hour', now() - '90 s'::interval FROM users WHERE id > 1000;`)
	backlog, errors := b.runGhosts(t)
	require.Equal(t, []int64{1, 0}, []int64{backlog, errors}, "put off ones wait, too")
	require.Regexp(t, backlogWarning+` kind=`+GhostUsers+` database=main waiting=1001 capped=false deferred=1001 oldest_age_seconds=9\d\.\d+ alert_above=1000`, b.log.String())

	b.db.Exec("DELETE FROM users_ghost_user_migrations WHERE user_id = 2001")
	backlog, errors = b.runGhosts(t)
	require.Equal(t, []int64{0, 0}, []int64{backlog, errors}, "a thousand are no alert")
	require.NotContains(t, b.log.String(), backlogWarning)
}

// A run that waits for a lock of others to its end says which session held it.
func TestGhostUsersNameTheSessionInTheWay(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	// Work stops five seconds before the lease ends.
	b.deps.Config.GhostUsers.MaxRuntime = 7 * time.Second
	b.db.Exec("SELECT sexton.delete_user(1, 2)")
	tx := pgtest.Begin(t, b.db.Pool(), "SELECT FROM issues WHERE author_id = 1 FOR UPDATE")
	require.Equal(t, jobrun.OverLimit, b.ran(t, MigrateRecordsToGhostUserArgs{}).Outcome)
	reason := fmt.Sprintf(`canceling statement due to lock timeout \(.+ by pid %d\b.*\)`, tx.Conn().PgConn().PID())
	require.Regexp(t, `msg=run_ended .*held\\":\\"issues: `+reason, b.log.String())
	require.Equal(t, "0", pgtest.Scalar[string](t, b.db.Database, "SELECT attempts::text FROM users_ghost_user_migrations"))
}
