package loosefk_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

func tombstonesOf(db *dbtest.DB) loosefk.Tombstones {
	return loosefk.Tombstones{DB: db.Pool(), Names: dbtest.Names(), Bounds: bounds(), Wake: waker}
}

// queue inserts five tombstones of one parent: one due, two failed of which one is
// deferred, one deferred because it was too large, and one that an operator put first. It
// also inserts two of another parent.
const queue = `
INSERT INTO loose_foreign_keys_deleted_records
	(id, fully_qualified_table_name, primary_key_value, primary_key_text, consume_after, created_at, cleanup_attempts, last_error)
VALUES
	(11, 'public.a', 1, NULL, now() - interval '2 hours', now() - interval '3 hours', 0, NULL),
	(12, 'public.a', 2, NULL, now() - interval '1 hour', now() - interval '3 hours', 1, 'children: SQLSTATE 23503: no'),
	(13, 'public.a', 3, NULL, now() + interval '1 hour', now() - interval '3 hours', 3, 'children: SQLSTATE P0001: never'),
	(14, 'public.a', 4, NULL, now() + interval '5 minutes', now() - interval '3 hours', 0, 'too big'),
	(15, 'public.a', 5, NULL, '-infinity', now() - interval '3 hours', 0, NULL),
	(21, 'public."B b"', NULL, 'x', now(), now(), 0, NULL),
	(22, 'public."B b"', NULL, 'y', 'infinity', now(), 9, 'b: SQLSTATE 42501: denied');`

func listFailed(t *testing.T, tombstones loosefk.Tombstones, limit, window int) (ids []int64, l loosefk.FailedTombstones) {
	l = pgtest.Must(tombstones.Failed(t.Context(), limit, window))(t)
	for _, one := range l.First {
		ids = append(ids, one.ID)
	}
	return ids, l
}

func TestFailedTombstonesAreListed(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	tombstones := tombstonesOf(db)
	ids, _ := listFailed(t, tombstones, 100, 500)
	require.Empty(t, ids)
	db.Exec(queue)

	ids, l := listFailed(t, tombstones, 100, 500)
	require.Equal(t, []int64{22, 12, 14, 13}, ids)
	require.Zero(t, l.More)
	require.False(t, l.Capped)
	denied, one := l.First[0], l.First[1]
	require.Equal(t, `public."B b"`, denied.Table)
	require.Equal(t, "y", denied.Key)
	require.True(t, denied.Deferred)
	require.Equal(t, pgtype.Infinity, denied.ConsumeAfter.InfinityModifier)
	require.Equal(t, "2", one.Key)
	require.EqualValues(t, 1, one.Attempts)
	require.False(t, one.Deferred)
	require.Equal(t, "children: SQLSTATE 23503: no", *one.LastError)
	require.InDelta(t, 3*3600, one.AgeSeconds, 60)

	ids, l = listFailed(t, tombstones, 2, 500)
	require.Equal(t, []int64{22, 12}, ids)
	require.EqualValues(t, 2, l.More)
	ids, l = listFailed(t, tombstones, 1, 3)
	require.Equal(t, []int64{22}, ids)
	require.True(t, l.Capped)
	require.EqualValues(t, 2, l.More)
}

// queueState returns the columns of the queue that a retry may change.
func queueState(db *dbtest.DB) [][]string {
	return db.Rows(`SELECT id, CASE WHEN isfinite(consume_after) THEN (consume_after > now())::text ELSE consume_after::text END, cleanup_attempts, last_error
		FROM loose_foreign_keys_deleted_records ORDER BY id`)
}

func retry(t *testing.T, tombstones loosefk.Tombstones, id int64) loosefk.Retried {
	return pgtest.Must(tombstones.Retry(t.Context(), id))(t)
}

func TestRetryMakesFailedTombstonesDue(t *testing.T) {
	t.Parallel()
	db := newDB(t, queue)
	tombstones := tombstonesOf(db)
	require.Equal(t, loosefk.Retried{Retried: 4}, retry(t, tombstones, 0))
	require.Equal(t, [][]string{
		{"11", "false", "0", "NULL"},
		{"12", "false", "0", "children: SQLSTATE 23503: no"},
		{"13", "false", "0", "children: SQLSTATE P0001: never"},
		{"14", "false", "0", "too big"},
		{"15", "-infinity", "0", "NULL"},
		{"21", "false", "0", "NULL"},
		{"22", "false", "0", "b: SQLSTATE 42501: denied"},
	}, queueState(db), "the last error is kept until the next attempt")

	before := db.Rows("SELECT xmin, t::text FROM loose_foreign_keys_deleted_records AS t ORDER BY 2")
	require.Equal(t, loosefk.Retried{}, retry(t, tombstones, 0))
	require.Equal(t, before, db.Rows("SELECT xmin, t::text FROM loose_foreign_keys_deleted_records AS t ORDER BY 2"),
		"the second time changes nothing")
	ids, _ := listFailed(t, tombstones, 10, 500)
	require.Empty(t, ids)
}

