package loosefk_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/loosefk"
	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

// sightings keeps which session deleted the children of a parent, in which transaction.
const sightings = `
CREATE TABLE sightings (pid int, xid xid8, parent bigint);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO public.sightings SELECT DISTINCT pg_backend_pid(), pg_current_xact_id(), parent_id FROM gone;
	RETURN NULL;
END $$;
CREATE TRIGGER see AFTER DELETE ON children REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION see();`

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
	for _, connections := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			t.Parallel()
			b := divided(t, connections)
			b.Exec("DELETE FROM parents")
			stats := b.run(t)
			require.EqualValues(t, 2000, stats.DeleteCount)
			require.EqualValues(t, 200, stats.Processed)
			require.Zero(t, b.Pending(t))
			require.Equal(t, [][]string{{fmt.Sprint(connections), "200", "200"}},
				b.Rows("SELECT count(DISTINCT pid), count(DISTINCT parent), count(*) FROM sightings"))
		})
	}
}

// Statements on different tables run at once: here those on two of them each go through only while one on the other table does. A table where they
// meet, or fail, is done alone.
func TestTablesAreWorkedOnAtOnce(t *testing.T) {
	t.Parallel()
	yaml, tables := "", more
	for _, table := range []string{"a", "b", "c", "d"} {
		yaml += table + ":\n  - {table: parents, column: parent_id, on_delete: async_delete}\n"
		tables += fmt.Sprintf(`
			CREATE TABLE %[1]s (LIKE children INCLUDING ALL);
			INSERT INTO %[1]s SELECT * FROM children;
			CREATE SEQUENCE began_%[1]s;`, table)
	}
	b := setupAdaptive(t, parentsAndChildren+tables+`
		CREATE FUNCTION meet() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE
			other regclass := 'public.began_' || TG_ARGV[0];
		BEGIN
			PERFORM nextval(('public.began_' || TG_TABLE_NAME)::regclass);
			WHILE pg_sequence_last_value(other) IS NULL LOOP
				PERFORM pg_sleep(0.005);
			END LOOP;
			RETURN NULL;
		END $$;
		CREATE TRIGGER meet AFTER DELETE ON a FOR EACH STATEMENT EXECUTE FUNCTION meet('b');
		CREATE TRIGGER meet AFTER DELETE ON b FOR EACH STATEMENT EXECUTE FUNCTION meet('a');
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('public.began_c') = 1 THEN
				RAISE lock_not_available;
			END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER refuse AFTER DELETE ON c FOR EACH STATEMENT EXECUTE FUNCTION refuse();`, yaml, "parents")
	b.connections(t, 2)
	b.engine.Adaptive.Target = 1000 * target
	b.Exec(innocent)
	b.Exec("DELETE FROM parents")
	stats := b.runSound(t)
	require.EqualValues(t, 8000, stats.DeleteCount)
	require.EqualValues(t, 200, stats.Processed)
	require.Zero(t, b.Pending(t))
}

// While tables are worked on at once, a statement that need not be divided is not: each has its own frame, fence and plan. The last ones are, so that
// no connection waits long for another.
func TestTablesAtOnceAreDividedOnlyTowardsTheEnd(t *testing.T) {
	t.Parallel()
	yaml, tables := "", more+"CREATE TABLE statements (name text);"+`
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO public.statements VALUES (TG_TABLE_NAME);
			RETURN NULL;
		END $$;`
	for table := range 6 {
		yaml += fmt.Sprintf("at_once_%d:\n  - {table: parents, column: parent_id, on_delete: async_delete}\n", table)
		tables += fmt.Sprintf(`
			CREATE TABLE at_once_%[1]d (LIKE children INCLUDING ALL);
			INSERT INTO at_once_%[1]d SELECT * FROM children;
			CREATE TRIGGER note AFTER DELETE ON at_once_%[1]d FOR EACH STATEMENT EXECUTE FUNCTION note();`, table)
	}
	b := setupAdaptive(t, parentsAndChildren+tables, yaml, "parents")
	b.connections(t, 2)
	b.engine.Adaptive.Target = 1000 * target
	b.Exec("DELETE FROM parents WHERE id > 20")
	require.EqualValues(t, 180, b.runSound(t).Processed) // It teaches how many children parents have, and that they go quickly.
	b.Exec("TRUNCATE statements")
	b.Exec("DELETE FROM parents")
	require.EqualValues(t, 6*200, b.runSound(t).DeleteCount)
	require.Zero(t, b.Pending(t))
	require.Equal(t, [][]string{{"1", "3"}, {"2", "3"}}, b.Rows(`
		SELECT n, count(*) FROM (SELECT count(*) AS n FROM statements GROUP BY name) AS of_each GROUP BY n ORDER BY n`))
}

