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

// free reports whether another process could acquire the lease.
func free(db *dbtest.DB) bool {
	return len(db.Rows("SELECT FROM sexton.leases WHERE expires_at > clock_timestamp()")) == 0
}

// If the response to a committed acquisition is lost, the same process can acquire the
// lease again, but another process cannot.
func TestLeaseIsAcquiredAgainAfterALostAnswer(t *testing.T) {
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
	for range 2 { // The second round prepares no statement, so the next answer is that of the acquisition.
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
	_, err = newManager(db, "two").Acquire(t.Context(), key, time.Minute, db.Connected)
	require.ErrorAs(t, err, new(*lease.HeldError), "another process must wait until the lease expires")
	network.LoseAnswers(func([]byte) bool { return false })
	network.Down.Store(false)
	before := fenceToken(t, db)
	_, granted, err := m.Begin(t.Context(), run, key, time.Minute, connected)
	require.NoError(t, err)
	require.Equal(t, before+1, granted.Token(), "the token must be above that of the lost acquisition")
	_, err = m.Acquire(t.Context(), key, time.Minute, connected)
	require.ErrorAs(t, err, new(*lease.HeldError), "the process works under the lease")
	require.NoError(t, granted.Release(t.Context()))
}

// A process can acquire its lease again after an earlier acquisition, whose connection
// was lost, has reached the server late.
func TestLeaseIsAcquiredAgainAfterALateStatement(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	m := newManager(db, "one")
	const late = "UPDATE sexton.leases SET token = token + 1, acquired_at = clock_timestamp(), expires_at = clock_timestamp() + interval '1 minute'"
	granted := pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	db.Exec(late)
	require.ErrorIs(t, granted.Renew(t.Context()), lease.ErrLost)
	require.NoError(t, granted.Release(t.Context()))
	require.False(t, free(db), "the lease of the late statement must be kept")
	granted = pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.NoError(t, granted.Release(t.Context()))
	db.Exec(late)
	pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
}

// If a crash of the server reverts a token and the same process gets it again, Confirm
// accepts only the second lease.
func TestConfirmWithATokenThatIsGrantedTwice(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	m := newManager(db, "one")
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
	require.False(t, free(db), "the second lease must be kept")
}

// A holder releases its lease even if it does not know the token, because the response to
// the statement that raised the token was lost.
func TestLeaseWithARaisedTokenIsReleased(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	granted := pgtest.Must(newManager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	db.Exec("UPDATE sexton.leases SET token = 41")
	require.NoError(t, granted.Release(t.Context()))
	require.True(t, free(db))
}

// If a crash of the server reverts a release, the same process can acquire the lease
// again, but another process cannot.
func TestLeaseRevertedByACrashDoesNotBlockItsOwnProcess(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	m := newManager(db, "one")
	for range 2 {
		granted := pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
		require.NoError(t, granted.Release(t.Context()))
		db.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp() + interval '1 minute'")
		_, err := newManager(db, "two").Acquire(t.Context(), key, time.Minute, db.Connected)
		require.ErrorAs(t, err, new(*lease.HeldError), "another process must wait until the lease expires")
	}
}

// A statement that reaches the server late does not lower a token that a later statement
// has raised.
func TestLateStatementDoesNotLowerTheToken(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first := pgtest.Must(newManager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	db.Exec("UPDATE sexton.fences SET token = 40")
	require.NoError(t, first.Raise(t.Context(), db.Connected))
	require.EqualValues(t, 41, first.Token())
	pgtest.Must(db.Connected.AsyncQueries().LeaseAdvance(t.Context(), dbsqlc.LeaseAdvanceParams{
		Token: 40, Key: key, Holder: first.Holder(), AcquiredAt: first.AcquiredAt(),
	}))(t)
	expire(db)
	second := pgtest.Must(newManager(db, "two").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.EqualValues(t, 42, second.Token(), "no token may have two holders")
}

// A manager refuses to acquire a key that it is acquiring already. Otherwise the earlier
// statement could reach the server later and take the lease from the later acquisition.
func TestManagerAcquiresAKeyOnlyOnceAtATime(t *testing.T) {
	t.Parallel()
	for name, blocked := range map[string]struct{ before, by string }{
		"new lease": {"", "INSERT INTO sexton.leases VALUES ('" + key + "', 1, 'two', now(), '-infinity')"},
		"existing lease": {
			"INSERT INTO sexton.leases VALUES ('" + key + "', 1, 'two', now(), '-infinity')",
			"SELECT FROM sexton.leases FOR UPDATE",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			db.Exec(blocked.before)
			m := newManager(db, "one")
			blocker := pgtest.Connect(t, db.URL)
			pgtest.Exec(t, blocker, "BEGIN; "+blocked.by)
			first := make(chan error, 1)
			go func() {
				_, err := m.Acquire(t.Context(), key, time.Minute)
				first <- err
			}()
			pgtest.Await(t, db.Database, "the first acquisition to wait for a lock",
				"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
			_, err := m.Acquire(t.Context(), key, time.Minute)
			require.ErrorAs(t, err, new(*lease.HeldError))
			pgtest.Exec(t, blocker, "ROLLBACK")
			require.NoError(t, <-first)
		})
	}
}
