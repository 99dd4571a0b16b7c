package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// free reports whether another process could acquire the lease, without acquiring it.
func free(db *dbtest.DB) bool {
	return len(db.Rows("SELECT FROM sexton.leases WHERE expires_at > clock_timestamp()")) == 0
}

// If the server has committed and its answer gets lost, the process that made the attempt
// can take the lease.
func TestALostAnswerDoesNotRefuseItsOwnProcess(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	network := &pgtest.Network{}
	connected := pgtest.Must(database.Open(t.Context(), "main", network.Listen(t, db.URL), "", dbtest.Names(), 1))(t)
	t.Cleanup(connected.Close)
	m := &lease.Manager{Jobs: connected, Holder: "one"}
	var found int64
	limits := batch.Limits{StatementTimeout: time.Minute, LockTimeout: time.Minute}
	statement := batch.Statement{SQL: "SELECT count(*) FROM sexton.runs", Scan: batch.One(&found)}
	run := lease.Run{Kind: "some_kind", Database: "main"}
	for range 2 { // Then all statements are prepared, and the answer is the one of the statement itself.
		_, granted := pgtest.Must2(m.Begin(t.Context(), run, key, time.Minute, connected))(t)
		conn := pgtest.Must(connected.Async().Acquire(t.Context()))(t)
		session := &batch.Session{Conn: conn.Conn(), Names: dbtest.Names(), Fence: granted, Limits: limits}
		pgtest.Must(session.Run(t.Context(), statement))(t)
		conn.Release()
		require.NoError(t, granted.Release(t.Context()))
	}
	network.LoseAnswers(func([]byte) bool { network.Down.Store(true); return true })
	_, _, err := m.Begin(t.Context(), run, key, time.Minute, connected)
	require.Error(t, err)

	require.False(t, free(db))
	_, err = manager(db, "two").Acquire(t.Context(), key, time.Minute, db.Connected)
	require.ErrorAs(t, err, new(*lease.HeldError), "another process does not know that nothing is done under it")
	network.LoseAnswers(func([]byte) bool { return false })
	network.Down.Store(false)
	before := fence(t, db)
	_, granted, err := m.Begin(t.Context(), run, key, time.Minute, connected)
	require.NoError(t, err)
	require.Equal(t, before+1, granted.Token(), "the fence refuses what came before")
	_, err = m.Acquire(t.Context(), key, time.Minute, connected)
	require.ErrorAs(t, err, new(*lease.HeldError), "a lease that is worked under is not left over")
	require.NoError(t, granted.Release(t.Context()))
}

// A statement whose connection was lost may reach the server after the next attempt.
func TestALostStatementThatComesLateDoesNotRefuseItsOwnProcess(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	m := manager(db, "one")
	const late = "UPDATE sexton.leases SET token = token + 1, acquired_at = clock_timestamp(), expires_at = clock_timestamp() + interval '1 minute'"
	granted := pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	db.Exec(late)
	require.ErrorIs(t, granted.Renew(t.Context()), lease.ErrLost)
	require.NoError(t, granted.Release(t.Context()))
	require.False(t, free(db), "it is no longer the lease of that acquisition")
	granted = pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.NoError(t, granted.Release(t.Context()))
	db.Exec(late)
	pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
}

// A crash of the server takes back a token, and the process gets the same one again: only
// one of its leases is kept.
func TestATokenThatIsGrantedTwiceConfirmsOneLease(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	m := manager(db, "one")
	first := pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	first.Finish()
	db.Exec("UPDATE sexton.leases SET token = token - 1, expires_at = clock_timestamp()")
	second := pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.Equal(t, first.Token(), second.Token())
	conn := pgtest.Connect(t, db.URL)
	require.ErrorIs(t, first.Confirm(t.Context(), conn), lease.ErrLost)
	require.NoError(t, second.Confirm(t.Context(), conn))
	require.ErrorIs(t, first.Renew(t.Context()), lease.ErrLost)
	require.NoError(t, first.Release(t.Context()))
	require.False(t, free(db), "the second one is still held")
}

// The answer to a lifted token gets lost: the holder does not know its own token any
// more, and gives the lease back all the same.
func TestLeaseWithARaisedTokenIsReleased(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	granted := pgtest.Must(manager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	db.Exec("UPDATE sexton.leases SET token = 41")
	require.NoError(t, granted.Release(t.Context()))
	require.True(t, free(db))
}

// A crash of the server reverts releases that did not wait for the disk: the row says
// again that this process has the lease.
func TestLeaseRevertedByACrashDoesNotBlockItsOwnProcess(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	m := manager(db, "one")
	for range 2 {
		granted := pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
		require.NoError(t, granted.Release(t.Context()))
		db.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp() + interval '1 minute'")
		_, err := manager(db, "two").Acquire(t.Context(), key, time.Minute, db.Connected)
		require.ErrorAs(t, err, new(*lease.HeldError), "another process has given nothing back")
	}
}

// A statement whose connection was lost may raise the token after a later one has raised
// it higher.
func TestALateStatementLowersNoToken(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first := pgtest.Must(manager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	db.Exec("UPDATE sexton.fences SET token = 40")
	require.NoError(t, first.Raise(t.Context(), db.Connected))
	require.EqualValues(t, 41, first.Token())
	pgtest.Must(db.Connected.AsyncQueries().LeaseAdvance(t.Context(), dbsqlc.LeaseAdvanceParams{
		Token: 40, Key: key, Holder: first.Holder(), AcquiredAt: first.AcquiredAt(),
	}))(t)
	expire(db)
	second := pgtest.Must(manager(db, "two").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.EqualValues(t, 42, second.Token(), "no token has two holders")
}

// If two acquisitions of one process are under way, the statement of the earlier one may
// come to the server later, and would then take the lease from the other. So the later
// one is refused.
func TestAProcessHasOneAcquisitionOfAKeyUnderWay(t *testing.T) {
	t.Parallel()
	for name, blocked := range map[string]struct{ before, by string }{
		"the first ever": {"", "INSERT INTO sexton.leases VALUES ('" + key + "', 1, 'two', now(), '-infinity')"},
		"a later one": {
			"INSERT INTO sexton.leases VALUES ('" + key + "', 1, 'two', now(), '-infinity')",
			"SELECT FROM sexton.leases FOR UPDATE",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			db.Exec(blocked.before)
			m := manager(db, "one")
			blocker := pgtest.Connect(t, db.URL)
			pgtest.Exec(t, blocker, "BEGIN; "+blocked.by)
			first := make(chan error, 1)
			go func() {
				_, err := m.Acquire(t.Context(), key, time.Minute)
				first <- err
			}()
			pgtest.Await(t, db.Database, "the first to wait",
				"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
			_, err := m.Acquire(t.Context(), key, time.Minute)
			require.ErrorAs(t, err, new(*lease.HeldError))
			pgtest.Exec(t, blocker, "ROLLBACK")
			require.NoError(t, <-first)
		})
	}
}
