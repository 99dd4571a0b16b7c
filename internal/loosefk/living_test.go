package loosefk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

var family = dbtest.Family(2, dbtest.Children{Each: 10})

// The children of parent 1, which exists when the run begins, are kept. The children of
// parent 2 are deleted.
func TestChildrenOfARevivedParentAreKept(t *testing.T) {
	t.Parallel()
	type example struct{ given, when string }
	eachAtPaces(t, map[string]example{
		"the table was replaced after the deletion": {family, `
			CREATE TABLE parents_new (LIKE parents INCLUDING ALL);
			INSERT INTO parents_new VALUES (1);
			DELETE FROM parents;
			ALTER TABLE parents RENAME TO parents_old;
			ALTER TABLE parents_new RENAME TO parents`},
		"an inheriting table had the same key": {family, `
			CREATE TABLE parents_kid () INHERITS (parents);
			INSERT INTO parents_kid VALUES (1);
			DELETE FROM parents WHERE tableoid = 'parents_kid'::regclass;
			DELETE FROM parents WHERE id = 2`},
		"the row is in an inheriting table": {family, `
			CREATE TABLE parents_kid () INHERITS (parents);
			INSERT INTO parents_kid VALUES (1);
			DELETE FROM ONLY parents`},
		"the row is in a partition": {`
			CREATE TABLE parents (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
			CREATE TABLE parents_1 PARTITION OF parents FOR VALUES FROM (0) TO (2);
			CREATE TABLE parents_2 PARTITION OF parents FOR VALUES FROM (2) TO (9);
			INSERT INTO parents VALUES (1), (2);` + dbtest.Children{Each: 10}.SQL(), `
			DELETE FROM parents;
			INSERT INTO parents_1 VALUES (1)`},
		"two versions under a deferred constraint": {family, `
			BEGIN;
			ALTER TABLE parents DROP CONSTRAINT parents_pkey;
			ALTER TABLE parents ADD note text, ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED;
			INSERT INTO parents VALUES (1, 'new');
			DELETE FROM parents WHERE note IS NULL;
			COMMIT`},
		"parents were reloaded": {family, `
			SET session_replication_role = replica;
			DELETE FROM parents;
			INSERT INTO parents VALUES (1);
			RESET session_replication_role`},
	}, func(t *testing.T, _, pace string, test example) {
		b := setup(t, test.given, deleteChildren, "parents").withPace(pace)
		b.Exec(test.when)
		stats := b.runWithoutErrors(t)
		require.Equal(t, []string{"10", "1"}, b.Rows("SELECT count(*), max(parent_id) FROM children")[0])
		require.EqualValues(t, 1, stats.Processed)
		require.EqualValues(t, 1, stats.Revived)
		require.Zero(t, b.count(t, "loose_foreign_keys_deleted_records"))
		again := b.run(t)
		require.Zero(t, again.Revived+again.Processed+again.DeleteCount, "a second run changes nothing")
		// Both paces check for the parent with the same statements.
	}, "parents were reloaded")
}

// Every statement that changes children checks the parent, so the children of revived
// parents are kept.
func TestChildrenOfARevivedParentAreKeptByAllStatements(t *testing.T) {
	t.Parallel()
	type example struct{ tables, action string }
	eachAtPaces(t, map[string]example{
		"deleted":   {"", "async_delete"},
		"nullified": {"", "async_nullify"},
		"updated": {
			"ALTER TABLE children ADD state int;",
			"update_column_to, target_column: state, target_value: 4",
		},
		"in pieces": {addChildren(12_000) + limitChildren, "async_delete"},
		"limited":   {addChildren(300), "async_delete, delete_limit: 7"},
		"partitioned": {
			"DROP TABLE children;" + dbtest.Children{Each: 10, Partitions: 2, Bare: true}.SQL(),
			"async_delete",
		},
	}, func(t *testing.T, name, pace string, test example) {
		b := setup(t, parentsAndChildren+test.tables, dbtest.Definitions(test.action, "children"), "parents").withPace(pace)
		const living = "SELECT count(*), sum(id) FROM children WHERE parent_id > 3"
		before := b.Rows(living)
		b.Exec("DELETE FROM parents; INSERT INTO parents SELECT generate_series(4, 10)")
		stats := b.runWithoutErrors(t)
		require.EqualValues(t, 3, stats.Processed)
		require.EqualValues(t, 7, stats.Revived)
		require.Equal(t, before, b.Rows(living))
		if name == "updated" {
			require.Equal(t, [][]string{{"30", "1", "3"}},
				b.Rows("SELECT count(*), min(parent_id), max(parent_id) FROM children WHERE state = 4"))
		} else {
			require.Empty(t, b.Rows("SELECT FROM children WHERE parent_id <= 3"))
		}
	}, "deleted")
}

