package loosefk_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

// everyObstacle gives 600 parents one child each in tables that are slow or locked in every way: children cost time by a trigger, no index leads
// to bare, none leads from above to what a native key deletes below it. The rows of the first five parents in stuck time out.
const everyObstacle = slowChildren + `
INSERT INTO parents SELECT generate_series(11, 600);
DELETE FROM children;
CREATE TABLE bare (id bigint PRIMARY KEY, parent_id bigint, filler text);
CREATE TABLE above (id bigint PRIMARY KEY, parent_id bigint);
CREATE TABLE claimed (id bigint PRIMARY KEY, parent_id bigint);
CREATE TABLE locked (id bigint PRIMARY KEY, parent_id bigint);
CREATE TABLE stuck (id bigint PRIMARY KEY, parent_id bigint);
CREATE TABLE below (id bigint PRIMARY KEY, above_id bigint REFERENCES above ON DELETE CASCADE);
CREATE INDEX ON above (parent_id);
CREATE INDEX ON claimed (parent_id);
CREATE INDEX ON locked (parent_id);
CREATE INDEX ON stuck (parent_id);
INSERT INTO children SELECT id, id FROM parents;
INSERT INTO bare SELECT id, id, repeat('x', 500) FROM parents;
INSERT INTO above SELECT id, id FROM parents;
INSERT INTO claimed SELECT id, id FROM parents;
INSERT INTO locked SELECT id, id FROM parents;
INSERT INTO stuck SELECT id, id FROM parents WHERE id <= 5;
INSERT INTO below SELECT n, n FROM generate_series(1, 600) AS n;
INSERT INTO below SELECT n, NULL FROM generate_series(601, 10000) AS n;
ALTER SEQUENCE tries RESTART;
CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	PERFORM pg_sleep(0.1);
	-- A timeout so short would end statements of other tables, too, on a busy machine.
	RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014';
END $$;
CREATE TRIGGER stop BEFORE DELETE ON stuck FOR EACH ROW WHEN (old.parent_id <= 5) EXECUTE FUNCTION stop();
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.005); RETURN old; END';
CREATE TRIGGER slow BEFORE DELETE ON children FOR EACH ROW EXECUTE FUNCTION slow();`

// With all obstacles of a slow neighbour at once, a healthy parent's children are gone within a bounded number of its statements, which is less
// than a second of them. All the rest ends, too, or has its reason.
func TestEveryObstacleAtOnce(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+everyObstacle, withHealthy+`
bare: [{table: parents, column: parent_id, on_delete: async_delete}]
above: [{table: parents, column: parent_id, on_delete: async_delete}]
claimed: [{table: parents, column: parent_id, on_delete: async_delete}]
locked: [{table: parents, column: parent_id, on_delete: async_delete}]
stuck: [{table: parents, column: parent_id, on_delete: async_delete}]
`, "parents", "healthy")
	b.engine.Adaptive.Target = 5 * time.Millisecond
	b.engine.Session.Limits.LockTimeout = 50 * time.Millisecond
	b.engine.Throttle.Blocker = func(ctx context.Context, _ string) string {
		text, _ := b.engine.Session.Blocker(ctx, b.Pool())
		return text
	}
	b.Exec("DELETE FROM parents")
	rows := b.Begin(t, "SELECT FROM claimed WHERE parent_id BETWEEN 101 AND 110 FOR UPDATE")
	table := b.Begin(t, "LOCK TABLE locked")

	var waited atomic.Bool
	began, tried := int64(0), int64(0)
	b.engine.Progress = func(_ context.Context, stats *loosefk.Stats) {
		if strings.HasPrefix(stats.WaitingFor, "table locked locked by pid") {
			waited.Store(true)
		}
		switch {
		case began == 0 && stats.DeleteCount > 0:
			began = b.tries(t)
			b.Exec("DELETE FROM healthy")
		case tried == 0 && stats.DeleteCountByTable["others"] == 10:
			tried = b.tries(t) - began
		}
	}
	ended := b.runWhile(t.Context(), t)
	pgtest.WaitFor(t, "all that is not locked or stuck to go", func(ctx context.Context) (bool, error) {
		var left string
		err := table.QueryRow(ctx, `SELECT concat_ws(' ', (SELECT count(*) FROM children), (SELECT count(*) FROM others), (SELECT count(*) FROM bare),
			(SELECT count(*) FROM above), (SELECT count(*) FROM claimed))`).Scan(&left)
		return left == "0 0 0 0 10", err
	})
	require.True(t, waited.Load(), "the locked table is the reason")
	require.NoError(t, table.Rollback(t.Context()))
	require.NoError(t, rows.Rollback(t.Context()))
	stats := ended()
	require.Positive(t, tried)
	require.LessOrEqual(t, tried, int64(200), "statements on slow children that went before the healthy parents'")
	require.Equal(t, 610-b.Pending(t), stats.Processed)
	for _, row := range b.tombstones() {
		require.Contains(t, row[3], "stuck: ", "the reason of parent %s", row[0])
		require.Contains(t, []string{"1", "2", "3", "4", "5"}, row[0], "a lock is no failure")
	}

	b.Exec("DROP TRIGGER stop ON stuck; UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.run(t)
	require.Zero(t, b.Pending(t))
	require.Zero(t, b.count(t, "stuck")+b.count(t, "locked")+b.count(t, "claimed"))
}

