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

// target is the default target.
const target = 20 * time.Millisecond

// setupAdaptive is setup for the adaptive pace, without pauses.
func setupAdaptive(t *testing.T, tables, definitionsYAML string, tracked ...string) bundle {
	return setup(t, tables, definitionsYAML, tracked...).at("adaptive")
}

// tooMany makes every statement fail with a timeout that deletes or changes more than
// that number of rows, on any machine.
func tooMany(event, table string, rows int) string {
	return dbtest.OnStatement(event, table,
		fmt.Sprintf("IF (SELECT count(*) FROM gone) > %d THEN PERFORM pg_sleep(600); END IF;", rows))
}

// noted records how many children of how many parents each statement deleted.
var noted = "CREATE TABLE statements (parents bigint, heavy boolean, affected bigint);\n" + dbtest.OnStatement("DELETE",
	"children",
	"INSERT INTO public.statements SELECT count(DISTINCT parent_id), bool_or(parent_id = 1), count(*) FROM gone HAVING count(*) > 0;")

// overload makes statements with too many children fail, and records all others.
var overload = tooMany("DELETE", "children", 5000) + noted

// heavy adds that number of children to the first parent. They are last in the table and
// in the index.
func heavy(children int) string {
	return fmt.Sprintf("INSERT INTO children SELECT 1000 + n, 1 FROM generate_series(1, %d) AS n;", children)
}

// innocent makes the run fail if it records an attempt of a tombstone.
const innocent = `
CREATE FUNCTION innocent() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.cleanup_attempts > 0 THEN RAISE EXCEPTION 'blamed: %', new.last_error; END IF; RETURN new; END $$;
CREATE TRIGGER innocent BEFORE UPDATE ON loose_foreign_keys_deleted_records FOR EACH ROW EXECUTE FUNCTION innocent();`

// onProgress calls f after the first batch that meets the condition, while the engine
// waits.
func (b bundle) onProgress(condition func(*loosefk.Stats) bool, f func()) {
	called := false
	b.engine.Progress = func(_ context.Context, stats *loosefk.Stats) {
		if !called && condition(stats) {
			called = true
			f()
		}
	}
}

// rowsDeleted reports whether rows were deleted.
func rowsDeleted(stats *loosefk.Stats) bool { return stats.DeleteCount > 0 }

func (b bundle) count(t *testing.T, sql string) int64 {
	return pgtest.Scalar[int64](t, b.Database, "SELECT count(*) FROM "+sql)
}

// lockRows locks children. It returns the transaction and the process ID of its session.
func (b bundle) lockRows(t *testing.T, condition string) (pgx.Tx, uint32) {
	tx := b.Begin(t, "SELECT FROM children WHERE "+condition+" FOR UPDATE")
	return tx, tx.Conn().PgConn().PID()
}

// The definitions have all keys and actions. Each parent needs many statements.
func TestAdaptiveHeavyParentByAction(t *testing.T) {
	t.Parallel()
	const children = 12_010
	big := "ALTER TABLE children ADD state text;" + heavy(children-10) + tooMany("DELETE", "children", 5000) +
		tooMany("UPDATE", "children", 5000)
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
		b.Exec(innocent + "DELETE FROM parents WHERE id = 1")
		stats := b.drained(t)
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
		tooMany("DELETE", "children_1", 1000)+tooMany("DELETE", "children_2", 1000), deleteChildren, "parents")
	b.Exec(innocent + "DELETE FROM parents WHERE id = 1")
	require.Equal(t, map[string]int64{"children": 7998}, b.drained(t).DeleteCountByTable)
	require.Equal(t, []string{"0", "4000"}, b.ids("SELECT id FROM children ORDER BY id"))
}

