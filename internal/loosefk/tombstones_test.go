package loosefk_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

func tombstonesOf(db *dbtest.DB) loosefk.Tombstones {
	return loosefk.Tombstones{DB: db.Pool(), Names: dbtest.Names(), Bounds: bounds(), Wake: waker}
}

// queue has five tombstones of one parent: one due, two that failed, one of those put off, one put off for being too
// big, and one that an operator put first; and two of another parent.
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

func list(t *testing.T, tombstones loosefk.Tombstones, options loosefk.ListOptions) (ids []int64, l loosefk.TombstoneList) {
	l = pgtest.Must(tombstones.List(t.Context(), options))(t)
	for _, one := range l.Tombstones {
		ids = append(ids, one.ID)
	}
	return ids, l
}

func TestListShowsFailuresFirst(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	tombstones := tombstonesOf(db)
	ids, l := list(t, tombstones, loosefk.ListOptions{Limit: 100})
	require.Empty(t, ids)
	require.NotNil(t, l.Tombstones)
	db.Exec(queue)

	ids, l = list(t, tombstones, loosefk.ListOptions{Limit: 100})
	require.Equal(t, []int64{22, 12, 14, 13, 21, 15, 11}, ids)
	require.Zero(t, l.More)
	require.False(t, l.Capped)
	denied, failed := l.Tombstones[0], l.Tombstones[1]
	require.Equal(t, `public."B b"`, denied.Table)
	require.Equal(t, "y", denied.Key)
	require.True(t, denied.Deferred)
	require.Contains(t, string(pgtest.Must(json.Marshal(denied))(t)), `"consume_after":"infinity"`)
	require.Equal(t, "2", failed.Key)
	require.EqualValues(t, 1, failed.Attempts)
	require.True(t, failed.Failed)
	require.False(t, failed.Deferred)
	require.Equal(t, "children: SQLSTATE 23503: no", *failed.LastError)
	require.InDelta(t, 3*3600, failed.AgeSeconds, 60)
	require.False(t, l.Tombstones[6].Failed)
	require.Nil(t, l.Tombstones[6].LastError)

	ids, l = list(t, tombstones, loosefk.ListOptions{Limit: 3})
	require.Equal(t, []int64{22, 12, 14}, ids)
	require.EqualValues(t, 4, l.More)
	ids, l = list(t, tombstones, loosefk.ListOptions{Limit: 2, FailedOnly: true})
	require.Equal(t, []int64{22, 12}, ids)
	require.EqualValues(t, 2, l.More)
	ids, _ = list(t, tombstones, loosefk.ListOptions{Limit: 100, Parent: "public.a"})
	require.Equal(t, []int64{12, 14, 13, 15, 11}, ids)
	ids, _ = list(t, tombstones, loosefk.ListOptions{Limit: 100, Parent: "public.c"})
	require.Empty(t, ids)
}

func TestListCountsUpToACap(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) SELECT 'public.a', generate_series(1, 10100)")
	db.Exec(queue)
	ids, l := list(t, tombstonesOf(db), loosefk.ListOptions{Limit: 10})
	require.Equal(t, []int64{22, 12, 14, 13}, ids[:4])
	require.True(t, l.Capped)
	require.EqualValues(t, 9990, l.More)
}

// state is the queue as far as a retry may change it.
func state(db *dbtest.DB) [][]string {
	return db.Rows(`SELECT id, CASE WHEN isfinite(consume_after) THEN (consume_after > now())::text ELSE consume_after::text END, cleanup_attempts, last_error
		FROM loose_foreign_keys_deleted_records ORDER BY id`)
}

func retry(t *testing.T, tombstones loosefk.Tombstones, options loosefk.RetryOptions) loosefk.Retried {
	return pgtest.Must(tombstones.Retry(t.Context(), options))(t)
}

func TestRetryMakesFailedTombstonesDue(t *testing.T) {
	t.Parallel()
	db := with(t, queue)
	tombstones := tombstonesOf(db)
	require.Equal(t, loosefk.Retried{Retried: 3, Unknown: []int64{}}, retry(t, tombstones, loosefk.RetryOptions{Parent: "public.a"}))
	require.Equal(t, [][]string{
		{"11", "false", "0", "NULL"},
		{"12", "false", "0", "children: SQLSTATE 23503: no"},
		{"13", "false", "0", "children: SQLSTATE P0001: never"},
		{"14", "false", "0", "too big"},
		{"15", "-infinity", "0", "NULL"},
		{"21", "false", "0", "NULL"},
		{"22", "infinity", "9", "b: SQLSTATE 42501: denied"},
	}, state(db), "the last reason stays until the next attempt")

	before := db.Rows("SELECT xmin, t::text FROM loose_foreign_keys_deleted_records AS t ORDER BY 2")
	require.Equal(t, loosefk.Retried{Unknown: []int64{}}, retry(t, tombstones, loosefk.RetryOptions{Parent: "public.a"}))
	require.Equal(t, before, db.Rows("SELECT xmin, t::text FROM loose_foreign_keys_deleted_records AS t ORDER BY 2"), "the second time changes nothing")
	ids, _ := list(t, tombstones, loosefk.ListOptions{Limit: 10, FailedOnly: true})
	require.Equal(t, []int64{22}, ids)

	require.EqualValues(t, 1, retry(t, tombstones, loosefk.RetryOptions{}).Retried)
	ids, _ = list(t, tombstones, loosefk.ListOptions{Limit: 10, FailedOnly: true})
	require.Empty(t, ids)
}

