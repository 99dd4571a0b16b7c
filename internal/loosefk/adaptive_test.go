package loosefk_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// target is the time that a statement of the adaptive pace should take.
const target = 20 * time.Millisecond

// setupAdaptive calls setup and sets the adaptive pace, without pauses.
func setupAdaptive(t *testing.T, tables, definitionsYAML string, tracked ...string) bundle {
	return setup(t, tables, definitionsYAML, tracked...).withPace("adaptive")
}

// limitRows returns a trigger that makes a statement time out, on any machine, if the
// statement deletes or changes more rows than the given number.
func limitRows(event, table string, rows int) string {
	return dbtest.OnStatement(event, table,
		fmt.Sprintf("IF (SELECT count(*) FROM gone) > %d THEN PERFORM pg_sleep(600); END IF;", rows))
}

// recordStatements is a trigger that records how many children of how many parents each
// statement deleted.
var recordStatements = "CREATE TABLE statements (parents bigint, heavy boolean, affected bigint);\n" + dbtest.OnStatement("DELETE",
	"children",
	"INSERT INTO public.statements SELECT count(DISTINCT parent_id), bool_or(parent_id = 1), count(*) FROM gone HAVING count(*) > 0;")

// limitChildren makes a statement time out if it deletes too many children, and records
// all other statements.
var limitChildren = limitRows("DELETE", "children", 5000) + recordStatements

// addChildren returns the statement that adds children to the first parent. The new rows
// are the last ones in the table and in the index.
func addChildren(children int) string {
	return fmt.Sprintf("INSERT INTO children SELECT 1000 + n, 1 FROM generate_series(1, %d) AS n;", children)
}

// forbidAttempts is a trigger that makes the run fail if the run records an attempt of a
// tombstone.
const forbidAttempts = `
CREATE FUNCTION forbidAttempts() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.cleanup_attempts > 0 THEN RAISE EXCEPTION 'attempt recorded: %', new.last_error; END IF; RETURN new; END $$;
CREATE TRIGGER forbidAttempts BEFORE UPDATE ON loose_foreign_keys_deleted_records FOR EACH ROW EXECUTE FUNCTION forbidAttempts();`

// onProgress calls f once, after the first batch whose statistics meet the condition. The
// engine waits for f.
func (b bundle) onProgress(condition func(*loosefk.Stats) bool, f func()) {
	called := false
	b.engine.Progress = func(_ context.Context, stats *loosefk.Stats) {
		if !called && condition(stats) {
			called = true
			f()
		}
	}
}

// rowsDeleted reports whether the run has deleted rows.
func rowsDeleted(stats *loosefk.Stats) bool { return stats.DeleteCount > 0 }

func (b bundle) count(t *testing.T, sql string) int64 {
	return pgtest.Scalar[int64](t, b.Database, "SELECT count(*) FROM "+sql)
}

// lockRows locks the children that meet the condition. It returns the transaction and the
// process ID of its session.
func (b bundle) lockRows(t *testing.T, condition string) (pgx.Tx, uint32) {
	tx := b.Begin(t, "SELECT FROM children WHERE "+condition+" FOR UPDATE")
	return tx, tx.Conn().PgConn().PID()
}