// A large parent at the head of the queue does not delay small ones. Its tombstone is
// kept until its last child is deleted.
func TestAdaptiveLargeParentDoesNotDelaySmallOnes(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+overload+heavy(30_000), deleteChildren, "parents")
	b.Exec(innocent)
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.Exec("DELETE FROM parents WHERE id > 1")
	var order []string
	left := int64(-1) // heavy children when the last small parent was done
	b.engine.Progress = func(_ context.Context, stats *loosefk.Stats) {
		for _, row := range b.Rows(`SELECT (SELECT count(*) FROM children WHERE parent_id = 1),
			(SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE primary_key_value = 1)`) {
			if row[0] != "0" && row[1] != "1" {
				order = append(order, "tombstone gone before "+row[0]+" children")
			}
			if stats.Processed == 9 && left < 0 {
				left, _ = strconv.ParseInt(row[0], 10, 64)
			}
		}
	}
	stats := b.drained(t)
	require.Empty(t, order)
	require.Positive(t, left, "the heavy parent's children that are left when the small parents are done")
	require.EqualValues(t, 30_100, stats.DeleteCount)
	require.EqualValues(t, 10, stats.Processed)
	require.Zero(t, b.count(t, "statements WHERE affected > 5000"))
	require.Greater(t, b.count(t, "statements WHERE heavy"), int64(6))
}

// Another session changes rows after a window was read and before the statement for them.
func TestAdaptiveRowsThatMoveAfterTheirWindowWasRead(t *testing.T) {
	t.Parallel()
	const children = 20_010
	last := "(SELECT id FROM children WHERE parent_id = 1 ORDER BY id DESC LIMIT 7)"
	type example struct {
		statement string
		deleted   int64
		stay      int64
	}
	pgtest.Each(t, pgtest.Few(t, map[string]example{
		"changed":       {"UPDATE children SET note = 'changed' WHERE id IN " + last, children, 0},
		"moved away":    {"UPDATE children SET parent_id = 2 WHERE id IN " + last, children - 7, 7},
		"made nobody's": {"UPDATE children SET parent_id = NULL WHERE id IN " + last, children - 7, 7},
		"deleted": {"ALTER TABLE children DISABLE TRIGGER USER; DELETE FROM children WHERE id IN " + last +
			"; ALTER TABLE children ENABLE TRIGGER USER", children - 7, 0},
		"moved in": {"UPDATE children SET parent_id = 1 WHERE parent_id = 3", children + 10, 0},
		"moved and changed": {"UPDATE children SET parent_id = 2 WHERE id IN " + last +
			"; UPDATE children SET parent_id = 1 WHERE id > 1000 AND parent_id = 2", children, 0},
	}, "moved in", "moved and changed"), func(t *testing.T, _ string, test example) {
		b := setupAdaptive(t, parentsAndChildren+overload+heavy(children-10), deleteChildren, "parents")
		b.Exec(innocent + "DELETE FROM parents WHERE id = 1")
		b.onProgress(rowsDeleted, func() { b.Exec(test.statement) })
		require.Equal(t, test.deleted, b.drained(t).DeleteCount)
		require.Zero(t, b.count(t, "children WHERE parent_id = 1"))
		require.Equal(t, test.stay, b.count(t, "children WHERE id > 1000"))
	})
}

// A pointer may lead to another row that was inserted in place of a child. That row is
// kept.
func TestAdaptivePointersToOtherRowsChangeNothing(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+overload+heavy(20_000), deleteChildren, "parents")
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
	stats := b.drained(t)
	require.Greater(t, b.count(t, "children JOIN places ON places.place = children.ctid"), int64(100),
		"the places were taken")
	require.EqualValues(t, 3000, b.count(t, "children WHERE id > 100000"))
	require.EqualValues(t, 19_010, stats.DeleteCount)
}

// Statements grow over a slow network as over a fast one: the time of the network does
// not count.
func TestAdaptiveSizesDoNotCountTheNetwork(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+overload+heavy(20_000), deleteChildren, "parents")
	b.engine.Adaptive.Target = 2 * target
	settings := b.Pool().Config().ConnConfig
	network := &pgtest.Network{}
	network.Delay.Store(int64(2 * b.engine.Adaptive.Target))
	settings.DialFunc = network.Dial
	b.engine.Session.Conn = pgtest.ConnectAs(t, settings)
	b.Exec("DELETE FROM parents")
	require.EqualValues(t, 20_100, b.drained(t).DeleteCount)
	require.LessOrEqual(t, b.count(t, "statements"), int64(60))
}
