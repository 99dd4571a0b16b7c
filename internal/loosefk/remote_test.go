package loosefk_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// twoDatabases returns the databases main, with ten parents and ten children of each, and
// ci, with ten builds of each parent.
func twoDatabases(t *testing.T) (main bundle, ci *dbtest.DB) {
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	ci = b.addDatabase(t, `
		CREATE TABLE builds (id bigint PRIMARY KEY, parent_id bigint);
		CREATE INDEX ON builds (parent_id);
		INSERT INTO builds SELECT 10 * p + n, p FROM generate_series(1, 10) AS p, generate_series(0, 9) AS n;`)
	bindBoth(t, b, ci, dbtest.Definitions("async_delete", "children", "builds"))
	return b, ci
}

// addDatabase creates another database, ci, with tables, and a session of the engine on
// it.
func (b bundle) addDatabase(t *testing.T, tables string) *dbtest.DB {
	ci := newDB(t, tables)
	ci.Connected.Name = "ci"
	require.NoError(t, b.engine.Session.Fence.Raise(t.Context(), ci.Connected))
	b.engine.Remotes = map[string]loosefk.Remote{"ci": {Session: sessionOn(t, b, ci)}}
	return ci
}

func sessionOn(t *testing.T, b bundle, ci *dbtest.DB) *batch.Session {
	return &batch.Session{
		Conn: pgtest.Acquire(t, ci.Pool()).Conn(), Names: dbtest.Names(),
		Fence: b.engine.Session.Fence, Limits: b.engine.Session.Limits,
	}
}

// sites returns the two databases as Resolve needs them.
func sites(b, ci *dbtest.DB) []loosefk.Site {
	return []loosefk.Site{{Name: "main", Schema: "public", DB: b.Pool()}, {Name: "ci", Schema: "public", DB: ci.Pool()}}
}

func bindBoth(t *testing.T, b bundle, ci *dbtest.DB, yaml string) {
	parents, problems := pgtest.Must2(loosefk.Resolve(t.Context(), sites(b.DB, ci), parse(t, yaml)))(t)
	require.Empty(t, problems)
	require.Empty(t, parents["ci"])
	b.engine.Parents = parents["main"]
}

func TestChildrenInAnotherDatabase(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b, ci := twoDatabases(t)
		b.withPace(pace).Exec("DELETE FROM parents WHERE id <= 3")
		stats := b.runToEnd(t)
		require.EqualValues(t, 3, stats.Processed)
		require.Equal(t, map[string]int64{"children": 30, "builds": 30}, stats.DeleteCountByTable)
		require.Equal(t, [][]string{{"70", "4"}}, ci.Rows("SELECT count(*), min(parent_id) FROM builds"))
		require.Zero(t, b.run(t).DeleteCount, "a second run changes nothing")
	})
}

// If the jobs database does not respond, the run ends. The other databases do not count
// as unreachable.
func TestUnresponsiveJobsDatabaseEndsTheRun(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	b.run(t)
	b.engine.Lost = func(database string, err error) { t.Errorf("%s is lost: %v", database, err) }
	locked := b.beginSession(t)
	locked.exec("LOCK TABLE sexton.leases")
	b.Exec("DELETE FROM parents WHERE id = 1")
	_, err := b.engine.Run(t.Context())
	require.ErrorIs(t, err, lease.ErrUnconfirmed)
	require.EqualValues(t, 1, b.Pending(t))
	locked.exec("COMMIT")
	require.EqualValues(t, 1, b.run(t).Processed)
	require.EqualValues(t, 90, pgtest.Scalar[int64](t, ci.Database, "SELECT count(*) FROM builds"))
}

// A tombstone is removed after its children in all databases are deleted.
func TestTombstoneIsKeptUntilTheOtherDatabaseIsClean(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	blocker := ci.Begin(t, "SELECT FROM builds WHERE id = 10 FOR UPDATE")
	b.engine.Remotes["ci"].Session.Limits.LockTimeout = 50 * time.Millisecond
	b.engine.Session.Limits.LockTimeout = 50 * time.Millisecond
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.engine.Limits.Runtime = time.Second
	require.Zero(t, b.run(t).Processed)
	require.Equal(t, []string{"10"}, ci.Rows("SELECT id FROM builds WHERE parent_id = 1")[0])
	require.Equal(t, [][]string{{"1", "0", "t", "builds: canceling statement due to lock timeout"}}, b.tombstones(),
		"a lock does not count as an attempt")
	require.NoError(t, blocker.Rollback(t.Context()))
	b.engine.Limits.Runtime = time.Minute
	b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	require.EqualValues(t, 1, b.run(t).Processed)
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
}

