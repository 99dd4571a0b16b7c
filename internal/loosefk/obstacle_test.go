package loosefk_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// A lock that outlasts all timeouts, and several tries, costs no attempt and no other tombstone anything. Once it is gone,
// its tombstone goes in the same run.
func TestLocksAreNoFailures(t *testing.T) {
	t.Parallel()

	const others = `
CREATE TABLE others (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON others (parent_id);
INSERT INTO others SELECT n, n FROM generate_series(1, 10) AS n;`
	for name, test := range map[string]struct {
		pace         loosefk.Adaptive
		lock, reason string
		left         int64
	}{
		"row, normal":     {loosefk.Adaptive{}, "SELECT FROM children WHERE id = 55 FOR UPDATE", "children: row locked by pid", 1},
		"row, adaptive":   {loosefk.Adaptive{Target: target, Duty: 1}, "SELECT FROM children WHERE id = 55 FOR UPDATE", "children: row locked by pid", 1},
		"table, normal":   {loosefk.Adaptive{}, "LOCK TABLE children", "table children locked by pid", 100},
		"table, adaptive": {loosefk.Adaptive{Target: target, Duty: 1}, "LOCK TABLE children", "table children locked by pid", 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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

	for name, test := range map[string]struct {
		lock string
		left int64
	}{
		"table": {"LOCK TABLE children", 1200},
		"rows":  {"SELECT FROM children WHERE parent_id <= 800 FOR UPDATE", 800},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
}

// The look that tells which tombstones are to blame for a timeout reads tables that another session has locked. It holds the run up for a moment only.
func TestALockedTableBlamesNoTombstone(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.engine.Session.Limits = batch.Limits{StatementTimeout: time.Hour, LockTimeout: time.Hour}
	tx := b.Begin(t, "LOCK TABLE children")
	blamed, waits, err := b.engine.Blamed(t.Context(), 1, 2, 11)
	require.NoError(t, err)
	require.Equal(t, []int{0, 3}, []int{blamed, waits}, "it cannot be told yet")
	require.NoError(t, tx.Rollback(t.Context()))
	blamed, waits, err = b.engine.Blamed(t.Context(), 1, 2, 11)
	require.NoError(t, err)
	require.Equal(t, []int{2, 1}, []int{blamed, waits}, "parent 11 has no children")
}