// While a statement waits for a locked child, another transaction changes the children
// and inserts their parent. The children are kept, although Postgres then only rechecks
// the child, whose key is the same, and not the parent.
func TestAParentThatIsInsertedWhileAStatementWaits(t *testing.T) {
	t.Parallel()
	type example struct{ tables, action string }
	eachAtPaces(t, map[string]example{
		"delete":    {"", "async_delete"},
		"nullify":   {"", "async_nullify"},
		"in pieces": {addChildren(12_000) + limitChildren, "async_delete"},
	}, func(t *testing.T, _, pace string, test example) {
		b := setup(t, parentsAndChildren+test.tables, dbtest.Definitions(test.action, "children"), "parents").withPace(pace)
		b.Exec("DELETE FROM parents WHERE id <= 2")
		writer := b.beginSession(t)
		writer.exec("INSERT INTO parents VALUES (1); UPDATE children SET note = 'claimed' WHERE parent_id = 1 AND id < 20")
		wait := b.runWhile(t.Context(), t)
		b.AwaitLock(t)
		writer.exec("COMMIT")
		b.requireClean(t, wait())
		require.Equal(t, [][]string{{"10", "1"}},
			b.Rows("SELECT count(*), max(parent_id) FROM children WHERE note = 'claimed'"))
		require.Empty(t, b.Rows("SELECT FROM children WHERE parent_id = 2"))
	}, "delete")
}

func TestRemoteChildrenOfARevivedParentAreKept(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b, ci := twoDatabases(t)
		ci.Exec("INSERT INTO builds SELECT 1000 + n, 4 FROM generate_series(1, 2000) AS n")
		b.withPace(pace).Exec("DELETE FROM parents WHERE id <= 4; INSERT INTO parents VALUES (3), (4)")
		stats := b.runWithoutErrors(t)
		require.EqualValues(t, 2, stats.Processed)
		require.EqualValues(t, 2, stats.Revived)
		require.Equal(t, [][]string{{"2080", "3"}}, ci.Rows("SELECT count(*), min(parent_id) FROM builds"))
		require.Equal(t, [][]string{{"80", "3"}}, b.Rows("SELECT count(*), min(parent_id) FROM children"))
	})
}

// Children in another database are kept or deleted correctly for keys of any type. The
// keys without a parent are returned in the form in which they were passed: some types
// have no text form in the protocol.
func TestRemoteChildrenOfKeysOfAnyType(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	var yaml, lost, back strings.Builder
	kinds := map[string][2]string{
		"date": {"2026-02-03", "2026-02-04"}, "bytea": {`\xc0de`, `\xbeef`},
		"inet": {"10.0.0.1", "10.0.0.2"}, "boolean": {"f", "t"},
	}
	for kind, values := range kinds {
		b.Exec(fmt.Sprintf("CREATE TABLE of_%[1]s (id %[1]s PRIMARY KEY); INSERT INTO of_%[1]s VALUES ('%s'), ('%s')",
			kind, values[0], values[1]))
		ci.Exec(fmt.Sprintf("CREATE TABLE %[1]s_items (id bigint, key %[1]s); CREATE INDEX ON %[1]s_items (key); INSERT INTO %[1]s_items VALUES (1, '%s'), (2, '%s')",
			kind, values[0], values[1]))
		b.Track(t, "of_"+kind)
		fmt.Fprintf(&yaml, "%[1]s_items: [{table: of_%[1]s, column: key, on_delete: async_delete}]\n", kind)
		fmt.Fprintf(&lost, "DELETE FROM of_%s;", kind)
		fmt.Fprintf(&back, "INSERT INTO of_%s VALUES ('%s');", kind, values[1])
	}
	bindBoth(t, b, ci, yaml.String())
	b.Exec(lost.String())
	b.Exec(back.String())
	stats := b.runWithoutErrors(t)
	require.EqualValues(t, len(kinds), stats.Processed)
	require.EqualValues(t, len(kinds), stats.Revived)
	for kind := range kinds {
		require.Equal(t, [][]string{{"2"}}, ci.Rows("SELECT id FROM "+kind+"_items"), kind)
	}
}

