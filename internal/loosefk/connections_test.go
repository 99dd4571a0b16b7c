package loosefk_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

// sightings keeps which session deleted the children of a parent, in which transaction.
var sightings = "CREATE TABLE sightings (pid int, xid xid8, parent bigint);" + dbtest.OnStatement("DELETE", "children",
	"INSERT INTO public.sightings SELECT DISTINCT pg_backend_pid(), pg_current_xact_id(), parent_id FROM gone;")

// more brings the parents with ten children each to 200.
const more = `
INSERT INTO parents SELECT generate_series(11, 200);
INSERT INTO children SELECT 10 * p + n, p FROM generate_series(11, 200) AS p, generate_series(0, 9) AS n;`

func divided(t *testing.T, connections int) bundle {
	b := setupAdaptive(t, parentsAndChildren, deleteChildren, "parents")
	b.connections(t, connections)
	b.Exec(more + sightings)
	return b
}

// No two connections have children of one parent, and all parents go.
func TestStepsAreDividedAmongConnections(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]int{"1": 1, "2": 2, "4": 4}, func(t *testing.T, name string, connections int) {
		b := divided(t, connections)
		b.Exec("DELETE FROM parents")
		b.allGone(t, b.drained(t))
		require.Equal(t, [][]string{{name, "200", "200"}}, b.Rows("SELECT count(DISTINCT pid), count(DISTINCT parent), count(*) FROM sightings"))
	})
}

// allGone checks that the 200 parents of divided are worked off with all of their children.
func (b bundle) allGone(t *testing.T, stats *loosefk.Stats) {
	b.clean(t, stats)
	require.EqualValues(t, 2000, stats.DeleteCount)
	require.EqualValues(t, 200, stats.Processed)
}

// Statements on different tables run at once: here those on two of them each go through only while one on the other table does. A table where they
// meet, or fail, is done alone.
func TestTablesAreWorkedOnAtOnce(t *testing.T) {
	t.Parallel()
	tables, names := more+copies("a", "b", "c", "d"), []string{"a", "b", "c", "d"}
	meet := func(table, other string) string {
		return "CREATE SEQUENCE began_" + table + ";" + dbtest.OnStatement("DELETE", table, "PERFORM nextval('public.began_"+table+"');"+
			"WHILE pg_sequence_last_value('public.began_"+other+"') IS NULL LOOP PERFORM pg_sleep(0.005); END LOOP;")
	}
	b := setupAdaptive(t, parentsAndChildren+tables+meet("a", "b")+meet("b", "a")+"CREATE SEQUENCE began_c;"+
		dbtest.OnStatement("DELETE", "c", "IF nextval('public.began_c') = 1 THEN RAISE lock_not_available; END IF;"),
		dbtest.Defined("async_delete", names...), "parents")
	b.connections(t, 2)
	b.engine.Adaptive.Target = 1000 * target
	b.Exec(innocent + "DELETE FROM parents")
	stats := b.drained(t)
	require.EqualValues(t, 8000, stats.DeleteCount)
	require.EqualValues(t, 200, stats.Processed)
}

// copies are tables with the same rows as children.
func copies(names ...string) (sql string) {
	for _, name := range names {
		sql += fmt.Sprintf("CREATE TABLE %[1]s (LIKE children INCLUDING ALL); INSERT INTO %[1]s SELECT * FROM children;\n", name)
	}
	return sql
}

