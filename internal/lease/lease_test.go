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

func manager(db *dbtest.DB, holder string) *lease.Manager {
	return &lease.Manager{Jobs: db.Connected, Holder: holder}
}

// expire simulates the expiry of the lease.
func expire(db *dbtest.DB) {
	db.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp()")
}

// fence returns the token of the fence, which all slots must have.
func fence(t *testing.T, db *dbtest.DB) int64 {
	const slots = "SELECT count(*) = 32 AND min(token) = max(token) FROM sexton.fences WHERE key = $1"
	require.True(t, pgtest.Scalar[bool](t, db.Database, slots, key))
	return pgtest.Scalar[int64](t, db.Database, "SELECT max(token) FROM sexton.fences WHERE key = $1", key)
}

func TestSecondHolderIsRefused(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	pgtest.Must(manager(db, "first").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	_, err := manager(db, "second").Acquire(t.Context(), key, time.Minute, db.Connected)
	var held *lease.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "first", held.Holder)
	require.Equal(t, key, held.Key)
	require.True(t, held.ExpiresAt.After(time.Now()), "expires at %s", held.ExpiresAt)
}

// A connection that was opened for the lease is older than it: no crash lies in between.
func TestConnectionOfTheAcquisitionNeedsNoConfirmation(t *testing.T) {
	t.Parallel()

	fresh := pgtest.Must(database.Open(t.Context(), "main", dbtest.New(t).URL, "", dbtest.Names(), 2))(t)
	t.Cleanup(fresh.Close)
	fresh.Pool.Reset()
	granted := pgtest.Must((&lease.Manager{Jobs: fresh, Holder: "one"}).Acquire(t.Context(), key, time.Minute,
		fresh))(t)
	conn := pgtest.Acquire(t, fresh.Pool)
	asked := fresh.Pool.Stat().AcquireCount()
	require.NoError(t, granted.Confirm(t.Context(), conn.Conn()))
	require.Equal(t, asked, fresh.Pool.Stat().AcquireCount())
}