// A parent that needs many statements is cleaned up without an attempt, with all actions
// and options of a definition.
func TestAdaptiveHeavyParentByAction(t *testing.T) {
	t.Parallel()
	const children = 12_010
	big := "ALTER TABLE children ADD state text;" + addChildren(children-10) + limitRows("DELETE", "children", 5000) +
		limitRows("UPDATE", "children", 5000)
	type example struct{ action, left string }
	pgtest.Each(t, pgtest.Few(t, map[string]example{
		"delete":  {"on_delete: async_delete", "parent_id = 1"},
		"nullify": {"on_delete: async_nullify", "parent_id = 1"},
		"update": {
			"on_delete: update_column_to, target_column: state, target_value: gone",
			"parent_id = 1 AND state IS DISTINCT FROM 'gone'",
		},
		"conditions": {"on_delete: async_delete, conditions: [{column: note, value: A}]", "parent_id = 1"},
		"cleaner": {
			`on_delete: async_delete, cleaner_class: "Ci::JobArtifacts::LooseForeignKeyCleanerService"`,
			"parent_id = 1",
		},
		"delete_limit": {"on_delete: async_delete, delete_limit: 1500", "parent_id = 1"},
	}, "update", "conditions"), func(t *testing.T, name string, test example) {
		b := setupAdaptive(t, parentsAndChildren+big, "children: [{table: parents, column: parent_id, "+test.action+
			"}]", "parents")
		if name == "conditions" {
			b.Exec("UPDATE children SET note = 'A' WHERE id <= 1000; ALTER TABLE children DISABLE TRIGGER USER")
			b.Exec("UPDATE children SET note = 'A'")
			b.Exec("ALTER TABLE children ENABLE TRIGGER USER; INSERT INTO children VALUES (1000000, 1, 'B')")
			test.left += " AND note = 'A'"
		}
		b.Exec(forbidAttempts + "DELETE FROM parents WHERE id = 1")
		stats := b.runToEnd(t)
		require.EqualValues(t, children, stats.DeleteCount+stats.UpdateCount)
		require.Zero(t, b.count(t, "children WHERE "+test.left))
		require.EqualValues(t, 90, b.count(t, "children WHERE parent_id > 1"))
		switch name {
		case "conditions":
			require.Equal(t, []string{"1000000"}, b.ids("SELECT id FROM children WHERE parent_id = 1"))
		case "cleaner":
			require.EqualValues(t, children, b.count(t,
				"(SELECT DISTINCT key FROM sexton.events, jsonb_array_elements(payload -> 'keys') AS key) AS keys"))
		}
		require.False(t, b.run(t).Changed(), "the second run changes nothing")
	})
}

func TestAdaptiveHeavyParentOfPartitions(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, dbtest.Parents("parents", 2)+`
		CREATE TABLE children (id bigint, parent_id bigint) PARTITION BY RANGE (id);
		CREATE TABLE children_1 PARTITION OF children FOR VALUES FROM (0) TO (4000);
		CREATE TABLE children_2 PARTITION OF children FOR VALUES FROM (4000) TO (8000);
		CREATE INDEX ON children (parent_id);
		INSERT INTO children SELECT n, 1 + (n % 4000 = 0)::int FROM generate_series(0, 7999) AS n;`+
		limitRows("DELETE", "children_1", 1000)+limitRows("DELETE", "children_2", 1000), deleteChildren, "parents")
	b.Exec(forbidAttempts + "DELETE FROM parents WHERE id = 1")
	require.Equal(t, map[string]int64{"children": 7998}, b.runToEnd(t).DeleteCountByTable)
	require.Equal(t, []string{"0", "4000"}, b.ids("SELECT id FROM children ORDER BY id"))
}

// A large parent at the head of the queue does not delay small ones. Its tombstone is
// kept until its last child is deleted.
func TestAdaptiveLargeParentDoesNotDelaySmallOnes(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+limitChildren+addChildren(30_000), deleteChildren, "parents")
	b.Exec(forbidAttempts)
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.Exec("DELETE FROM parents WHERE id > 1")
	var order []string
	// left is the number of the large parent's children when the last small parent was
	// processed.
	left := int64(-1)
	b.engine.Progress = func(_ context.Context, stats *loosefk.Stats) {
		for _, row := range b.Rows(`SELECT (SELECT count(*) FROM children WHERE parent_id = 1),
			(SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE primary_key_value = 1)`) {
			if row[0] != "0" && row[1] != "1" {
				order = append(order, "tombstone removed before "+row[0]+" children")
			}
			if stats.Processed == 9 && left < 0 {
				left, _ = strconv.ParseInt(row[0], 10, 64)
			}
		}
	}
	stats := b.runToEnd(t)
	require.Empty(t, order)
	require.Positive(t, left, "the small parents are processed before the large one")
	require.EqualValues(t, 30_100, stats.DeleteCount)
	require.EqualValues(t, 10, stats.Processed)
	require.Zero(t, b.count(t, "statements WHERE affected > 5000"))
	require.Greater(t, b.count(t, "statements WHERE heavy"), int64(6))
}

