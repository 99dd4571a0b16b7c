//go:build long

package riverjobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/jobrun"
	"sexton/internal/pgtest"
)

// A pass whose time ends while it waits for a replica is over its limit, not failed. It
// counts no attempt and records no error.
func TestPassThatWaitedForAReplicaContinues(t *testing.T) {
	t.Parallel()
	r := setupReplicated(t, shortLog, "SEXTON_DATABASES__MAIN__LIMITS__RUNTIME=1s")
	r.db.Exec("DELETE FROM parents")
	// consume_after of the first tombstone is now, so it is the last one in the queue.
	r.db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = clock_timestamp() WHERE primary_key_value = 1")
	report := r.startPass(t)()
	require.Equal(t, jobrun.OverLimit, report.Outcome)
	require.Contains(t, report.Reason, "the next run continues immediately")
	require.Contains(t, string(report.Stats), `"over_limit":false`)
	require.NotContains(t, string(report.Stats), "waiting_for")
	require.Equal(t, [][]string{{"0", "NULL"}, {"0", "NULL"}, {"0", "NULL"}},
		r.db.Rows("SELECT cleanup_attempts, last_error FROM loose_foreign_keys_deleted_records"))
	require.True(t, r.due(t, LooseForeignKeys).Now)
	require.Empty(t, r.db.Rows("SELECT FROM sexton.leases WHERE expires_at > now()"))

	r.resume(t)
	r.await(t, "pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) < 1000")
	// The configuration has the default runtime, so that this pass can finish.
	r.deps.Config = configuration(t, mainURL, shortLog)
	require.Equal(t, jobrun.Done, r.startPass(t)().Outcome)
	require.Zero(t, r.db.Pending(t))
}

// A pass does not wait for replicas if the limits of lag are 0, or if its pace limits the
// number of rows.
func TestPassDoesNotWaitForReplicas(t *testing.T) {
	t.Parallel()
	off := []string{"SEXTON_JOBS__REPLICA_LAG_BYTES=0", "SEXTON_JOBS__REPLICA_LAG=0s"}
	r := setupReplicated(t, off...)
	require.Equal(t, jobrun.Done, r.startPass(t)().Outcome)
	require.Zero(t, r.db.Pending(t))

	r.deps.Config = configuration(t, mainURL, shortLog, "SEXTON_DATABASES__MAIN__PACE=normal")
	r.db.Exec("DELETE FROM parents WHERE id = 2")
	require.Equal(t, jobrun.Done, r.startPass(t)().Outcome)
	require.Zero(t, r.db.Pending(t))
	require.NotContains(t, r.log.String(), "pass_waiting")
}

// A role that may not read the replication lag logs that once, and its passes run without
// waiting.
func TestRoleThatCannotReadTheLagLogsItOnce(t *testing.T) {
	t.Parallel()
	r := setupReplicated(t, shortLog)
	role := r.db.CreateRole()
	for _, schema := range []string{"public", "sexton"} {
		r.db.Exec(fmt.Sprintf("GRANT ALL ON SCHEMA %[1]s TO %[2]s; GRANT ALL ON ALL TABLES IN SCHEMA %[1]s TO %[2]s; "+
			"GRANT ALL ON ALL SEQUENCES IN SCHEMA %[1]s TO %[2]s; GRANT ALL ON ALL FUNCTIONS IN SCHEMA %[1]s TO %[2]s",
			schema, role))
	}
	as := pgtest.Must(database.Open(t.Context(), "main", r.db.AsRole(role), "", dbtest.Names(), 5))(t)
	defer as.Pool.Close()
	r.deps.Databases = []database.Database{as}
	for id := 1; id <= 2; id++ {
		r.db.Exec("DELETE FROM parents WHERE id = $1", id)
		require.Equal(t, jobrun.Done, r.startPass(t)().Outcome)
		require.Zero(t, r.db.Pending(t))
	}
	require.Equal(t, 1, strings.Count(r.log.String(), "replicas_not_checked"), r.log.String())
	require.Contains(t, r.log.String(), "GRANT pg_read_all_stats")
}

// The network is so slow that the lease would expire before the definitions are bound.
// The pass binds the definitions all the same, and the next pass does not bind them
// again.
func TestPassOverASlowNetworkMakesProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	limits := &b.deps.Config.Databases[0].Limits
	usual := limits.Runtime
	limits.Runtime = time.Second
	network := &pgtest.Network{}
	b.connectThrough(t, network)
	b.db.Exec("DELETE FROM parents WHERE id <= 2")
	network.Delay.Store(int64(250 * time.Millisecond))
	report := b.mustRun(t, LooseForeignKeysCleanupArgs{Database: "main"})
	require.Contains(t, []jobrun.Outcome{jobrun.Done, jobrun.OverLimit}, report.Outcome)

	network.Delay.Store(0)
	limits.Runtime = usual
	before := network.Trips.Load()
	report = b.mustRun(t, LooseForeignKeysCleanupArgs{Database: "main"})
	require.Equal(t, jobrun.Done, report.Outcome)
	require.Zero(t, b.db.Pending(t))
	require.LessOrEqual(t, network.Trips.Load()-before, int64(60), "round trips of a pass that does not bind the definitions")
}