func TestTokenGrowsWithEachAcquisition(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	for want := int64(1); want <= 3; want++ {
		granted := pgtest.Must(manager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
		require.Equal(t, want, granted.Token())
		require.Equal(t, want, fence(t, db))
		require.NoError(t, granted.Release(t.Context()))
	}
}

func TestReleaseLeavesAnothersLeaseAlone(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	first := pgtest.Must(manager(db, "first").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	expire(db)
	pgtest.Must(manager(db, "second").Acquire(t.Context(), key, time.Minute, db.Connected))(t)

	require.NoError(t, first.Release(t.Context()))
	require.ErrorIs(t, first.Renew(t.Context()), lease.ErrLost)
	_, err := manager(db, "third").Acquire(t.Context(), key, time.Minute, db.Connected)
	var held *lease.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "second", held.Holder)
}

// A release that the database did not hear of must not lock the living holder out for the
// rest of the lease.
func TestFailedReleaseIsRepairedByTheNextAcquisition(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	holder := manager(db, "one")
	granted := pgtest.Must(holder.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, granted.Release(gone))
	again := pgtest.Must(holder.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.Equal(t, granted.Token()+1, again.Token())
	_, err := manager(db, "two").Acquire(t.Context(), key, time.Minute, db.Connected)
	var held *lease.HeldError
	require.ErrorAs(t, err, &held, "another process has released nothing")
}

func TestOneOfManyGetsTheLease(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = manager(db, fmt.Sprint("racer ", i)).Acquire(t.Context(), key, time.Minute, db.Connected)
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
	granted := pgtest.Must(manager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	ctx, cancel := granted.Context(t.Context())
	defer cancel()
	deadline, ok := ctx.Deadline()
	require.True(t, ok)
	ends := pgtest.Scalar[time.Time](t, db.Database, "SELECT expires_at FROM sexton.leases")
	require.False(t, deadline.After(ends.Add(-lease.Margin)), "stops at %s, lease ends at %s", deadline, ends)

	long := manager(db, "one")
	long.StatementTimeout = time.Minute
	granted = pgtest.Must(long.Acquire(t.Context(), "long statements", time.Minute, db.Connected))(t)
	ctx, cancel = granted.Context(t.Context())
	defer cancel()
	deadline, _ = ctx.Deadline()
	ends = pgtest.Scalar[time.Time](t, db.Database,
		"SELECT expires_at FROM sexton.leases WHERE key = 'long statements'")
	require.False(t, deadline.After(ends.Add(-time.Minute)), "stops at %s, lease ends at %s", deadline, ends)
	require.Greater(t, time.Until(deadline), time.Minute, "the statement that begins now ends before")

	short := pgtest.Must(manager(db, "one").Acquire(t.Context(), "short", time.Millisecond, db.Connected))(t)
	over, cancel := short.Context(t.Context())
	defer cancel()
	<-over.Done()
	require.ErrorIs(t, context.Cause(over), lease.ErrLost)
}

// A worker that is stopped between DELETE and COMMIT keeps its fence row locked. The
// next holder ends that session instead of waiting for it for ever.
func TestTakeOverEndsAnOpenBatch(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	db.Exec("CREATE TABLE children (id bigint)")
	db.Exec("INSERT INTO children VALUES (1)")
	first := pgtest.Must(manager(db, "first").Acquire(t.Context(), key, time.Minute, db.Connected))(t)

	tx := pgtest.Must(pgtest.Connect(t, db.URL).Begin(t.Context()))(t)
	pgtest.Exec(t, tx, "SELECT sexton.begin_batch($1, 31, $2, 60000, 60000, false)", first.Key(), first.Token())
	pgtest.Exec(t, tx, "DELETE FROM children")

	expire(db)
	second := pgtest.Must(manager(db, "second").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.Greater(t, second.Token(), first.Token())
	require.Error(t, tx.Commit(t.Context()), "the first holder's transaction must not commit")
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM children"),
		"nothing of it may remain")
}

// Ending an earlier holder's batch must not touch the batches of other leases.
func TestTakeOverSparesOtherLeases(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	other := pgtest.Must(manager(db, "other").Acquire(t.Context(), key+"_other", time.Minute, db.Connected))(t)
	tx := pgtest.Must(pgtest.Acquire(t, db.Pool()).Begin(t.Context()))(t)
	pgtest.Exec(t, tx, "SELECT sexton.begin_batch($1, 31, $2, 60000, 60000, false)", other.Key(), other.Token())

	first := pgtest.Must(manager(db, "first").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	blocked := pgtest.Must(db.Pool().Begin(t.Context()))(t)
	pgtest.Exec(t, blocked, "SELECT sexton.begin_batch($1, 31, $2, 60000, 60000, false)", first.Key(), first.Token())
	expire(db)
	pgtest.Must(manager(db, "second").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.Error(t, blocked.Commit(t.Context()))
	require.NoError(t, tx.Commit(t.Context()), "another lease's batch goes on")
}

// After the restore of an old backup of the jobs database the fences stand above the
// lease.
func TestTokenIsRaisedAboveAHigherFence(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	db.Exec("INSERT INTO sexton.fences VALUES ($1, 7, 41)", key)
	granted := pgtest.Must(manager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.EqualValues(t, 42, granted.Token())
	require.EqualValues(t, 42, fence(t, db))
	require.EqualValues(t, 42, pgtest.Scalar[int64](t, db.Database, "SELECT token FROM sexton.leases"))
}

// A holder that sleeps between acquiring and raising finds the fence of its successor and
// must not lift itself over it.
func TestOvertakenHolderDoesNotRaiseItsToken(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	// The lease passes on while the first holder is raising the fence of another database
	// than that of the lease: a fence that is locked stands for the pause.
	other := db.Connected
	other.Name = "other"
	blocker := pgtest.Must(db.Pool().Begin(t.Context()))(t)
	pgtest.Exec(t, blocker, "INSERT INTO sexton.fences SELECT $1, n, 2 FROM generate_series(0, 31) AS n", key)
	result := make(chan error, 1)
	go func() {
		_, err := manager(db, "first").Acquire(t.Context(), key, time.Minute, other)
		result <- err
	}()
	pgtest.Await(t, db.Pool(), "the first holder to wait for the fence",
		"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid')")
	pgtest.Exec(t, blocker, "UPDATE sexton.leases SET token = token + 1, holder = 'second'")
	require.NoError(t, blocker.Commit(t.Context()))
	require.ErrorIs(t, <-result, lease.ErrLost)
	require.EqualValues(t, 2, fence(t, db))
	require.Equal(t, "second", pgtest.Scalar[string](t, db.Database,
		"SELECT holder FROM sexton.leases WHERE expires_at > clock_timestamp()"),
		"the failed holder must not release the other's lease")
}

// A holder whose lease has passed on can have more sessions than the new one: all slots
// refuse it, and it cannot add slots.
func TestALateHolderWithMoreSlotsCommitsNothing(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	db.Exec("CREATE TABLE children AS SELECT 1 AS id")
	late := pgtest.Must(manager(db, "late").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	expire(db)
	pgtest.Must(manager(db, "new").Acquire(t.Context(), key, time.Minute, db.Connected))(t)

	conn := pgtest.Acquire(t, db.Pool()).Conn()
	limits := batch.Limits{StatementTimeout: time.Minute, LockTimeout: time.Minute}
	for slot := range lease.Slots + 2 {
		session := &batch.Session{Conn: conn, Names: dbtest.Names(), Fence: late, Limits: limits, Slot: slot}
		_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM children"})
		require.ErrorIs(t, err, lease.ErrLost, "slot %d", slot)
		require.ErrorIs(t, late.Raise(t.Context(), db.Connected), lease.ErrLost)
	}
	require.EqualValues(t, 2, fence(t, db))
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM children"))
}

// A fence that cannot be raised gives the lease back, or nobody could work until it
// expires.
func TestFailedRaiseReleases(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	gone := database.Database{Name: "gone", Pool: pgtest.New(t).Pool(), Names: dbtest.Names()}
	_, err := manager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected, gone)
	require.ErrorContains(t, err, "in database gone")
	require.Zero(t, pgtest.Scalar[int64](t, db.Database,
		"SELECT count(*) FROM sexton.leases WHERE expires_at > clock_timestamp()"))
	require.NotErrorIs(t, err, lease.ErrLost)
}

// A time one hour ahead simulates a server whose clock was set back by one hour.
func setBack(db *dbtest.DB) {
	db.Exec("UPDATE sexton.leases SET expires_at = expires_at + interval '1 hour' WHERE expires_at > '-infinity'")
}

func TestReleasedLeaseStaysReleasedWhenTheServersClockIsSetBack(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	granted := pgtest.Must(manager(db, "first").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.NoError(t, granted.Release(t.Context()))
	setBack(db)
	pgtest.Must(manager(db, "second").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
}