// A lock that outlasts all timeouts, and several tries, costs no attempt and no other tombstone anything. Once it is gone,
// its tombstone goes in the same run.
func TestLocksAreNoFailures(t *testing.T) {
	t.Parallel()
	const others = `
CREATE TABLE others (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON others (parent_id);
INSERT INTO others SELECT n, n FROM generate_series(1, 10) AS n;`
	type example struct {
		pace         loosefk.Adaptive
		lock, reason string
		left         int64
	}
	pgtest.Each(t, map[string]example{
		"row, normal":     {loosefk.Adaptive{}, "SELECT FROM children WHERE id = 55 FOR UPDATE", "children: row locked by pid", 1},
		"row, adaptive":   {loosefk.Adaptive{Target: target, Duty: 1}, "SELECT FROM children WHERE id = 55 FOR UPDATE", "children: row locked by pid", 1},
		"table, normal":   {loosefk.Adaptive{}, "LOCK TABLE children", "table children locked by pid", 100},
		"table, adaptive": {loosefk.Adaptive{Target: target, Duty: 1}, "LOCK TABLE children", "table children locked by pid", 100},
	}, func(t *testing.T, _ string, test example) {
		b := setup(t, parentsAndChildren+others, deleteChildren+`
others: [{table: parents, column: parent_id, on_delete: async_delete}]
`, "parents")
		b.Exec(innocent)
		b.engine.Adaptive = test.pace
		b.engine.Session.Limits.LockTimeout = 300 * time.Millisecond
		b.engine.Throttle.Blocker = func(ctx context.Context, _ string) string {
			text, _ := b.engine.Session.Blocker(ctx, b.Pool())
			return text
		}
		reasons := make(chan string, 1000)
		b.engine.Progress = func(_ context.Context, stats *loosefk.Stats) { reasons <- stats.WaitingFor }
		b.Exec("DELETE FROM parents")
		tx := b.Begin(t, test.lock)
		ended := b.runWhile(t.Context(), t)
		for reason := ""; len(reason) < len(test.reason) || reason[:len(test.reason)] != test.reason; reason = <-reasons {
		}
		pgtest.WaitFor(t, "all that is not locked to go", func(ctx context.Context) (bool, error) {
			var left int64
			err := tx.QueryRow(ctx, "SELECT (SELECT count(*) FROM children) + (SELECT count(*) FROM others)").Scan(&left)
			return left == test.left, err
		})
		require.NoError(t, tx.Rollback(t.Context()))
		stats := ended()
		require.EqualValues(t, 10, stats.Processed)
		require.Empty(t, stats.Errors)
		require.Zero(t, b.Pending(t))
	})
}

// Without an index every statement that skips or waits by itself would read the whole table, and so would the removal of each
// tombstone: a locked row made them time out, and cost attempts.
func TestALockedRowOfATableWithoutAnIndexIsNoFailure(t *testing.T) {
	t.Parallel()
	const parents = 200
	b := setupAdaptive(t, parentsAndChildren+`
DROP INDEX children_parent_id_idx;
INSERT INTO parents SELECT generate_series(11, 200);
INSERT INTO children SELECT 1000 + n, 11 + n % 190, repeat('x', 100) FROM generate_series(1, 100000) AS n;`, deleteChildren, "parents")
	b.Exec(innocent)
	b.engine.Session.Limits.StatementTimeout = 100 * time.Millisecond
	for _, parent := range b.engine.Parents {
		parent.ReadByRanges(200)
	}
	held := make(chan struct{})
	b.onProgress(func(stats *loosefk.Stats) bool { return strings.HasPrefix(stats.WaitingFor, "rows of children: ") }, func() { close(held) })
	tx, _ := b.lockRows(t, "id IN (15, 1500)")
	b.Exec("DELETE FROM parents")
	ended := b.runWhile(t.Context(), t)
	pgtest.Await(t, tx, "all but the locked children to go", "SELECT count(*) = 2 FROM children")
	<-held
	require.NoError(t, tx.Rollback(t.Context()))
	stats := ended()
	require.EqualValues(t, parents, stats.Processed)
	require.Empty(t, stats.Errors)
	require.Zero(t, b.Pending(t))
}

