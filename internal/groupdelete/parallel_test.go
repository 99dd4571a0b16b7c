package groupdelete_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/groupdelete"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// parallel returns an engine for group 1 that deletes n projects at a time.
func (b bundle) parallel(t *testing.T, n int) *groupdelete.Engine {
	engine := b.engine(t, 1)
	more := &batch.SessionPool{Pool: b.Pool(), First: engine.Session}
	t.Cleanup(more.Release)
	engine.Connections, engine.More = n, more.Session
	return engine
}

func TestProjectsInParallelAreDeletedAsNative(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]int{"2 connections": 2, "4 connections": 4},
		func(t *testing.T, _ string, connections int) {
			b := setup(t, issues, forest)
			engine := b.parallel(t, connections)
			engine.Sizes.Rows = 5
			stats := b.run(t, engine, groupdelete.Destroyed)
			b.requireAsNative(t, issues, forest)
			require.Equal(t, map[string]int64{
				"groups": 5, "projects": 58, "issues": 116, "notes": 232, "members": 4, "group_group_links": 3,
			}, stats.Deleted)
			require.EqualValues(t, 5+58+116+232+4+3, stats.Done)
			require.Empty(t, stats.Errors)
			require.Len(t, b.events(), 5+58)
			b.requireChildrenFirst(t)
		})
}