// The tombstone of a parent with children in an unreachable database is deferred without
// an attempt, and its other children are deleted. It is processed when the database is
// reachable again.
func TestUnreachableDatabaseDefersItsParents(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	remote := b.engine.Remotes["ci"]
	b.engine.Remotes["ci"] = loosefk.Remote{Err: errors.New("no route to host")}
	b.Exec("DELETE FROM parents WHERE id = 1")
	stats := b.run(t)
	require.EqualValues(t, 1, stats.Rescheduled)
	require.Equal(t, []batch.FaultCounts{{Table: "builds", Message: "database ci: no route to host", Count: 1}},
		stats.Errors)
	require.Equal(t, map[string]int64{"children": 10}, stats.DeleteCountByTable)
	require.Equal(t, [][]string{{"1", "0", "t", "builds: database ci: no route to host"}}, b.tombstones(),
		"no attempt is counted")
	require.Equal(t, [][]string{{"t"}},
		b.Rows("SELECT consume_after <= now() + interval '1 minute' FROM loose_foreign_keys_deleted_records"))

	b.engine.Remotes["ci"] = remote
	b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	require.EqualValues(t, 1, b.run(t).Processed)
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
}

// If the connection to a database is lost during a run, the parents with children in that
// database are deferred.
func TestDatabaseLostDuringARun(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	var lost string
	b.engine.Lost = func(database string, _ error) { lost = database }
	b.engine.Progress = func(context.Context, *loosefk.Stats) {
		if lost == "" {
			ci.Terminate("true")
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

// A holder that has lost its lease commits nothing in any database.
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

// A child that an older transaction inserts in the other database is deleted by a
// recheck, also if the parent has no children in its own database.
func TestLateChildInAnotherDatabase(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]bool{"children in both databases": false, "remote children only": true},
		func(t *testing.T, _ string, alone bool) {
			b, ci := twoDatabases(t)
			if alone {
				b.engine.Parents[0].References = []*loosefk.Reference{b.remoteReference(t)}
			}
			older := bundle{DB: ci}.beginSession(t)
			b.Exec("DELETE FROM parents WHERE id = 1")
			require.EqualValues(t, 1, b.runToEnd(t).Processed)
			require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
			require.Zero(t, b.run(t).Confirmed, "the transaction is still open")
			older.exec("INSERT INTO builds VALUES (1000, 1); COMMIT")
			require.EqualValues(t, 1, b.runToEnd(t).LateChildren)
			require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
		})
}

// Keys are not rechecked while a database with children is unreachable.
func TestRechecksWaitForAnotherDatabase(t *testing.T) {
	t.Parallel()
	b, _ := twoDatabases(t)
	remote := b.engine.Remotes["ci"]
	older := b.beginSession(t)
	b.Exec("DELETE FROM parents WHERE id = 1")
	require.EqualValues(t, 1, b.runToEnd(t).Processed)
	older.exec("INSERT INTO children VALUES (1000, 1); COMMIT")
	b.engine.Remotes["ci"] = loosefk.Remote{Err: errors.New("no route to host")}
	b.Exec("UPDATE sexton.swept SET swept_at = now() - interval '20 hours'")
	b.run(t)
	require.Equal(t, []string{"1"}, b.uncheckedKeys())

	b.engine.Remotes["ci"] = remote
	require.EqualValues(t, 1, b.run(t).LateChildren)
	require.Empty(t, b.Rows("SELECT FROM children WHERE parent_id = 1"))
}

// If statements in the other database fail with conflicts, the tombstones are kept.
func TestConflictsInAnotherDatabaseKeepTombstones(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	ci.Exec(`CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$;
		CREATE TRIGGER conflict BEFORE DELETE ON builds FOR EACH ROW EXECUTE FUNCTION conflict()`)
	b.Exec("DELETE FROM parents WHERE id <= 3")
	b.engine.Limits.Runtime = 2 * time.Second
	require.Zero(t, b.run(t).Processed)
	require.EqualValues(t, 3, b.Pending(t))
	require.Equal(t, [][]string{{"30"}}, ci.Rows("SELECT count(*) FROM builds WHERE parent_id <= 3"))

	ci.Exec("DROP TRIGGER conflict ON builds; UPDATE builds SET parent_id = parent_id")
	b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.engine.Limits.Runtime = time.Minute
	require.EqualValues(t, 3, b.run(t).Processed)
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id <= 3"))
}

// A run that is stopped while it deletes rows in the other database returns no error.
func TestRunEndsWhileAnotherDatabaseIsDrained(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	ci.Exec("INSERT INTO builds SELECT 1000 + n, 1 FROM generate_series(1, 5000) AS n")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	b.engine.Progress = func(context.Context, *loosefk.Stats) { stop() }
	b.Exec("DELETE FROM parents WHERE id = 1")
	stats, err := b.engine.Run(ctx)
	require.NoError(t, err)
	require.True(t, stats.Interrupted)
	require.EqualValues(t, 1, b.Pending(t))
	b.engine.Progress = nil
	require.EqualValues(t, 1, b.run(t).Processed)
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
}
