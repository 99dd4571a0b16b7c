package loosefk_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// everyObstacle gives 200 parents one child each in tables that are slow or locked in
// different ways. A trigger slows down children. bare has no index. above has no index
// for a native key from below. Rows of the first two parents in stuck time out.
var everyObstacle = slowChildren +
	"INSERT INTO parents SELECT generate_series(11, 200); DELETE FROM children; INSERT INTO children SELECT id, id FROM parents;" +
	dbtest.Children{Table: "bare", Each: 1, Columns: "filler text DEFAULT repeat('x', 500)", Bare: true}.SQL() +
	dbtest.Children{Table: "above", Each: 1}.SQL() + dbtest.Children{Table: "claimed", Each: 1}.SQL() +
	dbtest.Children{Table: "locked", Each: 1}.SQL() +
	dbtest.Children{Table: "stuck"}.SQL() + `
INSERT INTO stuck SELECT id, id FROM parents WHERE id <= 2;
CREATE TABLE below (id bigint PRIMARY KEY, above_id bigint REFERENCES above ON DELETE CASCADE);
INSERT INTO below SELECT n, CASE WHEN n <= 200 THEN n END FROM generate_series(1, 10000) AS n;
ALTER SEQUENCE tries RESTART;` +
	// On a busy machine such a short timeout would also end statements on other tables.
	dbtest.OnRow("DELETE", "stuck", "old.parent_id <= 2", timedOut) + dbtest.OnRow("DELETE", "children", "true",
	"PERFORM pg_sleep(0.005);")

// timedOut is plpgsql that fails after a while like a statement timeout.
const timedOut = "PERFORM pg_sleep(0.1); RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014';"

// While another parent has all obstacles, the children of a healthy parent are deleted
// within a limited number of its statements. All other rows are deleted too, or have a
// reason.
func TestAllObstaclesTogether(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+everyObstacle,
		withNeighbours+dbtest.Definitions("async_delete", "bare", "above", "claimed", "locked", "stuck"),
		"parents", "neighbours")
	b.engine.Adaptive.Target = 5 * time.Millisecond
	b.engine.Session.Limits.LockTimeout = 50 * time.Millisecond
	b.namesBlockers()
	b.Exec("DELETE FROM parents")
	rows := b.Begin(t, "SELECT FROM claimed WHERE parent_id BETWEEN 101 AND 110 FOR UPDATE")
	table := b.Begin(t, "LOCK TABLE locked")

	var waited atomic.Bool
	first, late := b.losesNeighbours(t)
	progress := b.engine.Progress
	b.engine.Progress = func(ctx context.Context, stats *loosefk.Stats) {
		progress(ctx, stats)
		if strings.HasPrefix(stats.WaitingFor, "table locked locked by pid") {
			waited.Store(true)
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
	require.Positive(t, *late)
	require.LessOrEqual(t, *late-*first, int64(400), "statements on slow children that went before the neighbours'")
	require.Equal(t, 210-b.Pending(t), stats.Processed)
	for _, row := range b.tombstones() {
		require.Contains(t, row[3], "stuck: ", "the reason of parent %s", row[0])
		require.Contains(t, []string{"1", "2"}, row[0], "a lock is no failure")
	}

	b.Exec("ALTER TABLE stuck DISABLE TRIGGER USER; UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.drained(t)
	require.Zero(t, b.count(t, "stuck")+b.count(t, "locked")+b.count(t, "claimed"))
}

// namesBlockers makes the statistics contain the lock holder.
func (b bundle) namesBlockers() {
	b.engine.Throttle.Blocker = func(ctx context.Context, _ string) string {
		text, _ := b.engine.Session.Blocker(ctx, b.Pool())
		return text
	}
}

// awaitLeft waits until that number of rows is left in children and others, as seen by
// the lock holder.
func awaitLeft(t *testing.T, holder pgx.Tx, rows int64) {
	t.Helper()
	pgtest.Await(t, holder, "all that is not locked to go",
		"SELECT (SELECT count(*) FROM children) + (SELECT count(*) FROM others) = $1", rows)
}

// Without an index, each statement that skips or waits for a row would read the whole
// table, and so would the removal of each tombstone. In an earlier version a locked row
// made them time out, which counted as attempts.
func TestALockedRowOfATableWithoutAnIndexIsNoFailure(t *testing.T) {
	t.Parallel()
	const parents = 200
	b := setupAdaptive(t, parentsAndChildren+`
DROP INDEX children_parent_id_idx;
INSERT INTO parents SELECT generate_series(11, 200);
INSERT INTO children SELECT 1000 + n, 11 + n % 190, repeat('x', 100) FROM generate_series(1, 100000) AS n;`, deleteChildren, "parents")
	// The table is read fewer times than there are parents.
	b.engine.Session.Limits.StatementTimeout = time.Second
	held := make(chan struct{})
	b.onProgress(func(stats *loosefk.Stats) bool { return strings.HasPrefix(stats.WaitingFor, "rows of children: ") },
		func() { close(held) })
	tx, _ := b.lockRows(t, "id IN (15, 1500)")
	b.Exec(innocent + "DELETE FROM parents")
	ended := b.runWhile(t.Context(), t)
	pgtest.Await(t, tx, "all but the locked children to go", "SELECT count(*) = 2 FROM children")
	<-held
	require.NoError(t, tx.Rollback(t.Context()))
	require.EqualValues(t, parents, b.clean(t, ended()).Processed)
}

// Tombstones that are locked for long do not fill the memory and do not delay later ones.
func TestLockedTombstonesDoNotDelayLaterOnes(t *testing.T) {
	t.Parallel()
	type example struct {
		lock string
		left int64
	}
	pgtest.Each(t, map[string]example{
		"table": {"LOCK TABLE children", 1200},
		"rows":  {"SELECT FROM children WHERE parent_id <= 800 FOR UPDATE", 800},
	}, func(t *testing.T, _ string, test example) {
		b := setupAdaptive(t, dbtest.Family(1200, dbtest.Children{Each: 1})+others,
			dbtest.Definitions("async_delete", "children", "others"), "parents")
		b.engine.Session.Limits.LockTimeout = 50 * time.Millisecond
		b.Exec(innocent + "DELETE FROM parents")
		tx := b.Begin(t, test.lock)
		ended := b.runWhile(t.Context(), t)
		awaitLeft(t, tx, test.left)
		require.NoError(t, tx.Rollback(t.Context()))
		stats := ended()
		b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
		require.EqualValues(t, 1200, stats.Processed+b.drained(t).Processed)
	})
}
