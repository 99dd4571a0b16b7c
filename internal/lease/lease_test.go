package lease_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const key = "loose_foreign_keys/cleanup_worker:main"

func newManager(db *dbtest.DB, holder string) *lease.Manager {
	return &lease.Manager{Jobs: db.Connected, Holder: holder}
}

// expire makes the lease expire now.
func expire(db *dbtest.DB) {
	db.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp()")
}

// fenceToken returns the token of the lease's fence. It requires that all 32 slots have
// this token.
func fenceToken(t *testing.T, db *dbtest.DB) int64 {
	const slots = "SELECT count(*) = 32 AND min(token) = max(token) FROM sexton.fences WHERE key = $1"
	require.True(t, pgtest.Scalar[bool](t, db.Database, slots, key))
	return pgtest.Scalar[int64](t, db.Database, "SELECT max(token) FROM sexton.fences WHERE key = $1", key)
}

func TestSecondHolderIsRefused(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	pgtest.Must(newManager(db, "first").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	_, err := newManager(db, "second").Acquire(t.Context(), key, time.Minute, db.Connected)
	var held *lease.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "first", held.Holder)
	require.Equal(t, key, held.Key)
	require.True(t, held.ExpiresAt.After(time.Now()), "expires at %s", held.ExpiresAt)
}

// A connection that is older than the lease confirms it without a query: a crash after
// the acquisition would have closed the connection.
func TestConnectionOfTheAcquisitionNeedsNoConfirmation(t *testing.T) {
	t.Parallel()

	fresh := pgtest.Must(database.Open(t.Context(), "main", dbtest.New(t).URL, "", dbtest.Names(), 2))(t)
	t.Cleanup(fresh.Close)
	fresh.Pool.Reset()
	granted := pgtest.Must((&lease.Manager{Jobs: fresh, Holder: "one"}).Acquire(t.Context(), key, time.Minute,
		fresh))(t)
	conn := pgtest.Acquire(t, fresh.Pool)
	before := fresh.Pool.Stat().AcquireCount()
	require.NoError(t, granted.Confirm(t.Context(), conn.Conn()))
	require.Equal(t, before, fresh.Pool.Stat().AcquireCount())
}

func TestTokenGrowsWithEachAcquisition(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	for want := int64(1); want <= 3; want++ {
		granted := pgtest.Must(newManager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
		require.Equal(t, want, granted.Token())
		require.Equal(t, want, fenceToken(t, db))
		require.NoError(t, granted.Release(t.Context()))
	}
}

func TestReleaseKeepsTheLeaseOfAnotherHolder(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	first := pgtest.Must(newManager(db, "first").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	expire(db)
	pgtest.Must(newManager(db, "second").Acquire(t.Context(), key, time.Minute, db.Connected))(t)

	require.NoError(t, first.Release(t.Context()))
	require.ErrorIs(t, first.Renew(t.Context()), lease.ErrLost)
	_, err := newManager(db, "third").Acquire(t.Context(), key, time.Minute, db.Connected)
	var held *lease.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "second", held.Holder)
}

// If a release does not reach the database, the same process can acquire the lease again,
// but another process cannot.
func TestFailedReleaseIsRepairedByTheNextAcquisition(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	holder := newManager(db, "one")
	granted := pgtest.Must(holder.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, granted.Release(cancelled))
	second := pgtest.Must(holder.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.Equal(t, granted.Token()+1, second.Token())
	_, err := newManager(db, "two").Acquire(t.Context(), key, time.Minute, db.Connected)
	var held *lease.HeldError
	require.ErrorAs(t, err, &held, "another process must not acquire a lease that is held")
}

func TestOneOfManyGetsTheLease(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = newManager(db, fmt.Sprint("racer ", i)).Acquire(t.Context(), key, time.Minute, db.Connected)
		})
	}
	wg.Wait()
	granted := 0
	for _, err := range errs {
		var held *lease.HeldError
		if err == nil {
			granted++
		} else {
			require.ErrorAs(t, err, &held)
		}
	}
	require.Equal(t, 1, granted)
}

