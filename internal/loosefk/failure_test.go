package loosefk_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// A child that is moved to another parent while a statement waits for it is kept.
// GitLab's implementation deletes it. A child that is changed but not moved is deleted,
// although the waiting statement cannot see its new row version.
func TestMovedChildIsKept(t *testing.T) {
	t.Parallel()
	type example struct{ action, change, parent string }
	pgtest.Each(t, map[string]example{
		"delete":          {"async_delete", "parent_id = 2", "2"},
		"nullify":         {"async_nullify", "parent_id = 2", "2"},
		"delete, changed": {"async_delete", "note = 'changed'", ""},
	}, func(t *testing.T, _ string, test example) {
		b := setup(t, parentsAndChildren, dbtest.Definitions(test.action, "children"), "parents")
		b.Exec("DELETE FROM parents WHERE id = 1")
		tx := b.Begin(t, "UPDATE children SET "+test.change+" WHERE id = 15")
		ended := b.runWhile(t.Context(), t)
		b.AwaitLock(t)
		require.NoError(t, tx.Commit(t.Context()))
		b.requireClean(t, ended())
		require.Equal(t, test.parent, strings.Join(b.ids("SELECT parent_id FROM children WHERE id = 15"), ", "))
		require.Zero(t, b.count(t, "children WHERE parent_id = 1"))
	})
}

// A child that six clients update all the time is deleted, although it is usually locked
// and has a new version in each snapshot.
func TestBusyChildIsDeleted(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, parentsAndChildren, deleteChildren, "parents").withPace(pace)
		b.Exec(forbidAttempts + "DELETE FROM parents WHERE id = 1")
		const clients = 6
		busy := make(chan error, clients)
		for range clients {
			go func() {
				for {
					tag, err := b.Pool().Exec(t.Context(),
						"UPDATE children SET note = clock_timestamp()::text WHERE id = 15 RETURNING pg_sleep(0.02)")
					if err != nil || tag.RowsAffected() == 0 {
						busy <- err
						return
					}
				}
			}()
		}
		stats := b.runToEnd(t)
		require.Zero(t, stats.Rescheduled, "the run gets the lock: %s", stats.Held)
		for range clients {
			require.NoError(t, <-busy, "the updates end when the row is deleted")
		}
	})
}

// The engine waits for a locked row last, in READ COMMITTED, so that the row is deleted
// even if the lock holder has changed it.
func TestLockedChildIsDeletedLast(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, parentsAndChildren, deleteChildren, "parents").withPace(pace)
		b.Exec("DELETE FROM parents WHERE id = 1")
		holder := pgtest.Begin(t, b.Pool(), "UPDATE children SET note = 'busy' WHERE id = 15")
		wait := b.runWhile(t.Context(), t)
		pgtest.Await(t, b.Database, "the engine to wait for the row", `SELECT EXISTS (
			SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
			AND query LIKE '%FOR UPDATE%' AND query NOT LIKE '%SKIP LOCKED%')`)
		require.NoError(t, holder.Commit(t.Context()))
		b.requireClean(t, wait())
	})
}

// poison is a trigger that makes the deletion of a child with the note poison fail.
var poison = dbtest.OnRow("DELETE", "children", "old.note = 'poison'", "RAISE EXCEPTION 'child % is poisoned', old.id;")

func TestFailingTombstonesAreDeferredLongerEachTime(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren+poison+"UPDATE children SET note = 'poison' WHERE id = 15;", deleteChildren,
		"parents")
	b.Exec("DELETE FROM parents WHERE id = 1")
	for attempt, minutes := range []int{0, 0, 5, 10, 20, 40, 60, 60} {
		stats := b.run(t)
		require.Equal(t, minutes > 0, stats.Rescheduled == 1, "attempt %d", attempt+1)
		require.Equal(t, map[string]loosefk.ParentCounts{"parents": {
			Rescheduled: stats.Rescheduled,
			Incremented: 1 - stats.Rescheduled,
		}}, stats.ByParent)
		got := b.Rows(`SELECT cleanup_attempts, round(extract(epoch FROM greatest(consume_after - now(), '0')) / 60)::int FROM loose_foreign_keys_deleted_records`)
		require.Equal(t, [][]string{{strconv.Itoa(attempt + 1), strconv.Itoa(minutes)}}, got,
			"attempts, minutes deferred")
		if minutes > 0 {
			require.False(t, b.run(t).Changed(), "a deferred tombstone is not processed")
		}
		b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	}
}

