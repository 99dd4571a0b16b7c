package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/cli/clitest"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

const diffsLease = "schedule_migrate_external_diffs_worker"

// A pass in the foreground that was killed leaves a lease of two hours, and a row that falls silent.
func TestTheLeaseOfAKilledForegroundPassIsFreed(t *testing.T) {
	t.Parallel()
	s, _ := clitest.DiffSite(t)
	s.Exec(`INSERT INTO sexton.clients (client_id, host, pid, seen_at, foreground) VALUES ('host:1:dead', 'host', 1, now() - interval '1 hour', true);
		INSERT INTO sexton.leases (key, token, holder, acquired_at, expires_at) VALUES ($$` + diffsLease + `$$, 7, 'host:1:dead', now(), now() + interval '2 h')`)
	require.Regexp(t, diffsLease+` +host:1:dead +false +`, s.OK("lease", "list"))
	require.Equal(t, "done", s.JSON(0, "job", "run", clitest.ScheduleKind).(map[string]any)["outcome"])
	require.Empty(t, s.Rows("SELECT FROM sexton.clients"), "neither the dead one nor that which ran")
	require.Equal(t, "no lease is held\n", s.OK("lease", "list"))
}

// While it works a pass beats, and is none of the workers.
func TestAForegroundPassBeats(t *testing.T) {
	t.Parallel()
	s, _ := clitest.DiffSite(t)
	tx := pgtest.Begin(t, s.Pool(), "LOCK TABLE sexton.external_diff_cursors")
	ended := make(chan clitest.Result, 1)
	go func() { ended <- s.Run("job", "run", clitest.ScheduleKind, "--json") }()
	pgtest.Await(t, s.Pool(), "the pass to have the lease", "SELECT EXISTS (SELECT FROM sexton.leases JOIN sexton.clients ON client_id = holder WHERE foreground)")
	require.Regexp(t, diffsLease+` +\S+ +true +`, s.OK("lease", "list"))
	require.Contains(t, s.Run("doctor").Stdout, "no worker is running")
	refused := s.Run("lease", "release", diffsLease)
	require.Equal(t, 1, refused.Code)
	require.Regexp(t, `^sexton: release lease `+diffsLease+`: its holder \S+ is alive; --force ends it all the same, and its pass fails\n$`, refused.Stderr)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 0, (<-ended).Code)
	require.Empty(t, s.Rows("SELECT FROM sexton.clients"))
}

func TestALeaseIsReleasedByHand(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.HoldLease()
	require.Equal(t, map[string]any{"key": clitest.LeaseKey, "released": true, "holder": "host:1:abc"}, s.JSON(0, "lease", "release", clitest.LeaseKey))
	require.Equal(t, clitest.LeaseKey+": it is not held\n", s.OK("lease", "release", clitest.LeaseKey))
	require.Equal(t, [][]string{{"release", clitest.LeaseKey, "held by host:1:abc"}}, s.Rows("SELECT action, target, reason FROM sexton.audit"))
	s.Exec("UPDATE sexton.leases SET expires_at = now() + interval '1 h'; INSERT INTO sexton.clients (client_id, host, pid) VALUES ('host:1:abc', 'host', 1)")
	require.Equal(t, 1, s.Run("lease", "release", clitest.LeaseKey).Code)
	require.Equal(t, clitest.LeaseKey+": released; host:1:abc held it\n", s.OK("lease", "release", clitest.LeaseKey, "--force"))
	require.Equal(t, 2, s.Run("lease", "release").Code)
	unknown := s.Run("lease", "release", "no_such_key")
	require.Equal(t, 1, unknown.Code)
	require.Equal(t, "sexton: release lease \"no_such_key\": there is no lease with this key; `sexton lease list` shows the leases that are held\n", unknown.Stderr)
}

func TestAReleasedHolderCommitsNothingMoreInAnyDatabase(t *testing.T) {
	t.Parallel()
	s := clitest.InstalledTwo(t, "main")
	main := database.Database{Name: "main", Pool: s.Pool(), Names: dbtest.Names()}
	ci := database.Database{Name: "ci", Pool: s.Ci.Pool(), Names: dbtest.Names()}
	const key = "a_lease"
	holder := lease.Manager{Jobs: main, Holder: "host:1:abc"}
	granted := pgtest.Must(holder.Acquire(t.Context(), key, time.Hour, main, ci))(t)
	s.Exec("INSERT INTO sexton.clients (client_id, host, pid) VALUES ('host:1:abc', 'host', 1)")

	attempt := func(on *pgtest.Database, under *lease.Lease) error {
		conn := pgtest.Connect(t, on.URL)
		limits := batch.Limits{StatementTimeout: time.Minute, LockTimeout: time.Minute}
		session := &batch.Session{Conn: conn, Names: dbtest.Names(), Fence: under, Limits: limits}
		_, err := session.Run(t.Context(), batch.Statement{SQL: "SELECT 1"})
		return err
	}
	for _, on := range []*pgtest.Database{s.Database, s.Ci} {
		require.NoError(t, attempt(on, granted))
	}
	s.OK("lease", "release", key, "--force")
	for _, on := range []*pgtest.Database{s.Database, s.Ci} {
		require.ErrorIs(t, attempt(on, granted), lease.ErrLost)
	}
	require.ErrorIs(t, granted.Raise(t.Context(), ci), lease.ErrLost, "nor does it come to a database late")
	require.ErrorIs(t, granted.Renew(t.Context()), lease.ErrLost)
	require.NoError(t, attempt(s.Ci, pgtest.Must(holder.Acquire(t.Context(), key, time.Hour, main, ci))(t)))
}
