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

// GitLab's implementation deletes a child that was moved to another parent while its
// statement waited for it. A child that was changed but not moved has a new row version,
// which the waiting statement cannot see. It must still be deleted.
func TestChildMovedWhileWaitedForStays(t *testing.T) {
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
		b.clean(t, ended())
		require.Equal(t, test.parent, strings.Join(b.ids("SELECT parent_id FROM children WHERE id = 15"), ", "))
		require.Zero(t, b.count(t, "children WHERE parent_id = 1"))
	})
}

// Six clients update the child all the time. It is usually locked and has a new version
// in each snapshot.
func TestBusyChildIsDeleted(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, parentsAndChildren, deleteChildren, "parents").at(pace)
		b.Exec(innocent + "DELETE FROM parents WHERE id = 1")
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
		stats := b.drained(t)
		require.Zero(t, stats.Rescheduled, "the run gets its turn for the lock: %s", stats.Held)
		for range clients {
			require.NoError(t, <-busy, "the updates end when the row is deleted")
		}
	})
}

// The engine waits for a locked row last, in READ COMMITTED, so that it is deleted even
// if the lock holder has changed it.
func TestLockedChildIsWaitedForLast(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, parentsAndChildren, deleteChildren, "parents").at(pace)
		b.Exec("DELETE FROM parents WHERE id = 1")
		holder := pgtest.Begin(t, b.Pool(), "UPDATE children SET note = 'busy' WHERE id = 15")
		wait := b.runWhile(t.Context(), t)
		pgtest.Await(t, b.Database, "the engine to wait for the row", `SELECT EXISTS (
			SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
			AND query LIKE '%FOR UPDATE%' AND query NOT LIKE '%SKIP LOCKED%')`)
		require.NoError(t, holder.Commit(t.Context()))
		b.clean(t, wait())
	})
}

// poison makes every deletion of a child with this note fail.
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

// If a child table is dropped during a run, its tombstones are kept.
func TestDroppedChildTable(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren+others, dbtest.Definitions("async_delete", "others", "children"), "parents")
	b.Exec("DELETE FROM parents WHERE id <= 2")
	b.Exec("DROP TABLE others")
	stats := b.run(t)
	require.Zero(t, stats.Processed)
	require.EqualValues(t, 20, stats.DeleteCount, "the other children go all the same")
	require.Equal(t, [][]string{
		{"1", "0", "t", `others: SQLSTATE 42P01: relation "public.others" does not exist`},
		{"2", "0", "t", `others: SQLSTATE 42P01: relation "public.others" does not exist`},
	}, b.tombstones(), "they are postponed, which is no attempt")
}

// Row-level security hides children from a role that does not own the table. Hidden
// children do not count as deleted.
func TestHiddenChildrenAreNotGone(t *testing.T) {
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

// A child's trigger may read a table with policies, as for the application. Policies on
// another child hold only that child.
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
			dbtest.Definitions("async_delete", "children", "others"), "parents").at(pace)
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
		require.EqualValues(t, 2, b.drained(t).DeleteCount)
		require.Zero(t, b.count(t, "others WHERE parent_id <= 2"))
	})
}

// A new partition without grants is held alone: the rows of the others go now, and no
// tombstone goes before its own rows.
func TestAPartitionWithoutPrivilegesIsHeldAlone(t *testing.T) {
	t.Parallel()
	type example struct {
		partitions int
		// bound reports that the lack is known before the run.
		bound bool
	}
	eachAtPaces(t, map[string]example{
		"found when bound":         {7, true},
		"found by a statement":     {7, false},
		"among many, when bound":   {12, true},
		"among many, by statement": {12, false},
	}, func(t *testing.T, _, pace string, test example) {
		children := "DROP TABLE children;" + dbtest.Children{
			Each: 50, Columns: "note text",
			Partitions: test.partitions,
		}.SQL()
		b := setup(t, parentsAndChildren+children, deleteChildren, "parents").at(pace)
		role := b.asRole(t)
		b.Exec("REVOKE ALL ON children_0 FROM " + role + "; DELETE FROM parents WHERE id <= 4")
		held := b.count(t, "children_0 WHERE parent_id <= 4")
		require.NotZero(t, held)
		if test.bound {
			missing := pgtest.Must(loosefk.BreakUnprivileged(t.Context(), b.engine.Session.Conn, "main",
				b.engine.Parents))(t)
			require.Len(t, missing, 1)
		}
		stats := b.run(t)
		require.Equal(t, 200-held, stats.DeleteCount)
		require.Equal(t, held, b.count(t, "children WHERE parent_id <= 4"), "rows of the other partitions")
		require.Zero(t, stats.Processed)
		reason := fmt.Sprintf("the database role lacks DELETE, SELECT, UPDATE on table public.children_0: GRANT DELETE, SELECT, UPDATE ON public.children_0 TO %s", role)
		require.Len(t, b.tombstones(), 4)
		for _, tombstone := range b.tombstones() {
			require.Equal(t, "0", tombstone[1], "that is no attempt")
			require.Contains(t, tombstone[3], reason)
		}

		b.Exec("GRANT ALL ON children_0 TO " + role +
			"; UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
		for _, reference := range loosefk.References(b.engine.Parents) {
			reference.BrokenLeaves = nil
		}
		require.Equal(t, held, b.drained(t).DeleteCount)
	})
}

// A child table on which every statement times out is given up for the run, and only for
// the run.
func TestTimingOutTableIsHeld(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, parentsAndChildren+others+dbtest.OnStatement("DELETE", "children", "PERFORM pg_sleep(600);"),
			dbtest.Definitions("async_delete", "children", "others"), "parents").at(pace)
		b.engine.Session.Limits.StatementTimeout = 500 * time.Millisecond
		b.Exec("DELETE FROM parents")
		stats := b.run(t)
		require.Zero(t, stats.Processed)
		require.Len(t, stats.Errors, 1)
		require.LessOrEqual(t, stats.Errors[0].Count, int64(4), "it is held")
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
		require.Equal(t, 3, attempts, "the others wait for the table")
	})
}

// A tombstone from before the parent's key changed its type cannot be worked on and is
// not dropped either, as one with two keys or none.
func TestTombstoneWithAnotherKeyType(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_text, primary_key_value) VALUES
		('public.parents', 'x', NULL), ('public.parents', 'x', 1), ('public.parents', NULL, NULL)`)
	require.Zero(t, b.run(t).Processed)
	require.Equal(t, [][]string{{"1", "the tombstone's key is not of the type of column id"}},
		b.Rows("SELECT DISTINCT cleanup_attempts, split_part(last_error, ': ', 2) FROM loose_foreign_keys_deleted_records"))
}