// If a child table does not exist any more, the tombstones are kept without an attempt,
// and the other children are deleted.
func TestDroppedChildTable(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren+others, dbtest.Definitions("async_delete", "others", "children"), "parents")
	b.Exec("DELETE FROM parents WHERE id <= 2")
	b.Exec("DROP TABLE others")
	stats := b.run(t)
	require.Zero(t, stats.Processed)
	require.EqualValues(t, 20, stats.DeleteCount, "the other children are deleted")
	require.Equal(t, [][]string{
		{"1", "0", "t", `others: SQLSTATE 42P01: relation "public.others" does not exist`},
		{"2", "0", "t", `others: SQLSTATE 42P01: relation "public.others" does not exist`},
	}, b.tombstones(), "the tombstones are deferred without an attempt")
}

// Children that row-level security hides from the role do not count as deleted.
func TestHiddenChildrenDoNotCountAsDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren+`
		ALTER TABLE children ENABLE ROW LEVEL SECURITY;
		CREATE POLICY few ON children USING (id > 1000);`, deleteChildren, "parents")
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.asRole(t)
	require.Zero(t, b.run(t).Processed)
	require.Contains(t, b.tombstones()[0][3], "row-level security")
	missing := pgtest.Must(loosefk.MissingPrivileges(t.Context(), b.engine.Session.Conn, "main", b.engine.Parents))(t)
	require.ErrorContains(t, missing.Err(), "row-level security hides rows of public.children")
}

// A child's trigger may read a table with row-level security, as in sessions of the
// application. Row-level security on another child table only prevents the deletion of
// the rows of that table.
func TestATriggerReadsATableWithPolicies(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, parentsAndChildren+others+`
			CREATE TABLE settings (tenant text);
			ALTER TABLE settings ENABLE ROW LEVEL SECURITY;
			CREATE POLICY own ON settings USING (tenant = current_user);
			CREATE TABLE seen (child bigint, tenant text);
			ALTER TABLE others ENABLE ROW LEVEL SECURITY;
			CREATE POLICY few ON others USING (id > 1000);`+
			dbtest.OnRow("DELETE", "children", "true", "INSERT INTO seen SELECT old.id, tenant FROM settings;"),
			dbtest.Definitions("async_delete", "children", "others"), "parents").withPace(pace)
		role := b.asRole(t)
		b.Exec("INSERT INTO settings VALUES ('" + strings.Trim(role, `"`) +
			"'), ('another'); DELETE FROM parents WHERE id <= 2")
		stats := b.run(t)
		require.EqualValues(t, 20, stats.DeleteCount, stats.Errors)
		require.Equal(t, [][]string{{strings.Trim(role, `"`), "20"}},
			b.Rows("SELECT tenant, count(DISTINCT child) FROM seen GROUP BY 1"))
		require.Len(t, b.tombstones(), 2)
		for _, tombstone := range b.tombstones() {
			require.Contains(t, tombstone[3], "row-level security hides rows of public.others")
		}

		b.Exec("ALTER ROLE " + role + " BYPASSRLS; UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
		require.EqualValues(t, 2, b.runToEnd(t).DeleteCount)
		require.Zero(t, b.count(t, "others WHERE parent_id <= 2"))
	})
}

