package loosefk_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
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
CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN old; END';
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
	b.engine.Session.Limits.StatementTimeout = 100 * time.Millisecond
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