// The second look is divided as well: each connection takes its rows, and one that breaks leaves them to the run's own.
func TestSecondLooksAreDividedAmongConnections(t *testing.T) {
	t.Parallel()
	type example struct {
		trigger, sessions string
		broken            bool
	}
	pgtest.Each(t, map[string]example{
		"whole":  {"", "2", false},
		"broken": {"PERFORM pg_terminate_backend(pg_backend_pid()) WHERE pg_backend_pid() <> TG_ARGV[0]::int;", "1", true},
	}, func(t *testing.T, _ string, c example) {
		b := divided(t, 2)
		b.Exec(`
			INSERT INTO parents SELECT generate_series(201, 2000);
			INSERT INTO children SELECT 100000 + p, p FROM generate_series(201, 2000) AS p;
			CREATE TABLE looks (pid int, keys int);
			CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				INSERT INTO public.looks SELECT pg_backend_pid(), cardinality(OLD.integer_keys);
				` + c.trigger + `
				RETURN NULL;
			END $$;
			CREATE TRIGGER look AFTER DELETE ON sexton.swept FOR EACH ROW EXECUTE FUNCTION look(` + fmt.Sprint(b.engine.Session.Conn.PgConn().PID()) + `)`)
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
	for name, scatter := range map[string]string{"dense": "", "scattered": `
		CREATE TABLE mixed (LIKE children INCLUDING ALL);
		INSERT INTO mixed SELECT id, parent_id FROM children WHERE parent_id = 1;
		INSERT INTO mixed SELECT 100000 + n, -n, repeat('x', 2000) FROM generate_series(1, 3000) AS n;
		DROP TABLE children; ALTER TABLE mixed RENAME TO children;`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupAdaptive(t, parentsAndChildren+heavy(12_000)+scatter+overload+sightings, deleteChildren, "parents")
			b.connections(t, 3)
			b.Exec("DELETE FROM parents WHERE id = 1")
			stats := b.run(t)
			require.EqualValues(t, 12_010, stats.DeleteCount)
			require.Zero(t, b.Pending(t))
			require.Equal(t, [][]string{{"3"}}, b.Rows("SELECT count(DISTINCT pid) FROM sightings"))
		})
	}
}

// crossing makes statements on children change two further rows, in an order that depends on their parents, and count themselves whether they commit or
// not. Two at once deadlock.
const crossing = `
CREATE SEQUENCE tries;
CREATE TABLE cursors (id int PRIMARY KEY, n bigint);
INSERT INTO cursors VALUES (0, 0), (1, 0);
CREATE FUNCTION cross_over() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	first int := (SELECT max(parent_id) % 2 FROM gone);
BEGIN
	IF first IS NULL THEN
		RETURN NULL;
	END IF;
	PERFORM nextval('public.tries');
	UPDATE public.cursors SET n = n + 1 WHERE id = first;
	PERFORM pg_sleep(0.05);
	UPDATE public.cursors SET n = n + 1 WHERE id = 1 - first;
	RETURN NULL;
END $$;
CREATE TRIGGER cross_over AFTER DELETE ON children REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION cross_over();`