// The deletion of project 11 takes until project 12 is deleted, so a single session would
// time out.
func TestTwoProjectsAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	b.Exec(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
		WHILE EXISTS (SELECT FROM public.projects WHERE id = 12) LOOP PERFORM pg_catalog.pg_sleep(0.001); END LOOP;
		RETURN old;
	END$$;
	CREATE TRIGGER wait BEFORE DELETE ON projects FOR EACH ROW WHEN (old.id = 11) EXECUTE FUNCTION wait()`)
	stats := b.run(t, b.parallel(t, 2), groupdelete.Destroyed)
	require.Empty(t, stats.Errors)
	b.requireAsNative(t, issues, someIssues)
}

// Another program has locked one project. The others are deleted meanwhile.
func TestLockedProjectDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, forest)
	holder := b.Begin(t, "SELECT FROM projects WHERE id = 11 FOR UPDATE")
	wait := runWhile(t, b.parallel(t, 3))
	pgtest.Await(t, b.Pool(), "all other projects of the groups to be deleted",
		"SELECT count(*) = 1 FROM projects WHERE group_id < 9")
	require.NoError(t, holder.Rollback(t.Context()))
	wait(groupdelete.Destroyed)
	b.requireAsNative(t, issues, forest)
	b.requireChildrenFirst(t)
}

// Each deletion updates the same two rows in either order, so the sessions of the run
// lock each other out.
func TestLocksBetweenSessionsAreNoFailures(t *testing.T) {
	t.Parallel()
	const counters = `
		CREATE TABLE counters (id bigint PRIMARY KEY, deleted bigint NOT NULL); INSERT INTO counters VALUES (0, 0), (1, 0);
		CREATE FUNCTION count_deleted() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
			UPDATE public.counters SET deleted = deleted + 1 WHERE id = old.id % 2;
			UPDATE public.counters SET deleted = deleted + 1 WHERE id = 1 - old.id % 2;
			RETURN old;
		END$$;
		CREATE TRIGGER count_deleted BEFORE DELETE ON issues FOR EACH ROW EXECUTE FUNCTION count_deleted();`
	b := setup(t, issues+counters, forest)
	engine := b.parallel(t, 4)
	engine.Sizes.Rows = 2
	stats := b.run(t, engine, groupdelete.Destroyed)
	require.Empty(t, stats.Errors)
	require.Equal(t, [][]string{{"116"}, {"116"}}, b.Rows("SELECT deleted FROM counters"))
	b.requireAsNative(t, issues+counters, forest)
}

// An update of the fence waits for the batches that hold it. After it no session commits
// anything.
func TestLostLeaseStopsAllSessions(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, forest)
	engine, left := b.parallel(t, 4), ""
	engine.Sizes.Rows = 2
	const rows = "SELECT concat((SELECT count(*) FROM projects), ' ', (SELECT count(*) FROM issues), ' ', (SELECT count(*) FROM notes))"
	once(engine, func(stats *groupdelete.Stats) bool { return stats.Batches > 3 }, func() {
		b.Exec("UPDATE sexton.fences SET token = token + 1 WHERE key = $1", groupdelete.LeaseKey(dml.IntegerID(1)))
		left = b.Rows(rows)[0][0]
	})
	_, err := engine.Run(t.Context())
	require.ErrorIs(t, err, lease.ErrLost)
	require.NotEmpty(t, left)
	require.Equal(t, left, b.Rows(rows)[0][0])
}

func TestPoisonedRowsInParallel(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, forest)
	b.poison("notes", "OLD.id % 100 = 11")
	poisoned := len(b.Rows("SELECT FROM notes WHERE id % 100 = 11 AND id < 9000 OR id % 100 = 11 AND id > 10000"))
	stats := b.run(t, b.parallel(t, 3), groupdelete.Stuck)
	require.Equal(t, "notes: SQLSTATE ZZ001: kept", stats.Reason)
	require.EqualValues(t, poisoned, stats.Errors[0].Count, "each row fails once")
	require.Len(t, b.Rows("SELECT FROM notes WHERE id < 9000 OR id > 10000"), poisoned)
	b.Exec("DROP TRIGGER refuse ON notes")
	b.run(t, b.parallel(t, 3), groupdelete.Destroyed)
	b.requireAsNative(t, issues, forest)
}

func TestTableThatFailsAsAWholeInParallel(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, forest)
	b.poison("notes", "true")
	stats := b.run(t, b.parallel(t, 4), groupdelete.Stuck)
	require.Equal(t, "notes: SQLSTATE ZZ001: kept", stats.Reason)
	require.LessOrEqual(t, stats.Errors[0].Count, int64(100))
}

func TestCancelRacesWithSessions(t *testing.T) {
	t.Parallel()
	setup(t, "", "").requireCancelsWhole(t, func(b bundle) *groupdelete.Engine { return b.parallel(t, 2) })
}

// Any session of a run may be killed after any batch. The next run continues, and each
// event is written once.
func TestAnySessionIsKilled(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, forest)
	for kills := 0; len(b.Rows("SELECT FROM groups WHERE id = 1")) > 0; kills++ {
		b.Exec("UPDATE sexton.leases SET expires_at = now()")
		engine := b.parallel(t, 3)
		engine.Sizes.Rows = 5
		once(engine, func(stats *groupdelete.Stats) bool { return stats.Batches > int64(kills%5) }, func() {
			b.Exec("SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'sexton groups/%' " +
				fmt.Sprintf("ORDER BY md5(pid::text || %d) LIMIT 1) AS one", kills))
		})
		_, err := engine.Run(t.Context())
		require.NotErrorIs(t, err, lease.ErrLost)
	}
	b.requireAsNative(t, issues, forest)
	require.Len(t, b.events(), 5+58)
	b.requireChildrenFirst(t)
}

// A project may be below another one, which another session would delete with its own
// project.
func TestProjectsBelowProjectsAreDeletedByOneSession(t *testing.T) {
	t.Parallel()
	const forks = "ALTER TABLE projects ADD forked_from bigint REFERENCES projects ON DELETE CASCADE; CREATE INDEX ON projects (forked_from);"
	const rows = forest + "UPDATE projects SET forked_from = 11 WHERE id > 1000;"
	b := setup(t, issues+forks, rows)
	stats := b.run(t, b.parallel(t, 4), groupdelete.Destroyed)
	require.Empty(t, stats.Errors)
	b.requireAsNative(t, issues+forks, rows)
	b.requireChildrenFirst(t)
}
