package riverjobs

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/jobrun"
	"sexton/internal/pgtest"
)

const (
	mainURL = "SEXTON_DATABASES__MAIN__URL=postgres://nobody@nowhere.invalid/none"
	// A limit in bytes is exceeded immediately, without waiting for a lag in time.
	shortLog = "SEXTON_JOBS__REPLICA_LAG_BYTES=100000"
)

// replicated is a bundle on a primary whose standby r1 has paused its replay.
type replicated struct {
	bundle

	standby *pgx.Conn
}

func setupReplicated(t *testing.T, environ ...string) replicated {
	primary := pgtest.Server(t)
	db := dbtest.InstallOn(t, pgtest.NewOn(t, primary))
	db.Exec(tables)
	db.Track(t, "parents")
	b := withDefinitions(t, db, append(environ, mainURL)...)
	db.Exec("CREATE TABLE ballast (filling text)")
	standby := pgtest.Connect(t, pgtest.Standby(t, primary, "r1").URL("postgres"))
	r := replicated{bundle: b, standby: standby}
	r.await(t, "pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) < 1000")
	pgtest.Exec(t, standby, "SELECT pg_wal_replay_pause()")
	db.Exec("INSERT INTO ballast SELECT repeat(md5(n::text), 10) FROM generate_series(1, 2000) AS n")
	r.await(t, "flush_lsn IS NOT NULL AND pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) > 200000")
	db.Exec("DELETE FROM parents WHERE id = 1")
	return r
}

func (r replicated) resume(t *testing.T) {
	pgtest.Exec(t, r.standby, "SELECT pg_wal_replay_resume()")
}

func (r replicated) await(t *testing.T, condition string) {
	pgtest.Await(t, r.db.Pool(), "the standby: "+condition,
		"SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = 'r1' AND "+condition+")")
}

// startPass runs one pass in the background. The returned function waits for its report.
func (b bundle) startPass(t *testing.T) func() jobrun.Report {
	var report jobrun.Report
	ended := make(chan error, 1)
	go func() {
		var err error
		report, err = run(t.Context(), b.deps, LooseForeignKeysCleanupArgs{Database: "main"})
		ended <- err
	}()
	return func() jobrun.Report {
		require.NoError(t, <-ended)
		return report
	}
}

// waitingReason waits until the row of the running pass has a reason for which the pass
// waits, and returns the reason.
func (b bundle) waitingReason(t *testing.T) string {
	var reason string
	pgtest.WaitFor(t, "the pass to record why it waits", func(ctx context.Context) (bool, error) {
		err := b.db.Pool().QueryRow(ctx,
			"SELECT coalesce(max(stats ->> 'waiting_for'), '') FROM sexton.runs WHERE ended_at IS NULL").Scan(&reason)
		return reason != "", err
	})
	return reason
}

func TestPassWaitsForAReplica(t *testing.T) {
	t.Parallel()
	r := setupReplicated(t, shortLog)
	ended := r.startPass(t)
	require.Regexp(t, `^replica r1 \d+ [KM]iB behind$`, r.waitingReason(t))
	require.EqualValues(t, 1, r.db.Pending(t))
	require.EqualValues(t, 6, pgtest.Scalar[int64](t, r.db.Database, "SELECT count(*) FROM children"),
		"no child is deleted while the pass waits")

	r.resume(t)
	report := ended()
	require.Equal(t, jobrun.Done, report.Outcome)
	require.NotContains(t, string(report.Stats), "waiting_for")
	require.Zero(t, r.db.Pending(t))
	require.EqualValues(t, 4, pgtest.Scalar[int64](t, r.db.Database, "SELECT count(*) FROM children"))
	require.Equal(t, 1, strings.Count(r.log.String(), `msg=pass_waiting`), r.log.String())
	require.Regexp(t, `msg=pass_waiting kind=\S+ database=main reason="replica r1 \d+ [KM]iB behind"`, r.log.String())
}
