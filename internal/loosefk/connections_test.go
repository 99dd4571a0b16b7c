package loosefk_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// recordSessions is a trigger that records which session deleted the children of a
// parent, and in which transaction.
var recordSessions = "CREATE TABLE sightings (pid int, xid xid8, parent bigint);" + dbtest.OnStatement("DELETE", "children",
	"INSERT INTO public.sightings SELECT DISTINCT pg_backend_pid(), pg_current_xact_id(), parent_id FROM gone;")

// moreParents increases the number of parents to 200, with ten children each.
const moreParents = `
INSERT INTO parents SELECT generate_series(11, 200);
INSERT INTO children SELECT 10 * p + n, p FROM generate_series(11, 200) AS p, generate_series(0, 9) AS n;`

func setupManyParents(t *testing.T, connections int) bundle {
	b := setupAdaptive(t, parentsAndChildren, deleteChildren, "parents")
	b.connections(t, connections)
	b.Exec(moreParents + recordSessions)
	return b
}

// requireAllProcessed requires that the 200 parents and all their children have been
// processed.
func (b bundle) requireAllProcessed(t *testing.T, stats *loosefk.Stats) {
	b.requireClean(t, stats)
	require.EqualValues(t, 2000, stats.DeleteCount)
	require.EqualValues(t, 200, stats.Processed)
}

// pid returns the process ID of the engine's first session.
func (b bundle) pid() string { return fmt.Sprint(b.engine.Session.Conn.PgConn().PID()) }

// deadlockTrigger makes two concurrent statements on children deadlock: each changes the
// two rows of the table cursors, in an order that depends on the deleted children. The
// trigger counts the statements, whether they commit or not.
var deadlockTrigger = `
CREATE SEQUENCE tries;
CREATE TABLE cursors (id int PRIMARY KEY, n bigint);
INSERT INTO cursors VALUES (0, 0), (1, 0);` + dbtest.OnStatement("DELETE", "children", `
	IF EXISTS (SELECT FROM gone) THEN
		PERFORM nextval('public.tries');
		UPDATE public.cursors SET n = n + 1 WHERE id = (SELECT max(parent_id) % 2 FROM gone);
		PERFORM pg_sleep(0.05);
		UPDATE public.cursors SET n = n + 1 WHERE id = 1 - (SELECT max(parent_id) % 2 FROM gone);
	END IF;`)

// The sessions of a run process chunks in parallel. Each parent is processed by one
// session.
func TestChunksAreProcessedInParallel(t *testing.T) {
	t.Parallel()
	b := setupManyParents(t, 4)
	b.Exec(dbtest.OnRow("DELETE", "children", "old.id % 10 = 0", "PERFORM pg_sleep(0.01);") + "DELETE FROM parents")
	b.requireAllProcessed(t, b.run(t))
	require.Equal(t, [][]string{{"4", "200"}},
		b.Rows("SELECT count(DISTINCT pid), count(DISTINCT parent) FROM sightings"))
	require.Empty(t, b.Rows("SELECT FROM sightings GROUP BY parent HAVING count(DISTINCT pid) > 1"))
}

// Deadlocks between two sessions of a run count as no failure.
func TestLocksBetweenConnectionsAreNoFailures(t *testing.T) {
	t.Parallel()
	b := setupManyParents(t, 2)
	// With a shorter target, a timeout would end the wait before Postgres finds the
	// deadlock.
	b.engine.Adaptive.Target = 1000 * target
	b.Exec(deadlockTrigger + forbidAttempts + "DELETE FROM parents")
	stats := b.run(t)
	require.Empty(t, stats.Held)
	b.requireAllProcessed(t, stats)
}

// If connections are lost and cannot be replaced, the remaining connection finishes the
// run.
func TestRunContinuesWithoutLostConnections(t *testing.T) {
	t.Parallel()
	b := setupManyParents(t, 3)
	more, left := b.engine.More, 2
	b.engine.More = func(ctx context.Context) *batch.Session {
		if left--; left < 0 {
			return nil
		}
		return more(ctx)
	}
	b.Exec(dbtest.OnStatement("DELETE", "children",
		"PERFORM pg_terminate_backend(pg_backend_pid()) WHERE pg_backend_pid() <> "+b.pid()+";") +
		"DELETE FROM parents")
	b.requireAllProcessed(t, b.run(t))
}