// Locks between two connections of a run are no failure: the step is done again on one connection, at once and without an attempt, and so is all that
// follows a deadlock.
func TestLocksBetweenConnectionsAreNoFailures(t *testing.T) {
	t.Parallel()
	b := divided(t, 2)
	b.engine.Adaptive.Target = 1000 * target // No timeout ends the wait before the deadlock is found.
	b.Exec(crossing + innocent)
	b.Exec("DELETE FROM parents")
	stats := b.runSound(t)
	require.Empty(t, stats.Held)
	require.EqualValues(t, 2000, stats.DeleteCount)
	require.EqualValues(t, 200, stats.Processed)
	require.Zero(t, b.Pending(t))
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
	b.Exec(`
		CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_terminate_backend(pg_backend_pid()) WHERE pg_backend_pid() <> TG_ARGV[0]::int;
			RETURN NULL;
		END $$;
		CREATE TRIGGER cut AFTER DELETE ON children FOR EACH STATEMENT EXECUTE FUNCTION cut(` +
		fmt.Sprint(b.engine.Session.Conn.PgConn().PID()) + `)`)
	b.Exec("DELETE FROM parents")
	stats, err := b.engine.Run(t.Context())
	require.EqualError(t, err, "2 of the run's connections broke; the others did its work")
	require.Empty(t, stats.Errors)
	require.EqualValues(t, 2000, stats.DeleteCount)
	require.EqualValues(t, 200, stats.Processed)
	require.Zero(t, b.Pending(t))
}

// A statement that costs the run its connection, as one that crashes the server's process does, is found like any other that fails: the parent whose
// children it is about is put off, and the others go, in the same run.
func TestAParentThatCostsTheConnectionIsPutOff(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{1, 2} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			t.Parallel()
			b := divided(t, connections)
			b.engine.More = func(context.Context) *batch.Session {
				s := b.engine.Session
				return &batch.Session{Conn: pgtest.Acquire(t, b.Pool()).Conn(), Names: s.Names, Fence: s.Fence, Limits: s.Limits}
			}
			b.Exec(`
				CREATE SEQUENCE cuts;
				CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					PERFORM nextval('cuts'), pg_terminate_backend(pg_backend_pid());
					RETURN OLD;
				END $$;
				CREATE TRIGGER cut BEFORE DELETE ON children FOR EACH ROW WHEN (old.parent_id = 77) EXECUTE FUNCTION cut()`)
			b.Exec("DELETE FROM parents")
			stats, err := b.engine.Run(t.Context())
			require.ErrorContains(t, err, "of the run's connections broke")
			require.EqualValues(t, 1990, stats.DeleteCount)
			require.EqualValues(t, 199, stats.Processed)
			require.Equal(t, [][]string{{"77", "1", "f", "children: SQLSTATE 57P01: the connection was lost: terminating connection due to administrator command"}},
				b.tombstones())
			require.Equal(t, [][]string{{"t"}}, b.Rows("SELECT last_value <= 6 FROM cuts"), "three divisions by eight, and two tries alone")
		})
	}
}

// A chunk that was made for several connections is sent in as many parts where others have appeared since: in one piece it would take too long.
func TestChunksKeepTheirParts(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+`
		CREATE TABLE others (id bigint PRIMARY KEY, parent_id bigint);
		CREATE INDEX ON others (parent_id);
		INSERT INTO others SELECT id, parent_id FROM children;
		CREATE TABLE steps (name name, xid xid8, pid int);
		CREATE FUNCTION step() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO public.steps SELECT TG_TABLE_NAME, pg_current_xact_id(), pg_backend_pid() WHERE EXISTS (SELECT FROM gone);
			RETURN NULL;
		END $$;
		CREATE TRIGGER step AFTER DELETE ON children REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION step();
		CREATE TRIGGER step AFTER DELETE ON others REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION step();`,
		deleteChildren+"others: [{table: parents, column: parent_id, on_delete: async_delete}]\n", "parents")
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
		require.EqualValues(t, 2000, b.run(t).DeleteCount)
		require.Zero(t, b.Pending(t))
		require.Equal(t, [][]string{{"1"}}, b.Rows("SELECT count(DISTINCT pid) FROM sightings"))
	})
}

