package loosefk_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
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

// One MERGE inserts, changes and deletes parents, another one deletes children that are parents themselves.
func TestMerge(t *testing.T) {
	t.Parallel()
	pgtest.Since(t, 15)
	b := setup(t, `
CREATE TABLE parents (id bigint PRIMARY KEY, n bigint);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint) PARTITION BY RANGE (id);
CREATE TABLE children_1 PARTITION OF children FOR VALUES FROM (1) TO (20);
CREATE TABLE children_2 PARTITION OF children FOR VALUES FROM (20) TO (100);
CREATE TABLE leaves (id bigint PRIMARY KEY, child_id bigint);
CREATE INDEX ON children (parent_id); CREATE INDEX ON leaves (child_id);
INSERT INTO parents SELECT generate_series(1, 4), 0;
INSERT INTO children SELECT n, n / 10 FROM generate_series(10, 49) AS n;
INSERT INTO leaves SELECT n, n FROM generate_series(10, 49) AS n;`, `
children: [{table: parents, column: parent_id, on_delete: async_delete}]
leaves: [{table: children, column: child_id, on_delete: async_delete}]`, "parents", "children")
	returning := ""
	if pgtest.Version(t) >= 17 {
		returning = " RETURNING merge_action()"
	}
	b.Exec(`MERGE INTO parents AS p USING (VALUES (1, 'delete'), (2, 'update'), (3, 'delete'), (5, 'insert')) AS by (id, what) ON p.id = by.id
		WHEN MATCHED AND what = 'delete' THEN DELETE WHEN MATCHED THEN UPDATE SET n = 1 WHEN NOT MATCHED THEN INSERT VALUES (by.id, 0)` + returning)
	b.Exec(`MERGE INTO children AS c USING parents AS p ON p.id = c.parent_id WHEN MATCHED AND p.id = 4 AND c.id < 45 THEN DELETE` + returning)
	require.Equal(t, int64(7), b.Pending(t))
	b.run(t)
	b.run(t) // The children that it deleted were parents.
	require.Zero(t, b.Pending(t))
	for _, table := range []string{"children", "leaves"} {
		require.Equal(t, [][]string{{"15", "20", "49"}}, b.Rows("SELECT count(*), min(id), max(id) FROM "+table))
	}
}

// Postgres computes a virtual column when it is read, has no index on one, and shows NULL for it to triggers.
func TestVirtualColumns(t *testing.T) {
	t.Parallel()
	pgtest.Since(t, 18)
	b := setup(t, `
CREATE TABLE parents (id bigint PRIMARY KEY, twice bigint GENERATED ALWAYS AS (id * 2) VIRTUAL);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint GENERATED ALWAYS AS (id / 10) VIRTUAL);
INSERT INTO parents SELECT generate_series(1, 3);
INSERT INTO children SELECT generate_series(10, 39);`, deleteChildren, "parents")
	b.Exec("DELETE FROM parents WHERE id = 2")
	b.drained(t)
	require.Equal(t, [][]string{{"1", "10"}, {"3", "10"}}, b.Rows("SELECT parent_id, count(*) FROM children GROUP BY 1 ORDER BY 1"))

	_, problems := resolve(t, b.Pool(), "children: [{table: parents, column: parent_id, parent_column: twice, on_delete: async_delete}]")
	found := problems.Only(problem.Error)
	require.Len(t, found, 1)
	require.Contains(t, found[0].String(), "column twice of parent parents is not unique")
	_, problems = resolve(t, b.Pool(), dbtest.Defined("async_nullify", "children"))
	require.Contains(t, problems.Only(problem.Error)[0].String(), "children.parent_id is a generated column and cannot be set")
}

// A period is a part of the key like any other column: the children of the row that had exactly this one go.
func TestPeriodsAsKeys(t *testing.T) {
	t.Parallel()
	pgtest.Since(t, 18)
	b := composites(t, `
CREATE TABLE parents (a int4range, b daterange, PRIMARY KEY (a, b WITHOUT OVERLAPS));
CREATE TABLE children (id bigint PRIMARY KEY, a int4range, b daterange);
CREATE INDEX ON children (a, b);
INSERT INTO parents SELECT int4range(1, 2), daterange(make_date(n, 1, 1), make_date(n + 1, 1, 1)) FROM generate_series(2020, 2023) AS n;
INSERT INTO children SELECT 1000 + lower(b) - '2020-01-01'::date, a, b FROM parents;
INSERT INTO children VALUES (1, '[1,1]', '[2021-03-01,2021-04-01)');`,
		byPair, "parents")
	b.Exec("DELETE FROM parents WHERE b @> '2021-06-01'::date")
	b.drained(t)
	require.Equal(t, []string{"1", "1000", "1731", "2096"}, b.ids("SELECT id FROM children ORDER BY id"))
}

func (b bundle) fingerprint(t *testing.T) string {
	return pgtest.Must(loosefk.Fingerprint(t.Context(), b.Pool(), "main", b.engine.Parents))(t)
}

func TestFingerprintFollowsDefinitionsAndNotData(t *testing.T) {
	t.Parallel()
	b := setup(t, `
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (id bigint, parent_id bigint) PARTITION BY LIST (id);
		CREATE TABLE children_1 PARTITION OF children FOR VALUES IN (1);`, deleteChildren, "parents")
	first := b.fingerprint(t)
	b.Exec("INSERT INTO parents VALUES (1); INSERT INTO children VALUES (1, 1); ANALYZE parents, children_1")
	require.Equal(t, first, b.fingerprint(t), "data and statistics change nothing")
	for _, change := range []string{
		"CREATE TABLE children_2 PARTITION OF children FOR VALUES IN (2)",
		"ALTER TABLE children DETACH PARTITION children_2",
		"CREATE INDEX ours ON children (parent_id)",
		"DROP INDEX ours",
		"ALTER TABLE children ADD COLUMN note text",
		"ALTER TABLE parents RENAME id TO key",
		"ALTER TABLE parents RENAME TO elders",
		"DROP TABLE children_1",
	} {
		before := b.fingerprint(t)
		b.Exec(change)
		require.NotEqual(t, before, b.fingerprint(t), change)
	}
}

// The run itself compares it, and has changed nothing where the tables are others by now.
func TestRunEndsWhereTablesHaveChanged(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.Family(1, dbtest.Children{Each: 1}), deleteChildren, "parents")
	b.engine.Fingerprint = b.fingerprint(t)
	b.Exec("DELETE FROM parents; ALTER TABLE children ADD note text")
	_, err := b.engine.Run(t.Context())
	require.ErrorIs(t, err, loosefk.ErrChanged)
	require.EqualValues(t, 1, b.count(t, "children"))

	b.engine.Fingerprint = b.fingerprint(t)
	pgtest.Must(b.engine.Run(t.Context()))(t)
	require.Zero(t, b.count(t, "children"))
}