// A statement that closes its connection, for example because it crashes the server
// process, is isolated like any other failure. Its parent is deferred, and the other
// parents are processed in the same run.
func TestAParentThatLosesTheConnectionIsDeferred(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]int{"1": 1, "2": 2}, func(t *testing.T, _ string, connections int) {
		b := setupManyParents(t, connections)
		b.engine.More = func(context.Context) *batch.Session {
			s := b.engine.Session
			return &batch.Session{
				Conn: pgtest.Acquire(t, b.Pool()).Conn(), Names: s.Names, Fence: s.Fence,
				Limits: s.Limits,
			}
		}
		b.Exec("CREATE SEQUENCE cuts;" + dbtest.OnRow("DELETE", "children", "old.parent_id = 77",
			"PERFORM nextval('cuts'), pg_terminate_backend(pg_backend_pid());") + "DELETE FROM parents")
		stats := b.run(t)
		require.EqualValues(t, 1990, stats.DeleteCount)
		require.EqualValues(t, 199, stats.Processed)
		require.Equal(t,
			[][]string{{
				"77", "1", "f",
				"children: SQLSTATE 57P01: the connection was lost: terminating connection due to administrator command",
			}},
			b.tombstones())
		require.Equal(t, [][]string{{"t"}}, b.Rows("SELECT last_value <= 6 FROM cuts"),
			"the chunk was divided three times, and the parent tried alone twice")
	})
}

// If a connection is lost after COMMIT, the tombstone was removed and no failure is
// recorded.
func TestLostResponseToCommitIsNoFailure(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec("DELETE FROM parents WHERE id = 1")
	settings, network, cut := b.Pool().Config().ConnConfig, &pgtest.Network{}, false
	settings.DialFunc = network.Dial
	network.LoseAnswers(func([]byte) bool {
		if cut || b.Pending(t) > 0 {
			return false
		}
		cut = true
		return true
	})
	b.engine.Session.Conn = pgtest.ConnectAs(t, settings)
	b.engine.More = func(context.Context) *batch.Session {
		s := b.engine.Session
		return &batch.Session{
			Conn: pgtest.Acquire(t, b.Pool()).Conn(), Names: s.Names, Fence: s.Fence,
			Limits: s.Limits,
		}
	}
	b.runToEnd(t)
	require.True(t, cut)
}

// Rows with events are deleted by their own statements before rows of other tables.
// Otherwise a native cascade would delete them without an event.
func TestRowsWithEventsAreDeletedFirst(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{1, 3} {
		b := setupAdaptive(t, dbtest.Family(1000, dbtest.Children{Table: "jobs", Each: 1}, dbtest.Children{Table: "artifacts", Each: 10})+others+`
			ALTER TABLE artifacts ADD job_id bigint REFERENCES jobs ON DELETE CASCADE;
			UPDATE artifacts SET job_id = parent_id;
			CREATE INDEX ON artifacts (job_id)`, `
jobs: [{table: parents, column: parent_id, on_delete: async_delete}]
others: [{table: parents, column: parent_id, on_delete: async_delete}]
artifacts: [{table: parents, column: parent_id, on_delete: async_delete, cleaner_class: "Ci::JobArtifacts::LooseForeignKeyCleanerService"}]
`, "parents")
		b.connections(t, connections)
		b.Exec("DELETE FROM parents")
		require.EqualValues(t, 10000, b.runToEnd(t).DeleteCountByTable["artifacts"])
		require.Equal(t, "10000",
			b.Rows("SELECT sum(jsonb_array_length(payload -> 'keys')) FROM sexton.events WHERE kind = 'files_orphaned'")[0][0])
	}
}

// An event has the configured columns of each deleted row, in the order of the keys.
func TestEventsHaveColumnsOfDeletedRows(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, `
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE files (part int, id uuid, parent_id bigint, "storage Key" text, bytes bigint, PRIMARY KEY (part, id));
		CREATE INDEX ON files (parent_id);
		INSERT INTO parents SELECT generate_series(1, 20);
		INSERT INTO files SELECT n % 3, gen_random_uuid(), 1 + n % 20, nullif('blob ' || n, 'blob 7'), n FROM generate_series(1, 400) AS n;
		CREATE TABLE was AS SELECT * FROM files WHERE parent_id < 20`, `
files: [{table: parents, column: parent_id, on_delete: async_delete, event: ["storage Key", bytes]}]
`, "parents")
	b.Exec("DELETE FROM parents WHERE id < 20")
	require.EqualValues(t, 380, b.runToEnd(t).DeleteCountByTable["files"])
	require.Equal(t,
		b.Rows(`SELECT jsonb_build_object('part', part, 'id', id), jsonb_build_object('storage Key', "storage Key", 'bytes', bytes) FROM was ORDER BY 1, 2`),
		b.Rows(`SELECT key, row FROM sexton.events, ROWS FROM (jsonb_array_elements(payload -> 'keys'), jsonb_array_elements(payload -> 'rows')) AS of (key, row)
			WHERE kind = 'rows_deleted' AND payload ->> 'table' = 'files' ORDER BY 1, 2`))
	require.Equal(t, [][]string{{"rows_deleted"}}, b.Rows("SELECT DISTINCT kind FROM sexton.events"))
}