func TestRetryByID(t *testing.T) {
	t.Parallel()
	db := with(t, queue)
	tombstones := tombstonesOf(db)
	options := loosefk.RetryOptions{IDs: []int64{99, 13, 11, 22, 13, 4}}
	require.Equal(t, loosefk.Retried{Retried: 2, Due: 1, Unknown: []int64{4, 99}}, retry(t, tombstones, options))
	require.Equal(t, loosefk.Retried{Due: 3, Unknown: []int64{4, 99}}, retry(t, tombstones, options))
	ids, _ := list(t, tombstones, loosefk.ListOptions{Limit: 10, FailedOnly: true})
	require.Equal(t, []int64{12, 14}, ids, "nothing else")

	heard := listening(t, bundle{DB: db})
	retry(t, tombstones, loosefk.RetryOptions{IDs: []int64{12}})
	retry(t, tombstones, loosefk.RetryOptions{IDs: []int64{11, 12}})
	require.Equal(t, 1, heard(), "for what changed alone")
}

// Pages, batches and their seams: more than one page of tombstones of which every third failed, the last of the
// first page among them.
func TestRetryOfManyTombstones(t *testing.T) {
	t.Parallel()
	db := with(t, `INSERT INTO loose_foreign_keys_deleted_records (id, fully_qualified_table_name, primary_key_value, consume_after, cleanup_attempts)
		SELECT n, 'public.a', n, now() - interval '1 day' + n * interval '1 ms', CASE n % 3 WHEN 1 THEN 2 ELSE 0 END FROM generate_series(1, 20001) AS n`)
	b := bundle{DB: db}
	heard := listening(t, b)
	require.EqualValues(t, 6667, retry(t, tombstonesOf(db), loosefk.RetryOptions{}).Retried)
	require.Zero(t, b.count(t, "loose_foreign_keys_deleted_records WHERE cleanup_attempts > 0"))
	require.EqualValues(t, 8, pgtest.Scalar[int64](t, db.Database, "SELECT count(DISTINCT xmin::text) - 1 FROM loose_foreign_keys_deleted_records"),
		"at most a thousand per transaction: 3,334 of the first page, 3,333 of the second")
	require.Equal(t, 8, heard(), "each of them wakes")

	db.Exec("UPDATE loose_foreign_keys_deleted_records SET cleanup_attempts = 1 WHERE id IN (10000, 10001, 20000, 20001)")
	require.Equal(t, loosefk.Retried{Retried: 3, Due: 1, Unknown: []int64{20002}},
		retry(t, tombstonesOf(db), loosefk.RetryOptions{IDs: []int64{9999, 10000, 10001, 20001, 20002}}))
}

func TestRetryLeavesWhatAWorkerHasInHand(t *testing.T) {
	t.Parallel()
	db := with(t, queue)
	tx := db.Begin(t, "DELETE FROM loose_foreign_keys_deleted_records WHERE id = 12")
	require.Equal(t, loosefk.Retried{Retried: 3, Busy: 1, Unknown: []int64{}}, retry(t, tombstonesOf(db), loosefk.RetryOptions{}))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, loosefk.Retried{Unknown: []int64{12}}, retry(t, tombstonesOf(db), loosefk.RetryOptions{IDs: []int64{12}}))
}

// A lock on the whole table is waited for no longer than the lock timeout.
func TestRetryDoesNotWaitForTableLocks(t *testing.T) {
	t.Parallel()
	db := with(t, queue)
	db.Begin(t, "LOCK TABLE loose_foreign_keys_deleted_records IN EXCLUSIVE MODE")
	tombstones := tombstonesOf(db)
	tombstones.Bounds.LockTimeout = 50 * time.Millisecond
	_, err := tombstones.Retry(t.Context(), loosefk.RetryOptions{Parent: "public.a"})
	require.ErrorContains(t, err, "retry tombstones of public.a: ")
	require.ErrorContains(t, err, "SQLSTATE 55P03")
}

func (b bundle) fingerprint(t *testing.T) string {
	return pgtest.Must(loosefk.Fingerprint(t.Context(), b.Pool(), "main", b.engine.Parents))(t)
}
