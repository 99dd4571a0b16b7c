package loosefk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/fault"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

// twoDatabases has ten parents in main with ten children each in main and ten builds each in ci.
func twoDatabases(t *testing.T) (main bundle, ci *dbtest.DB) {
	b := setup(t, parentsAndChildren, deleteChildren)
	ci = dbtest.New(t)
	ci.Connected.Name = "ci"
	ci.Exec(`
		CREATE TABLE builds (id bigint PRIMARY KEY, parent_id bigint);
		CREATE INDEX ON builds (parent_id);
		INSERT INTO builds SELECT 10 * p + n, p FROM generate_series(1, 10) AS p, generate_series(0, 9) AS n;`)
	b.Track(t, "parents")
	bindTwo(t, b, ci)
	require.NoError(t, b.engine.Session.Fence.Raise(t.Context(), ci.Connected))
	b.engine.Remotes = map[string]loosefk.Remote{"ci": {Session: sessionOn(t, b, ci)}}
	return b, ci
}

func sessionOn(t *testing.T, b bundle, ci *dbtest.DB) *batch.Session {
	return &batch.Session{Conn: pgtest.Acquire(t, ci.Pool()).Conn(), Names: dbtest.Names(), Fence: b.engine.Session.Fence, Limits: b.engine.Session.Limits}
}

func bindTwo(t *testing.T, b bundle, ci *dbtest.DB) {
	bindTwoTo(t, b, ci, deleteChildren+`
builds:
  - {table: parents, column: parent_id, on_delete: async_delete}
`)
}

func bindTwoTo(t *testing.T, b bundle, ci *dbtest.DB, yaml string) {
	sites := []loosefk.Site{{Name: "main", Schema: "public", DB: b.Pool()}, {Name: "ci", Schema: "public", DB: ci.Pool()}}
	parents, problems := pgtest.Must2(loosefk.Resolve(t.Context(), sites, parse(t, yaml)))(t)
	require.Empty(t, problems)
	require.Empty(t, parents["ci"])
	b.engine.Parents = parents["main"]
}

func TestChildrenInAnotherDatabase(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]loosefk.Adaptive{"normal": {}, "adaptive": {Target: 20 * time.Millisecond, Duty: 1}}, func(t *testing.T, _ string, adaptive loosefk.Adaptive) {
		b, ci := twoDatabases(t)
		b.engine.Adaptive = adaptive
		b.Exec("DELETE FROM parents WHERE id <= 3")
		stats := b.runSound(t)
		require.EqualValues(t, 3, stats.Processed)
		require.Equal(t, map[string]int64{"children": 30, "builds": 30}, stats.DeleteCountByTable)
		require.Zero(t, b.Pending(t))
		require.Equal(t, [][]string{{"70", "4"}}, ci.Rows("SELECT count(*), min(parent_id) FROM builds"))
		require.Zero(t, b.run(t).DeleteCount, "a second run changes nothing")
	})
}

// A jobs database that hangs ends the run, and says nothing of the others.
func TestAJobsDatabaseThatHangsMarksNoOtherDown(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	b.run(t)
	b.engine.Lost = func(database string, err error) { t.Errorf("%s is lost: %v", database, err) }
	locked := b.begun(t)
	locked.exec("LOCK TABLE sexton.leases")
	b.Exec("DELETE FROM parents WHERE id = 1")
	_, err := b.engine.Run(t.Context())
	require.ErrorIs(t, err, lease.ErrUnconfirmed)
	require.EqualValues(t, 1, b.Pending(t))
	locked.exec("COMMIT")
	require.EqualValues(t, 1, b.run(t).Processed)
	require.EqualValues(t, 90, pgtest.Scalar[int64](t, ci.Database, "SELECT count(*) FROM builds"))
}

// The tombstone must outlive the children, whichever database is slower.
func TestTombstoneStaysUntilTheOtherDatabaseIsClean(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	blocker := ci.Begin(t, "SELECT FROM builds WHERE id = 10 FOR UPDATE")
	b.engine.Remotes["ci"].Session.Limits.LockTimeout = 50 * time.Millisecond
	b.engine.Session.Limits.LockTimeout = 50 * time.Millisecond
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.engine.Limits.Runtime = time.Second
	require.Zero(t, b.run(t).Processed)
	require.Equal(t, []string{"10"}, ci.Rows("SELECT id FROM builds WHERE parent_id = 1")[0])
	require.Equal(t, [][]string{{"1", "0", "f", ""}}, b.tombstones(), "a lock is no failure")
	require.NoError(t, blocker.Rollback(t.Context()))
	b.engine.Limits.Runtime = time.Minute
	require.EqualValues(t, 1, b.run(t).Processed)
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
}