func TestRetryByID(t *testing.T) {
	t.Parallel()
	db := newDB(t, queue)
	tombstones := tombstonesOf(db)
	notified := countNotifications(t, bundle{DB: db})
	require.Equal(t, loosefk.Retried{Retried: 1}, retry(t, tombstones, 13))
	require.Equal(t, loosefk.Retried{Due: 1}, retry(t, tombstones, 13))
	require.Equal(t, loosefk.Retried{Due: 1}, retry(t, tombstones, 11))
	require.Equal(t, loosefk.Retried{}, retry(t, tombstones, 99))
	require.Equal(t, 1, notified(), "only the change of a tombstone notifies")
	ids, _ := listFailed(t, tombstones, 10, 500)
	require.Equal(t, []int64{22, 12, 14}, ids, "the other tombstones are unchanged")
}

// A retry of more than one page of tombstones changes all failed ones, at most a thousand
// in one transaction. Every third one has failed, including the last one of the first
// page.
func TestRetryOfManyTombstones(t *testing.T) {
	t.Parallel()
	db := newDB(t, `INSERT INTO loose_foreign_keys_deleted_records (id, fully_qualified_table_name, primary_key_value, consume_after, cleanup_attempts)
		SELECT n, 'public.a', n, now() - interval '1 day' + n * interval '1 ms', CASE n % 3 WHEN 1 THEN 2 ELSE 0 END FROM generate_series(1, 20001) AS n`)
	b := bundle{DB: db}
	notified := countNotifications(t, b)
	require.EqualValues(t, 6667, retry(t, tombstonesOf(db), 0).Retried)
	require.Zero(t, b.count(t, "loose_foreign_keys_deleted_records WHERE cleanup_attempts > 0"))
	require.EqualValues(t, 8, pgtest.Scalar[int64](t, db.Database,
		"SELECT count(DISTINCT xmin::text) - 1 FROM loose_foreign_keys_deleted_records"),
		"at most a thousand per transaction: 3,334 of the first page, 3,333 of the second")
	require.Equal(t, 8, notified(), "each transaction notifies the workers")

	db.Exec("UPDATE loose_foreign_keys_deleted_records SET cleanup_attempts = 1 WHERE id IN (10000, 10001, 20000, 20001)")
	for _, id := range []int64{10000, 10001, 20001} {
		require.Equal(t, loosefk.Retried{Retried: 1}, retry(t, tombstonesOf(db), id))
	}
	require.Equal(t, loosefk.Retried{Due: 1}, retry(t, tombstonesOf(db), 9999))
}

func TestRetrySkipsLockedTombstones(t *testing.T) {
	t.Parallel()
	db := newDB(t, queue)
	tx := db.Begin(t, "DELETE FROM loose_foreign_keys_deleted_records WHERE id = 12")
	require.Equal(t, loosefk.Retried{Retried: 3, Busy: 1}, retry(t, tombstonesOf(db), 0))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, loosefk.Retried{}, retry(t, tombstonesOf(db), 12))
}

// A retry waits for a table lock no longer than the lock timeout.
func TestRetryDoesNotWaitForTableLocks(t *testing.T) {
	t.Parallel()
	db := newDB(t, queue)
	db.Begin(t, "LOCK TABLE loose_foreign_keys_deleted_records IN EXCLUSIVE MODE")
	tombstones := tombstonesOf(db)
	tombstones.Bounds.LockTimeout = 50 * time.Millisecond
	_, err := tombstones.Retry(t.Context(), 0)
	require.ErrorContains(t, err, "retry tombstones of public.")
	require.ErrorContains(t, err, "SQLSTATE 55P03")
}

func (b bundle) fingerprint(t *testing.T) string {
	return pgtest.Must(loosefk.Fingerprint(t.Context(), b.Pool(), "main", b.engine.Parents))(t)
}