// While tables are worked on at once, a statement that need not be divided is not: each has its own frame, fence and plan. The last ones are, so that
// no connection waits long for another.
func TestTablesAtOnceAreDividedOnlyTowardsTheEnd(t *testing.T) {
	t.Parallel()
	names := []string{"at_once_0", "at_once_1", "at_once_2", "at_once_3", "at_once_4", "at_once_5"}
	tables := more + copies(names...) + "CREATE TABLE statements (name text);"
	for _, name := range names {
		tables += dbtest.OnStatement("DELETE", name, "INSERT INTO public.statements VALUES (TG_TABLE_NAME);")
	}
	b := setupAdaptive(t, parentsAndChildren+tables, dbtest.Defined("async_delete", names...), "parents")
	b.connections(t, 2)
	b.engine.Adaptive.Target = 1000 * target
	b.Exec("DELETE FROM parents WHERE id > 20")
	require.EqualValues(t, 180, b.runSound(t).Processed) // It teaches how many children parents have, and that they go quickly.
	b.Exec("TRUNCATE statements; DELETE FROM parents")
	require.EqualValues(t, 6*200, b.drained(t).DeleteCount)
	require.Equal(t, [][]string{{"1", "3"}, {"2", "3"}}, b.Rows(`
		SELECT n, count(*) FROM (SELECT count(*) AS n FROM statements GROUP BY name) AS of_each GROUP BY n ORDER BY n`))
}

// pid is the process number of the engine's own session.
func (b bundle) pid() string { return fmt.Sprint(b.engine.Session.Conn.PgConn().PID()) }

// The second look is divided as well: each connection takes its rows, and one that breaks leaves them to the run's own.
func TestSecondLooksAreDividedAmongConnections(t *testing.T) {
	t.Parallel()
	type example struct {
		trigger, sessions string
		broken            bool
	}
	pgtest.Each(t, map[string]example{
		"whole":  {"", "2", false},
		"broken": {"PERFORM pg_terminate_backend(pg_backend_pid()) WHERE pg_backend_pid() <> %d;", "1", true},
	}, func(t *testing.T, _ string, c example) {
		b := divided(t, 2)
		b.Exec(`
			INSERT INTO parents SELECT generate_series(201, 2000);
			INSERT INTO children SELECT 100000 + p, p FROM generate_series(201, 2000) AS p;
			CREATE TABLE looks (pid int, keys int);` + dbtest.OnStatement("DELETE", "sexton.swept",
			"INSERT INTO public.looks SELECT pg_backend_pid(), cardinality(integer_keys) FROM gone;"+strings.ReplaceAll(c.trigger, "%d", b.pid())))
		b.Exec("DELETE FROM parents")
		stats, err := b.engine.Run(t.Context())
		require.Equal(t, c.broken, err != nil)
		require.Empty(t, stats.Errors)
		require.EqualValues(t, 2000, stats.Confirmed)
		require.Equal(t, [][]string{{c.sessions, "2000"}}, b.Rows("SELECT count(DISTINCT pid), sum(keys) FROM looks"))
		require.Empty(t, b.Rows("SELECT FROM sexton.swept"))
	})
}

// The rows of a single parent are divided by their places.
func TestPiecesOfABigParentAreDividedAmongConnections(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{"dense": "", "scattered": `
		CREATE TABLE mixed (LIKE children INCLUDING ALL);
		INSERT INTO mixed SELECT id, parent_id FROM children WHERE parent_id = 1;
		INSERT INTO mixed SELECT 100000 + n, -n, repeat('x', 2000) FROM generate_series(1, 3000) AS n;
		DROP TABLE children; ALTER TABLE mixed RENAME TO children;`}, func(t *testing.T, _, scatter string) {
		b := setupAdaptive(t, parentsAndChildren+heavy(12_000)+scatter+overload+sightings, deleteChildren, "parents")
		b.connections(t, 3)
		b.Exec("DELETE FROM parents WHERE id = 1")
		require.EqualValues(t, 12_010, b.drained(t).DeleteCount)
		require.Equal(t, [][]string{{"3"}}, b.Rows("SELECT count(DISTINCT pid) FROM sightings"))
	})
}