// If the role lacks privileges on one partition, the rows of the other partitions are
// deleted. The tombstones are kept until the rows of that partition are deleted too.
func TestOnlyAPartitionWithoutPrivilegesIsHeld(t *testing.T) {
	t.Parallel()
	type example struct {
		partitions int
		// checked reports that the missing privileges are found before the run.
		checked bool
	}
	eachAtPaces(t, map[string]example{
		"found before the run":       {7, true},
		"found by a statement":       {7, false},
		"among many, before the run": {12, true},
		"among many, by statement":   {12, false},
	}, func(t *testing.T, _, pace string, test example) {
		children := "DROP TABLE children;" + dbtest.Children{
			Each: 50, Columns: "note text",
			Partitions: test.partitions,
		}.SQL()
		b := setup(t, parentsAndChildren+children, deleteChildren, "parents").withPace(pace)
		role := b.asRole(t)
		b.Exec("REVOKE ALL ON children_0 FROM " + role + "; DELETE FROM parents WHERE id <= 4")
		held := b.count(t, "children_0 WHERE parent_id <= 4")
		require.NotZero(t, held)
		if test.checked {
			missing := pgtest.Must(loosefk.BreakUnprivileged(t.Context(), b.engine.Session.Conn, "main",
				b.engine.Parents))(t)
			require.Len(t, missing, 1)
		}
		stats := b.run(t)
		require.Equal(t, 200-held, stats.DeleteCount)
		require.Equal(t, held, b.count(t, "children WHERE parent_id <= 4"), "only the rows of that partition are left")
		require.Zero(t, stats.Processed)
		reason := fmt.Sprintf("the database role lacks DELETE, SELECT, UPDATE on table public.children_0: GRANT DELETE, SELECT, UPDATE ON public.children_0 TO %s", role)
		require.Len(t, b.tombstones(), 4)
		for _, tombstone := range b.tombstones() {
			require.Equal(t, "0", tombstone[1], "no attempt is counted")
			require.Contains(t, tombstone[3], reason)
		}

		b.Exec("GRANT ALL ON children_0 TO " + role +
			"; UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
		for _, reference := range loosefk.References(b.engine.Parents) {
			reference.BrokenLeaves = nil
		}
		require.Equal(t, held, b.runToEnd(t).DeleteCount)
	})
}

// If every statement on a child table times out, the run tries the table only a few
// times, and cleans up the other tables.
func TestTimingOutTableIsHeld(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, parentsAndChildren+others+dbtest.OnStatement("DELETE", "children", "PERFORM pg_sleep(600);"),
			dbtest.Definitions("async_delete", "children", "others"), "parents").withPace(pace)
		b.engine.Session.Limits.StatementTimeout = 500 * time.Millisecond
		b.Exec("DELETE FROM parents")
		stats := b.run(t)
		require.Zero(t, stats.Processed)
		require.Len(t, stats.Errors, 1)
		require.LessOrEqual(t, stats.Errors[0].Count, int64(4), "the run does not try the table again")
		stats.Errors[0].Count = 0
		require.Equal(t, batch.FaultCounts{
			Table: "children", SQLState: "57014",
			Message: "canceling statement due to statement timeout",
		}, stats.Errors[0])
		require.Zero(t, b.count(t, "others"))
		attempts := 0
		for _, tombstone := range b.tombstones() {
			require.Equal(t, "children: SQLSTATE 57014: canceling statement due to statement timeout", tombstone[3])
			if tombstone[1] == "1" {
				attempts++
			}
		}
		require.Equal(t, 3, attempts, "only tombstones that were tried get an attempt")
	})
}

// A tombstone whose key has another type than the parent's key is kept with an attempt,
// and so is one with two keys or none.
func TestTombstoneWithAnotherKeyType(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_text, primary_key_value) VALUES
		('public.parents', 'x', NULL), ('public.parents', 'x', 1), ('public.parents', NULL, NULL)`)
	require.Zero(t, b.run(t).Processed)
	require.Equal(t, [][]string{{"1", "the tombstone's key is not of the type of column id"}},
		b.Rows("SELECT DISTINCT cleanup_attempts, split_part(last_error, ': ', 2) FROM loose_foreign_keys_deleted_records"))
}