// Rows of which an event tells go by their own statements, before those of other tables: a native cascade would take them along without one.
func TestTablesThatAreToldOfGoFirst(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{1, 3} {
		b := setupAdaptive(t, `
			CREATE TABLE parents (id bigint PRIMARY KEY);
			CREATE TABLE jobs (id bigint PRIMARY KEY, parent_id bigint);
			CREATE TABLE artifacts (id bigint PRIMARY KEY, parent_id bigint, job_id bigint REFERENCES jobs ON DELETE CASCADE);
			CREATE TABLE others (id bigint PRIMARY KEY, parent_id bigint);
			CREATE INDEX ON jobs (parent_id); CREATE INDEX ON artifacts (parent_id); CREATE INDEX ON artifacts (job_id); CREATE INDEX ON others (parent_id);
			INSERT INTO parents SELECT generate_series(1, 1000);
			INSERT INTO jobs SELECT n, n FROM generate_series(1, 1000) AS n;
			INSERT INTO artifacts SELECT 10 * p + n, p, p FROM generate_series(1, 1000) AS p, generate_series(0, 9) AS n;
			INSERT INTO others SELECT n, n FROM generate_series(1, 1000) AS n;`, `
jobs: [{table: parents, column: parent_id, on_delete: async_delete}]
others: [{table: parents, column: parent_id, on_delete: async_delete}]
artifacts: [{table: parents, column: parent_id, on_delete: async_delete, cleaner_class: "Ci::JobArtifacts::LooseForeignKeyCleanerService"}]
`, "parents")
		b.connections(t, connections)
		b.Exec("DELETE FROM parents")
		stats := b.run(t)
		require.Empty(t, stats.Errors)
		require.Zero(t, b.Pending(t))
		require.EqualValues(t, 10000, stats.DeleteCountByTable["artifacts"])
		require.Equal(t, "10000", b.Rows("SELECT sum(jsonb_array_length(payload -> 'keys')) FROM sexton.events WHERE kind = 'files_orphaned'")[0][0])
	}
}

// What a parent had once keeps no chunk small: where several connections work, too, the average follows what parents have now.
func TestTheAverageFollowsOnSeveralConnections(t *testing.T) {
	t.Parallel()
	tables, yaml := "CREATE TABLE parents (id bigint PRIMARY KEY);\n", ""
	for _, name := range []string{"a", "b", "c"} {
		tables += "CREATE TABLE " + name + " (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, parent_id bigint); CREATE INDEX ON " + name + " (parent_id);\n"
		yaml += name + ": [{table: parents, column: parent_id, on_delete: async_delete}]\n"
	}
	b := setupAdaptive(t, tables+`
		CREATE SEQUENCE statements;
		CREATE FUNCTION step() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('public.statements'); RETURN NULL; END $$;
		CREATE TRIGGER step AFTER DELETE ON a FOR EACH STATEMENT EXECUTE FUNCTION step();`, yaml, "parents")
	b.engine.Adaptive.Target = 1000 * target
	b.connections(t, 2)
	for run, parents := range []int{40, 4000, 4000} {
		for _, name := range []string{"a", "b", "c"} {
			b.Exec("INSERT INTO "+name+" (parent_id) SELECT $1::int * 10000 + p FROM generate_series(1, $2::int) AS p, generate_series(1, 16000 / $2::int)", run, parents)
		}
		b.Exec("INSERT INTO parents SELECT $1::int * 10000 + p FROM generate_series(1, $2::int) AS p", run, parents)
		b.Exec("SELECT setval('statements', 1)")
		b.Exec("DELETE FROM parents")
		b.run(t)
	}
	require.Less(t, pgtest.Scalar[int64](t, b.Database, "SELECT last_value FROM statements"), int64(20))
}