// crossing makes statements on children change two further rows, in an order that depends on their parents, and count themselves whether they commit or
// not. Two at once deadlock.
var crossing = `
CREATE SEQUENCE tries;
CREATE TABLE cursors (id int PRIMARY KEY, n bigint);
INSERT INTO cursors VALUES (0, 0), (1, 0);` + dbtest.OnStatement("DELETE", "children", `
	IF EXISTS (SELECT FROM gone) THEN
		PERFORM nextval('public.tries');
		UPDATE public.cursors SET n = n + 1 WHERE id = (SELECT max(parent_id) % 2 FROM gone);
		PERFORM pg_sleep(0.05);
		UPDATE public.cursors SET n = n + 1 WHERE id = 1 - (SELECT max(parent_id) % 2 FROM gone);
	END IF;`)

// Locks between two connections of a run are no failure: the step is done again on one connection, at once and without an attempt, and so is all that
// follows a deadlock.
func TestLocksBetweenConnectionsAreNoFailures(t *testing.T) {
	t.Parallel()
	b := divided(t, 2)
	b.engine.Adaptive.Target = 1000 * target // No timeout ends the wait before the deadlock is found.
	b.Exec(crossing + innocent + "DELETE FROM parents")
	stats := b.run(t)
	require.Empty(t, stats.Held)
	b.allGone(t, stats)
	require.Equal(t, [][]string{{"t"}}, b.Rows("SELECT last_value - (SELECT count(DISTINCT xid) FROM sightings) <= 1 FROM tries"), "one deadlock")
}

// A run goes on by its own connection where a further one breaks. It counts as failed, as the answer to a COMMIT may have been lost.
func TestConnectionsThatBreakAreDoneWithout(t *testing.T) {
	t.Parallel()
	b := divided(t, 3)
	more, left := b.engine.More, 2
	b.engine.More = func(ctx context.Context) *batch.Session {
		if left--; left < 0 {
			return nil
		}
		return more(ctx)
	}
	b.Exec(dbtest.OnStatement("DELETE", "children", "PERFORM pg_terminate_backend(pg_backend_pid()) WHERE pg_backend_pid() <> "+b.pid()+";") +
		"DELETE FROM parents")
	stats, err := b.engine.Run(t.Context())
	require.EqualError(t, err, "2 of the run's connections broke; the others did its work")
	b.allGone(t, stats)
}

// A statement that costs the run its connection, as one that crashes the server's process does, is found like any other that fails: the parent whose
// children it is about is put off, and the others go, in the same run.
func TestAParentThatCostsTheConnectionIsPutOff(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]int{"1": 1, "2": 2}, func(t *testing.T, _ string, connections int) {
		b := divided(t, connections)
		b.engine.More = func(context.Context) *batch.Session {
			s := b.engine.Session
			return &batch.Session{Conn: pgtest.Acquire(t, b.Pool()).Conn(), Names: s.Names, Fence: s.Fence, Limits: s.Limits}
		}
		b.Exec("CREATE SEQUENCE cuts;" + dbtest.OnRow("DELETE", "children", "old.parent_id = 77",
			"PERFORM nextval('cuts'), pg_terminate_backend(pg_backend_pid());") + "DELETE FROM parents")
		stats, err := b.engine.Run(t.Context())
		require.ErrorContains(t, err, "of the run's connections broke")
		require.EqualValues(t, 1990, stats.DeleteCount)
		require.EqualValues(t, 199, stats.Processed)
		require.Equal(t, [][]string{{"77", "1", "f", "children: SQLSTATE 57P01: the connection was lost: terminating connection due to administrator command"}},
			b.tombstones())
		require.Equal(t, [][]string{{"t"}}, b.Rows("SELECT last_value <= 6 FROM cuts"), "three divisions by eight, and two tries alone")
	})
}

