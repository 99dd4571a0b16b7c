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

// obstacleTables gives each of 200 parents one child in tables that are slow or locked in
// different ways. A trigger slows down the table children. The table bare has no index.
// The table above is referenced by below, by a native key without an index. Deleting the
// two rows of stuck times out.
var obstacleTables = countTries +
	"INSERT INTO parents SELECT generate_series(11, 200); DELETE FROM children; INSERT INTO children SELECT id, id FROM parents;" +
	dbtest.Children{Table: "bare", Each: 1, Columns: "filler text DEFAULT repeat('x', 500)", Bare: true}.SQL() +
	dbtest.Children{Table: "above", Each: 1}.SQL() + dbtest.Children{Table: "claimed", Each: 1}.SQL() +
	dbtest.Children{Table: "locked", Each: 1}.SQL() +
	dbtest.Children{Table: "stuck"}.SQL() + `
INSERT INTO stuck SELECT id, id FROM parents WHERE id <= 2;
CREATE TABLE below (id bigint PRIMARY KEY, above_id bigint REFERENCES above ON DELETE CASCADE);
INSERT INTO below SELECT n, CASE WHEN n <= 200 THEN n END FROM generate_series(1, 10000) AS n;
ALTER SEQUENCE tries RESTART;` +
	// The trigger raises the error of a timeout. A real statement timeout of 0.1 s would
	// also end statements on other tables on a busy machine.
	dbtest.OnRow("DELETE", "stuck", "old.parent_id <= 2", timedOut) + dbtest.OnRow("DELETE", "children", "true",
	"PERFORM pg_sleep(0.005);")

// timedOut is plpgsql that fails after 0.1 s with the error of a statement timeout.
const timedOut = "PERFORM pg_sleep(0.1); RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014';"

// The children of the table parents have all obstacles, and the children of neighbors
// have none. The children of neighbors are deleted after a limited number of statements
// on the children of parents. All other rows are deleted too, or their tombstone has an
// error.
func TestAllObstaclesTogether(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+obstacleTables,
		withNeighbors+dbtest.Definitions("async_delete", "bare", "above", "claimed", "locked", "stuck"),
		"parents", "neighbors")
	b.engine.Adaptive.Target = 5 * time.Millisecond
	b.engine.Session.Limits.LockTimeout = 50 * time.Millisecond
	b.reportBlockers()
	b.Exec("DELETE FROM parents")
	rows := b.Begin(t, "SELECT FROM claimed WHERE parent_id BETWEEN 101 AND 110 FOR UPDATE")
	table := b.Begin(t, "LOCK TABLE locked")

	var waited atomic.Bool
	first, late := b.deleteNeighbors(t)
	progress := b.engine.Progress
	b.engine.Progress = func(ctx context.Context, stats *loosefk.Stats) {
		progress(ctx, stats)
		if strings.HasPrefix(stats.WaitingFor, "table locked locked by pid") {
			waited.Store(true)
		}
	}
	ended := b.runWhile(t.Context(), t)
	pgtest.WaitFor(t, "all rows that are not locked or stuck to be deleted", func(ctx context.Context) (bool, error) {
		var left string
		err := table.QueryRow(ctx, `SELECT concat_ws(' ', (SELECT count(*) FROM children), (SELECT count(*) FROM others), (SELECT count(*) FROM bare),
			(SELECT count(*) FROM above), (SELECT count(*) FROM claimed))`).Scan(&left)
		return left == "0 0 0 0 10", err
	})
	require.True(t, waited.Load(), "the locked table is reported as the reason for waiting")
	require.NoError(t, table.Rollback(t.Context()))
	require.NoError(t, rows.Rollback(t.Context()))
	stats := ended()
	require.Positive(t, *late)
	require.LessOrEqual(t, *late-*first, int64(400), "statements on slow children before the children of neighbors were deleted")
	require.Equal(t, 210-b.Pending(t), stats.Processed)
	for _, row := range b.tombstones() {
		require.Contains(t, row[3], "stuck: ", "the reason of parent %s", row[0])
		require.Contains(t, []string{"1", "2"}, row[0], "a lock causes no attempt")
	}

	b.Exec("ALTER TABLE stuck DISABLE TRIGGER USER; UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.runToEnd(t)
	require.Zero(t, b.count(t, "stuck")+b.count(t, "locked")+b.count(t, "claimed"))
}

// reportBlockers makes the statistics contain the lock holder.
func (b bundle) reportBlockers() {
	b.engine.Throttle.Blocker = func(ctx context.Context, _ string) string {
		text, _ := b.engine.Session.Blocker(ctx, b.Pool())
		return text
	}
}

// awaitRows waits until children and others have that number of rows in total, as seen by
// the lock holder.
func awaitRows(t *testing.T, holder pgx.Tx, rows int64) {
	t.Helper()
	pgtest.Await(t, holder, "all rows that are not locked to be deleted",
		"SELECT (SELECT count(*) FROM children) + (SELECT count(*) FROM others) = $1", rows)
}

// A locked row of a table without an index causes no attempt. Without an index, each
// statement that skips or waits for a row would read the whole table, and so would the
// removal of each tombstone. In an earlier version these statements timed out, which
// counted as attempts.
func TestALockedRowOfATableWithoutAnIndexIsNoFailure(t *testing.T) {
	t.Parallel()
	const parents = 200
	b := setupAdaptive(t, parentsAndChildren+`
DROP INDEX children_parent_id_idx;
INSERT INTO parents SELECT generate_series(11, 200);
INSERT INTO children SELECT 1000 + n, 11 + n % 190, repeat('x', 100) FROM generate_series(1, 100000) AS n;`, deleteChildren, "parents")
	// The timeout is long enough because the table is read fewer times than there are
	// parents.
	b.engine.Session.Limits.StatementTimeout = time.Second
	held := make(chan struct{})
	b.onProgress(func(stats *loosefk.Stats) bool { return strings.HasPrefix(stats.WaitingFor, "rows of children: ") },
		func() { close(held) })
	tx, _ := b.lockRows(t, "id IN (15, 1500)")
	b.Exec(forbidAttempts + "DELETE FROM parents")
	ended := b.runWhile(t.Context(), t)
	pgtest.Await(t, tx, "all children but the locked ones to be deleted", "SELECT count(*) = 2 FROM children")
	<-held
	require.NoError(t, tx.Rollback(t.Context()))
	require.EqualValues(t, parents, b.requireClean(t, ended()).Processed)
}

// Tombstones whose children are locked for a long time do not fill the memory, and do not
// delay later tombstones.
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
		b.Exec(forbidAttempts + "DELETE FROM parents")
		tx := b.Begin(t, test.lock)
		ended := b.runWhile(t.Context(), t)
		awaitRows(t, tx, test.left)
		require.NoError(t, tx.Rollback(t.Context()))
		stats := ended()
		b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
		require.EqualValues(t, 1200, stats.Processed+b.runToEnd(t).Processed)
	})
}