// What is locked for long fills no memory and keeps nothing behind it from being worked on.
func TestTombstonesBehindManyLockedOnesGo(t *testing.T) {
	t.Parallel()
	type example struct {
		lock string
		left int64
	}
	pgtest.Each(t, map[string]example{
		"table": {"LOCK TABLE children", 1200},
		"rows":  {"SELECT FROM children WHERE parent_id <= 800 FOR UPDATE", 800},
	}, func(t *testing.T, _ string, test example) {
		b := setupAdaptive(t, `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
CREATE TABLE others (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON children (parent_id);
CREATE INDEX ON others (parent_id);
INSERT INTO parents SELECT generate_series(1, 1200);
INSERT INTO children SELECT id, id FROM parents;
INSERT INTO others SELECT id, id FROM parents;`, deleteChildren+`
others: [{table: parents, column: parent_id, on_delete: async_delete}]
`, "parents")
		b.Exec(innocent)
		b.engine.CarryAtMost(100)
		b.engine.Session.Limits.LockTimeout = 50 * time.Millisecond
		b.Exec("DELETE FROM parents")
		tx := b.Begin(t, test.lock)
		ended := b.runWhile(t.Context(), t)
		pgtest.WaitFor(t, "all that is not locked to go", func(ctx context.Context) (bool, error) {
			var left int64
			err := tx.QueryRow(ctx, "SELECT (SELECT count(*) FROM children) + (SELECT count(*) FROM others)").Scan(&left)
			return left == test.left, err
		})
		require.NoError(t, tx.Rollback(t.Context()))
		stats := ended()
		require.Less(t, stats.Processed, int64(1200), "some were left to the next run")
		require.EqualValues(t, 1200, stats.Processed+b.run(t).Processed)
		require.Zero(t, b.Pending(t))
	})
}

// The look that tells which tombstones are to blame for a timeout reads tables that another session has locked. It holds the run up for a moment only.
func TestALockedTableBlamesNoTombstone(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.engine.Session.Limits = batch.Limits{StatementTimeout: time.Hour, LockTimeout: time.Hour}
	tx := b.Begin(t, "LOCK TABLE children")
	blamed, waits := pgtest.Must2(b.engine.Blamed(t.Context(), 1, 2, 11))(t)
	require.Equal(t, []int{0, 3}, []int{blamed, waits}, "it cannot be told yet")
	require.NoError(t, tx.Rollback(t.Context()))
	blamed, waits = pgtest.Must2(b.engine.Blamed(t.Context(), 1, 2, 11))(t)
	require.Equal(t, []int{2, 1}, []int{blamed, waits}, "parent 11 has no children")
}

// The fix of each finding is all that it takes.
func TestUnreadableParents(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec(parentsAndChildren + `CREATE SCHEMA "My App"; CREATE TABLE "My App"."Users" (id bigint PRIMARY KEY)`)
	parents := parentsOf(t, db.Pool(), `
children:
  - {table: parents, column: parent_id, on_delete: async_delete}
  - {table: '"My App"."Users"', column: id, on_delete: async_delete}
`)
	pool := pgtest.Must(pgxpool.New(t.Context(), db.AsRole(db.CreateRole())))(t)
	defer pool.Close()
	unreadable := func() map[string]problem.Problem {
		found := pgtest.Must(loosefk.UnreadableParents(t.Context(), pool, parents))(t)
		byTable := map[string]problem.Problem{}
		for _, p := range found {
			require.Equal(t, problem.Error, p.Severity)
			require.Contains(t, p.Message, "its tombstones are held")
			byTable[p.Key] = p
		}
		return byTable
	}
	found := unreadable()
	require.Len(t, found, 2)
	db.Exec(found["public.parents"].Fix)
	db.Exec(found[`"My App"."Users"`].Fix)
	require.Empty(t, unreadable())
}