// A child in another database is kept if its parent is inserted again after the engine
// has found that the key has no parent, and before it locks the child.
func TestARemoteChildThatIsClaimedWhileAStatementWaits(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	b.Exec("DELETE FROM parents WHERE id = 1")
	writer := ci.Begin(t, "UPDATE builds SET id = id + 5000 WHERE id = 10")
	wait := b.runWhile(t.Context(), t)
	bundle{DB: ci}.AwaitLock(t)
	b.Exec("INSERT INTO parents VALUES (1)")
	require.NoError(t, writer.Commit(t.Context()))
	require.EqualValues(t, 1, wait().Revived)
	require.Equal(t, [][]string{{"5010"}}, ci.Rows("SELECT id FROM builds WHERE parent_id = 1"))
}

// If the role cannot read the parent's key, the tombstones are deferred without an
// attempt, and their error has the SQL that grants the privilege.
func TestAnUnreadableParentHoldsItsTombstones(t *testing.T) {
	t.Parallel()
	type example struct{ given, fix string }
	eachAtPaces(t, map[string]example{
		"no grant": {"REVOKE ALL ON parents FROM %s", "GRANT SELECT (id) ON public.parents TO %s"},
		"row security": {
			"GRANT SELECT (id) ON parents TO %s; ALTER TABLE parents ENABLE ROW LEVEL SECURITY",
			"ALTER ROLE %s BYPASSRLS",
		},
		"other columns": {
			"ALTER TABLE parents ADD name text; GRANT SELECT (name) ON parents TO %s",
			"GRANT SELECT (id) ON public.parents TO %s",
		},
	}, func(t *testing.T, _, pace string, test example) {
		b := setup(t, parentsAndChildren, deleteChildren, "parents").withPace(pace)
		role := b.asRole(t)
		b.Exec("GRANT pg_read_all_stats TO " + role + "; REVOKE ALL ON parents FROM " + role)
		b.Exec(fmt.Sprintf(test.given, role))
		b.Exec("DELETE FROM parents WHERE id = 1; INSERT INTO parents VALUES (1)")
		require.EqualValues(t, 1, b.run(t).Rescheduled)
		require.EqualValues(t, 100, b.count(t, "children"))
		held := b.tombstones()
		require.Len(t, held, 1)
		require.Equal(t, []string{"1", "0", "t"}, held[0][:3], "no attempt is counted")
		require.Contains(t, held[0][3], fmt.Sprintf(test.fix, role))
		b.Exec("ALTER ROLE " + role + " BYPASSRLS; GRANT SELECT (id) ON parents TO " + role +
			"; UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
		require.EqualValues(t, 1, b.run(t).Revived)
	})
}

// If the role may not delete tombstones, they are deferred without an attempt.
func TestALostGrantOnTombstonesIsNoAttempt(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, parentsAndChildren, deleteChildren, "parents").withPace(pace)
		role := b.asRole(t)
		b.Exec("GRANT pg_read_all_stats TO " + role + "; REVOKE DELETE ON loose_foreign_keys_deleted_records FROM " +
			role + "; DELETE FROM parents WHERE id <= 2")
		require.EqualValues(t, 2, b.run(t).Rescheduled)
		held := b.tombstones()
		require.Len(t, held, 2)
		require.Equal(t, []string{"1", "0", "t"}, held[0][:3])
		require.Contains(t, held[0][3], "permission denied for table loose_foreign_keys_deleted_records")
		b.Exec("GRANT DELETE ON loose_foreign_keys_deleted_records TO " + role +
			"; UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
		require.EqualValues(t, 2, b.run(t).Processed)
	})
}

func TestUnreadableParents(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec(parentsAndChildren + `CREATE SCHEMA "My App"; CREATE TABLE "My App"."Users" (id bigint PRIMARY KEY)`)
	parents := parentsOf(t, db.Pool(), `
children:
  - {table: parents, column: parent_id, on_delete: async_delete}
  - {table: '"My App"."Users"', column: id, on_delete: async_delete}
`)
	pool := pgtest.Must(pgxpool.New(t.Context(), db.AsRole(db.CreateRole())))(t)
	defer pool.Close()
	unreadable := func() (keys []string) {
		for _, p := range pgtest.Must(loosefk.UnreadableParents(t.Context(), pool, parents))(t) {
			require.Equal(t, problem.Error, p.Severity)
			keys = append(keys, p.Key)
			db.Exec(p.Fix)
		}
		return keys
	}
	require.ElementsMatch(t, []string{"parents", "My App.Users", "My App.Users"}, unreadable())
	require.Empty(t, unreadable())
}