// What does not need the database that is down is done; what does is put off without blame, and done when it is back.
func TestDatabaseThatIsDown(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	there := b.engine.Remotes["ci"]
	b.engine.Remotes["ci"] = loosefk.Remote{Err: errors.New("no route to host"), Down: time.Hour}
	b.Exec("DELETE FROM parents WHERE id = 1")
	stats := b.run(t)
	require.EqualValues(t, 1, stats.Rescheduled)
	require.Equal(t, []fault.Counts{{Table: "builds", Message: "database ci: no route to host", Count: 1}}, stats.Errors)
	require.Equal(t, map[string]int64{"children": 10}, stats.DeleteCountByTable)
	require.Equal(t, [][]string{{"1", "0", "t", "builds: database ci: no route to host"}}, b.tombstones(), "no attempt is counted")
	require.Equal(t, [][]string{{"t"}}, b.Rows("SELECT consume_after <= now() + interval '1 minute' FROM loose_foreign_keys_deleted_records"))

	b.engine.Remotes["ci"] = there
	b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	require.EqualValues(t, 1, b.run(t).Processed)
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
}

// A connection that breaks in the middle of a run costs the run no more than what depends on it.
func TestDatabaseThatGoesDownMeanwhile(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	var lost string
	b.engine.Lost = func(database string, _ error) { lost = database }
	b.engine.Progress = func(ctx context.Context, _ *loosefk.Stats) {
		if lost == "" {
			_, err := ci.Pool().Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
			require.NoError(t, err)
		}
	}
	b.Exec("DELETE FROM parents")
	stats := b.run(t)
	require.Equal(t, "ci", lost)
	require.EqualValues(t, 100, stats.DeleteCountByTable["children"])
	require.Zero(t, stats.Processed)
	require.EqualValues(t, 10, stats.Rescheduled)
	require.EqualValues(t, 10, b.Pending(t))

	b.engine.Progress = nil
	b.engine.Remotes["ci"] = loosefk.Remote{Session: sessionOn(t, b, ci)}
	b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	require.EqualValues(t, 10, b.run(t).Processed)
	require.Empty(t, ci.Rows("SELECT FROM builds"))
}

// A holder whose lease has passed on commits nothing, in no database.
func TestFenceHoldsInEveryDatabase(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	b.Exec("DELETE FROM parents WHERE id = 1")
	ci.Exec("UPDATE sexton.fences SET token = token + 1")
	_, err := b.engine.Run(t.Context())
	require.ErrorIs(t, err, lease.ErrLost)
	require.EqualValues(t, 100, pgtest.Scalar[int64](t, ci.Database, "SELECT count(*) FROM builds"))
	require.EqualValues(t, 1, b.Pending(t))
}

// Transactions that were open in the other database when the tombstone went may still insert children there.
func TestLateChildInAnotherDatabase(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	older := pgtest.Connect(t, ci.URL)
	exec := func(sql string) {
		_, err := older.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	exec("BEGIN; SELECT FROM builds")
	b.Exec("DELETE FROM parents WHERE id = 1")
	require.EqualValues(t, 1, b.run(t).Processed)
	b.Exec("UPDATE sexton.swept SET not_before = NULL")
	require.Zero(t, b.run(t).Confirmed, "the transaction is still open")
	require.Equal(t, [][]string{{"t"}}, b.Rows("SELECT not_before > now() FROM sexton.swept"), "nobody looks again at once")
	exec("INSERT INTO builds VALUES (1000, 1); COMMIT")
	b.Exec("UPDATE sexton.swept SET not_before = NULL")
	require.EqualValues(t, 1, b.run(t).LateChildren)
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
	require.Zero(t, b.Pending(t))
}

// Where a parent has no children in its own database, nothing in the statements there is about children.
func TestAllChildrenInAnotherDatabase(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	for _, parent := range b.engine.Parents {
		parent.References = slices.DeleteFunc(parent.References, func(r *loosefk.Reference) bool { return !r.Remote })
	}
	older := pgtest.Begin(t, ci.Pool())
	b.Exec("DELETE FROM parents WHERE id = 1")
	stats := b.runSound(t)
	require.EqualValues(t, 1, stats.Processed)
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))

	pgtest.Exec(t, older, "INSERT INTO builds VALUES (1000, 1)")
	require.NoError(t, older.Commit(t.Context()))
	b.Exec("UPDATE sexton.swept SET not_before = NULL")
	stats = b.run(t)
	require.Empty(t, stats.Errors)
	require.EqualValues(t, 1, stats.LateChildren)
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
	require.Zero(t, b.Pending(t))
}

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