// If another session changes rows after their window was read, the run deletes exactly
// the rows that still refer to the parent.
func TestAdaptiveRowsThatMoveAfterTheirWindowWasRead(t *testing.T) {
	t.Parallel()
	const children = 20_010
	last := "(SELECT id FROM children WHERE parent_id = 1 ORDER BY id DESC LIMIT 7)"
	type example struct {
		statement string
		deleted   int64
		kept      int64
	}
	pgtest.Each(t, pgtest.Few(t, map[string]example{
		"changed":     {"UPDATE children SET note = 'changed' WHERE id IN " + last, children, 0},
		"moved away":  {"UPDATE children SET parent_id = 2 WHERE id IN " + last, children - 7, 7},
		"set to NULL": {"UPDATE children SET parent_id = NULL WHERE id IN " + last, children - 7, 7},
		"deleted": {"ALTER TABLE children DISABLE TRIGGER USER; DELETE FROM children WHERE id IN " + last +
			"; ALTER TABLE children ENABLE TRIGGER USER", children - 7, 0},
		"moved in": {"UPDATE children SET parent_id = 1 WHERE parent_id = 3", children + 10, 0},
		"moved and changed": {"UPDATE children SET parent_id = 2 WHERE id IN " + last +
			"; UPDATE children SET parent_id = 1 WHERE id > 1000 AND parent_id = 2", children, 0},
	}, "moved in", "moved and changed"), func(t *testing.T, _ string, test example) {
		b := setupAdaptive(t, parentsAndChildren+limitChildren+addChildren(children-10), deleteChildren, "parents")
		b.Exec(forbidAttempts + "DELETE FROM parents WHERE id = 1")
		b.onProgress(rowsDeleted, func() { b.Exec(test.statement) })
		require.Equal(t, test.deleted, b.runToEnd(t).DeleteCount)
		require.Zero(t, b.count(t, "children WHERE parent_id = 1"))
		require.Equal(t, test.kept, b.count(t, "children WHERE id > 1000"))
	})
}

// If a child's row pointer leads to another row when the child is deleted, because that
// row was inserted in its place, the other row is kept.
func TestAdaptivePointersToOtherRowsChangeNothing(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+limitChildren+addChildren(20_000), deleteChildren, "parents")
	b.Exec("ALTER TABLE children SET (autovacuum_enabled = off)")
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.onProgress(rowsDeleted, func() {
		b.Exec("ALTER TABLE children DISABLE TRIGGER USER")
		b.Exec("CREATE TABLE places AS SELECT ctid AS place FROM children WHERE parent_id = 1 ORDER BY id DESC LIMIT 1000")
		b.Exec("DELETE FROM children WHERE ctid IN (SELECT place FROM places)")
		b.Exec("ALTER TABLE children ENABLE TRIGGER USER")
		b.Exec("VACUUM (TRUNCATE false) children")
		b.Exec("INSERT INTO children SELECT 100000 + n, 2 FROM generate_series(1, 3000) AS n")
	})
	stats := b.runToEnd(t)
	require.Greater(t, b.count(t, "children JOIN places ON places.place = children.ctid"), int64(100),
		"new rows have the row pointers of deleted children")
	require.EqualValues(t, 3000, b.count(t, "children WHERE id > 100000"))
	require.EqualValues(t, 19_010, stats.DeleteCount)
}

// Statements become as large over a slow network as over a fast one, because latency does
// not count as time of a statement.
func TestAdaptiveSizesIgnoreNetworkLatency(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+limitChildren+addChildren(20_000), deleteChildren, "parents")
	b.engine.Adaptive.Target = 2 * target
	settings := b.Pool().Config().ConnConfig
	network := &pgtest.Network{}
	network.Delay.Store(int64(2 * b.engine.Adaptive.Target))
	settings.DialFunc = network.Dial
	b.engine.Session.Conn = pgtest.ConnectAs(t, settings)
	b.Exec("DELETE FROM parents")
	require.EqualValues(t, 20_100, b.runToEnd(t).DeleteCount)
	require.LessOrEqual(t, b.count(t, "statements"), int64(60))
}