// A chunk that was made for several connections is sent in as many parts where others have appeared since: in one piece it would take too long.
func TestChunksKeepTheirParts(t *testing.T) {
	t.Parallel()
	const step = "INSERT INTO public.steps SELECT TG_TABLE_NAME, pg_current_xact_id(), pg_backend_pid() WHERE EXISTS (SELECT FROM gone);"
	b := setupAdaptive(t, parentsAndChildren+copies("others")+"CREATE TABLE steps (name name, xid xid8, pid int);"+
		dbtest.OnStatement("DELETE", "children", step)+dbtest.OnStatement("DELETE", "others", step),
		dbtest.Defined("async_delete", "children", "others"), "parents")
	b.connections(t, 2)
	var crowd atomic.Bool
	more := b.engine.More
	b.engine.More = func(ctx context.Context) *batch.Session { crowd.Store(true); return more(ctx) }
	b.engine.Throttle.Share = func(context.Context, float64, bool) (float64, pace.Duty) {
		if crowd.Load() {
			return 0.99, pace.Duty{}
		}
		return 1, pace.Duty{}
	}
	b.Exec("DELETE FROM parents")
	require.EqualValues(t, 200, b.run(t).DeleteCount)
	require.Equal(t, [][]string{{"t", "2", "1"}}, b.Rows(`
		SELECT count(DISTINCT xid) FILTER (WHERE NOT later) = count(DISTINCT xid) FILTER (WHERE later),
			count(DISTINCT pid) FILTER (WHERE NOT later), count(DISTINCT pid) FILTER (WHERE later)
		FROM (SELECT *, name <> first_value(name) OVER (ORDER BY xid) AS later FROM steps) AS steps`), "the table that comes first, and the other")
}

// A run divides nothing while others want their share, or no connection is free.
func TestStepsStayInOnePiece(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]func(e *loosefk.Engine){
		"beside others": func(e *loosefk.Engine) {
			e.Throttle.Share = func(context.Context, float64, bool) (float64, pace.Duty) { return 0.99, pace.Duty{} }
		},
		"without a free connection": func(e *loosefk.Engine) {
			e.More = func(context.Context) *batch.Session { return nil }
		},
		"with so few rows": func(e *loosefk.Engine) { e.Worth = 2000 },
	}, func(t *testing.T, _ string, given func(e *loosefk.Engine)) {
		b := divided(t, 2)
		given(b.engine)
		b.Exec("DELETE FROM parents")
		b.allGone(t, b.run(t))
		require.Equal(t, [][]string{{"1"}}, b.Rows("SELECT count(DISTINCT pid) FROM sightings"))
	})
}

// Rows of which an event tells go by their own statements, before those of other tables: a native cascade would take them along without one.
func TestTablesThatAreToldOfGoFirst(t *testing.T) {
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
		require.EqualValues(t, 10000, b.drained(t).DeleteCountByTable["artifacts"])
		require.Equal(t, "10000", b.Rows("SELECT sum(jsonb_array_length(payload -> 'keys')) FROM sexton.events WHERE kind = 'files_orphaned'")[0][0])
	}
}

// What a parent had once keeps no chunk small: where several connections work, too, the average follows what parents have now.
func TestTheAverageFollowsOnSeveralConnections(t *testing.T) {
	t.Parallel()
	tables := dbtest.Family(0, dbtest.Children{Table: "a"}, dbtest.Children{Table: "b"}, dbtest.Children{Table: "c"})
	b := setupAdaptive(t, tables+"CREATE SEQUENCE ids; CREATE SEQUENCE statements;"+dbtest.OnStatement("DELETE", "a", "PERFORM nextval('public.statements');"),
		dbtest.Defined("async_delete", "a", "b", "c"), "parents")
	b.engine.Adaptive.Target = 1000 * target
	b.connections(t, 2)
	for run, parents := range []int{40, 4000, 4000} {
		for _, name := range []string{"a", "b", "c"} {
			b.Exec("INSERT INTO "+name+" SELECT nextval('ids'), $1::int * 10000 + p FROM generate_series(1, $2::int) AS p, generate_series(1, 16000 / $2::int)", run, parents)
		}
		b.Exec("INSERT INTO parents SELECT $1::int * 10000 + p FROM generate_series(1, $2::int) AS p", run, parents)
		b.Exec("SELECT setval('statements', 1)")
		b.Exec("DELETE FROM parents")
		b.run(t)
	}
	require.Less(t, pgtest.Scalar[int64](t, b.Database, "SELECT last_value FROM statements"), int64(20))
}