func TestContextEndsBeforeTheLease(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	granted := pgtest.Must(newManager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	ctx, cancel := granted.Context(t.Context())
	defer cancel()
	deadline, ok := ctx.Deadline()
	require.True(t, ok)
	ends := pgtest.Scalar[time.Time](t, db.Database, "SELECT expires_at FROM sexton.leases")
	require.False(t, deadline.After(ends.Add(-lease.Margin)), "stops at %s, lease ends at %s", deadline, ends)

	long := newManager(db, "one")
	long.StatementTimeout = time.Minute
	granted = pgtest.Must(long.Acquire(t.Context(), "long statements", time.Minute, db.Connected))(t)
	ctx, cancel = granted.Context(t.Context())
	defer cancel()
	deadline, _ = ctx.Deadline()
	ends = pgtest.Scalar[time.Time](t, db.Database,
		"SELECT expires_at FROM sexton.leases WHERE key = 'long statements'")
	require.False(t, deadline.After(ends.Add(-time.Minute)), "stops at %s, lease ends at %s", deadline, ends)
	require.Greater(t, time.Until(deadline), time.Minute, "a statement of one minute must end before the deadline")

	short := pgtest.Must(newManager(db, "one").Acquire(t.Context(), "short", time.Millisecond, db.Connected))(t)
	expired, cancel := short.Context(t.Context())
	defer cancel()
	<-expired.Done()
	require.ErrorIs(t, context.Cause(expired), lease.ErrLost)
}

// A new holder ends the session of an earlier holder that has locked the fence, for
// example because its process was stopped between DELETE and COMMIT.
func TestTakeOverEndsAnOpenBatch(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	db.Exec("CREATE TABLE children (id bigint)")
	db.Exec("INSERT INTO children VALUES (1)")
	first := pgtest.Must(newManager(db, "first").Acquire(t.Context(), key, time.Minute, db.Connected))(t)

	tx := pgtest.Must(pgtest.Connect(t, db.URL).Begin(t.Context()))(t)
	pgtest.Exec(t, tx, "SELECT sexton.begin_batch($1, 31, $2, 60000, 60000, false)", first.Key(), first.Token())
	pgtest.Exec(t, tx, "DELETE FROM children")

	expire(db)
	second := pgtest.Must(newManager(db, "second").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.Greater(t, second.Token(), first.Token())
	require.Error(t, tx.Commit(t.Context()), "the first holder's transaction must not commit")
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM children"),
		"the DELETE must be rolled back")
}

// A new holder does not end the sessions of other leases.
func TestTakeOverSparesOtherLeases(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	other := pgtest.Must(newManager(db, "other").Acquire(t.Context(), key+"_other", time.Minute, db.Connected))(t)
	tx := pgtest.Must(pgtest.Acquire(t, db.Pool()).Begin(t.Context()))(t)
	pgtest.Exec(t, tx, "SELECT sexton.begin_batch($1, 31, $2, 60000, 60000, false)", other.Key(), other.Token())

	first := pgtest.Must(newManager(db, "first").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	blocked := pgtest.Must(db.Pool().Begin(t.Context()))(t)
	pgtest.Exec(t, blocked, "SELECT sexton.begin_batch($1, 31, $2, 60000, 60000, false)", first.Key(), first.Token())
	expire(db)
	pgtest.Must(newManager(db, "second").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.Error(t, blocked.Commit(t.Context()))
	require.NoError(t, tx.Commit(t.Context()), "the batch of another lease must commit")
}

// An acquisition raises the lease's token above that of the fence. The fence has a higher
// token after the jobs database was restored from an old backup.
func TestTokenIsRaisedAboveAHigherFence(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	db.Exec("INSERT INTO sexton.fences VALUES ($1, 7, 41)", key)
	granted := pgtest.Must(newManager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.EqualValues(t, 42, granted.Token())
	require.EqualValues(t, 42, fenceToken(t, db))
	require.EqualValues(t, 42, pgtest.Scalar[int64](t, db.Database, "SELECT token FROM sexton.leases"))
}

// A holder that is stopped between acquiring the lease and raising the fence does not
// raise its token above that of its successor.
func TestOvertakenHolderDoesNotRaiseItsToken(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	// A locked fence in another database stops the first holder. Meanwhile the second
	// holder takes the lease.
	other := db.Connected
	other.Name = "other"
	blocker := pgtest.Must(db.Pool().Begin(t.Context()))(t)
	pgtest.Exec(t, blocker, "INSERT INTO sexton.fences SELECT $1, n, 2 FROM generate_series(0, 31) AS n", key)
	result := make(chan error, 1)
	go func() {
		_, err := newManager(db, "first").Acquire(t.Context(), key, time.Minute, other)
		result <- err
	}()
	pgtest.Await(t, db.Pool(), "the first holder to wait for the fence",
		"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid')")
	pgtest.Exec(t, blocker, "UPDATE sexton.leases SET token = token + 1, holder = 'second'")
	require.NoError(t, blocker.Commit(t.Context()))
	require.ErrorIs(t, <-result, lease.ErrLost)
	require.EqualValues(t, 2, fenceToken(t, db))
	require.Equal(t, "second", pgtest.Scalar[string](t, db.Database,
		"SELECT holder FROM sexton.leases WHERE expires_at > clock_timestamp()"),
		"the first holder must not release the lease of the second")
}

// A former holder with more sessions than the new one commits nothing: all slots refuse
// its token, and it cannot add slots.
func TestFormerHolderWithMoreSlotsCommitsNothing(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	db.Exec("CREATE TABLE children AS SELECT 1 AS id")
	former := pgtest.Must(newManager(db, "former").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	expire(db)
	pgtest.Must(newManager(db, "new").Acquire(t.Context(), key, time.Minute, db.Connected))(t)

	conn := pgtest.Acquire(t, db.Pool()).Conn()
	limits := batch.Limits{StatementTimeout: time.Minute, LockTimeout: time.Minute}
	for slot := range lease.Slots + 2 {
		session := &batch.Session{Conn: conn, Names: dbtest.Names(), Fence: former, Limits: limits, Slot: slot}
		_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM children"})
		require.ErrorIs(t, err, lease.ErrLost, "slot %d", slot)
		require.ErrorIs(t, former.Raise(t.Context(), db.Connected), lease.ErrLost)
	}
	require.EqualValues(t, 2, fenceToken(t, db))
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM children"))
}

// If an acquisition cannot raise a fence, it releases the lease. Otherwise no process
// could acquire the lease until it expires.
func TestFailedRaiseReleases(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	empty := database.Database{Name: "empty", Pool: pgtest.New(t).Pool(), Names: dbtest.Names()}
	_, err := newManager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected, empty)
	require.ErrorContains(t, err, "in database empty")
	require.Zero(t, pgtest.Scalar[int64](t, db.Database,
		"SELECT count(*) FROM sexton.leases WHERE expires_at > clock_timestamp()"))
	require.NotErrorIs(t, err, lease.ErrLost)
}

// setClockBack simulates a server whose clock was set back by one hour: the end of each
// lease that is not released is one hour later.
func setClockBack(db *dbtest.DB) {
	db.Exec("UPDATE sexton.leases SET expires_at = expires_at + interval '1 hour' WHERE expires_at > '-infinity'")
}

func TestReleasedLeaseStaysReleasedWhenTheServersClockIsSetBack(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	granted := pgtest.Must(newManager(db, "first").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.NoError(t, granted.Release(t.Context()))
	setClockBack(db)
	pgtest.Must(newManager(db, "second").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
}
