package loosefk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

// Children are compared with the operators of a native foreign key, whatever the schema
// of the operator and the search path.
func TestChildrenAreComparedAsByANativeKey(t *testing.T) {
	t.Parallel()
	const citext = "CREATE SCHEMA extensions; CREATE EXTENSION citext SCHEMA extensions;"
	const loose = "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
	for name, test := range pgtest.Few(t, map[string]struct {
		before, parent, child string
		keys, children        string
		left                  []string
		// unindexed reports that the comparison cannot use any index.
		unindexed bool
	}{
		"citext": {
			before: citext, parent: "extensions.citext", child: "extensions.citext",
			keys: "('Alice')", children: "(1, 'ALICE'), (2, 'alice'), (3, 'bob')", left: []string{"3"},
		},
		"domain over citext": {
			before: citext + "CREATE DOMAIN login AS extensions.citext;", parent: "extensions.citext", child: "login",
			keys: "('Alice')", children: "(1, 'ALICE'), (2, 'alice'), (3, 'bob')", left: []string{"3"},
		},
		"text parent, citext child": {
			before: citext, parent: "text", child: "extensions.citext",
			keys: "('Alice')", children: "(1, 'ALICE'), (2, 'Alice'), (3, 'bob')", left: []string{"1", "3"},
			unindexed: true,
		},
		"numeric parent, bigint child": {
			parent: "numeric", child: "bigint",
			keys: "(5.0), (6.5), (1e30), ('NaN')", children: "(1, 5), (2, 6), (3, 7), (4, 9223372036854775807)",
			left: []string{"2", "3", "4"},
		},
		"char parent, text child": {
			parent: "char(4)", child: "text",
			keys: "('ab')", children: "(1, 'ab'), (2, 'ab  '), (3, 'abc')", left: []string{"3"}, unindexed: true,
		},
		"varchar parent, text child": {
			parent: "varchar(4)", child: "text", keys: "('ab')", children: "(1, 'ab'), (2, 'ab  ')",
			left: []string{"2"},
		},
		"text parent, varchar child": {
			parent: "text", child: "varchar(4)", keys: "('ab')", children: "(1, 'ab'), (2, 'ab  ')",
			left: []string{"2"},
		},
		"timestamp parent, date child": {
			parent: "timestamp", child: "date",
			keys: "('2024-01-01'), ('2024-01-02 12:00')", children: "(1, '2024-01-01'), (2, '2024-01-02')",
			left: []string{"2"},
		},
		"enum": {
			before: "CREATE TYPE color AS ENUM ('red', 'green');", parent: "color", child: "color",
			keys: "('red')", children: "(1, 'red'), (2, 'green')", left: []string{"2"},
		},
		"loose collation": {
			before: loose, parent: "text COLLATE loose", child: "text COLLATE loose",
			keys: "('Alice')", children: "(1, 'ALICE'), (2, 'bob')", left: []string{"2"},
		},
		"loose collation of the parent alone": {
			before: loose, parent: "text COLLATE loose", child: "text",
			keys: "('Alice')", children: "(1, 'ALICE'), (2, 'bob')", left: []string{"2"}, unindexed: true,
		},
		"loose collation of the child alone": {
			before: loose, parent: `text COLLATE "C"`, child: "text COLLATE loose",
			keys: "('Alice')", children: "(1, 'ALICE'), (2, 'Alice')", left: []string{"1"}, unindexed: true,
		},
		"other collation": {
			parent: `text COLLATE "C"`, child: `text COLLATE "POSIX"`,
			keys: "('Alice')", children: "(1, 'ALICE'), (2, 'Alice')", left: []string{"1"},
		},
	}, "domain over citext", "text parent, citext child", "numeric parent, bigint child",
		"loose collation of the parent alone") {
		for _, composite := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, composite %t", name, composite), func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				db.Exec(test.before)
				columns, keys := "parent", []string{"key"}
				if composite {
					columns, keys = "parent, second", []string{"key", "second"}
				}
				db.Exec("CREATE TABLE parents (second int DEFAULT 7, key " + test.parent + ", PRIMARY KEY (" +
					strings.Join(keys, ", ") + "))")
				db.Exec("CREATE TABLE children (second int DEFAULT 7, id bigint PRIMARY KEY, parent " + test.child +
					")")
				db.Exec("CREATE INDEX ON children (parent, second)")
				db.TrackKeys(t, triggers.Parent{Schema: "public", Table: "parents", KeyColumns: keys})
				yaml := "children: [{table: parents, column: [" + columns + "], on_delete: async_delete}]"
				_, problems := resolve(t, db.Pool(), yaml)
				require.NoError(t, problems.Err())
				require.Equal(t, test.unindexed, len(problems) > 0 &&
					strings.HasPrefix(problems[0].Message, "no index on children.parent can be used"), "%v", problems)
				if access := planOn(t, db, yaml, planLimits()).Definitions[0].Access; !test.unindexed {
					require.True(t, access.UsesIndex, "Postgres uses the index: %+v", access)
				}
				b := setupOn(t, db, yaml)
				db.Exec("INSERT INTO parents (key) VALUES " + test.keys)
				db.Exec("INSERT INTO children (id, parent) VALUES " + test.children)
				db.Exec("DELETE FROM parents")
				b.run(t)
				require.Equal(t, test.left, b.ids("SELECT id FROM children ORDER BY id"))
				require.Empty(t, b.tombstones())
			})
		}
	}
}

// If an action changes the partition key of a child, the row is moved to another
// partition.
func TestChangesOfThePartitionKeyMoveTheRow(t *testing.T) {
	t.Parallel()
	type example struct{ action, key string }
	eachAtPaces(t, map[string]example{
		"nullify": {"async_nullify", "parent_id"},
		"update":  {"update_column_to, target_column: state, target_value: 9", "state"},
	}, func(t *testing.T, _, pace string, test example) {
		b := setup(t, dbtest.Parents("parents", 2)+`
			CREATE TABLE children (id bigint, parent_id bigint, state int DEFAULT 1) PARTITION BY RANGE (id);
			CREATE TABLE children_low PARTITION OF children FOR VALUES FROM (0) TO (100) PARTITION BY LIST (`+test.key+`);
			CREATE TABLE children_1 PARTITION OF children_low FOR VALUES IN (1);
			CREATE TABLE children_2 PARTITION OF children_low FOR VALUES IN (2);
			CREATE TABLE children_rest PARTITION OF children_low DEFAULT;
			CREATE INDEX ON children (parent_id);
			INSERT INTO children SELECT n, n % 2 + 1 FROM generate_series(0, 19) AS n;`, dbtest.Definitions(test.action, "children"), "parents").withPace(pace)
		b.Exec("DELETE FROM parents WHERE id = 1")
		b.runToEnd(t)
		require.EqualValues(t, 10, b.count(t, "children_rest"))
	})
}

var (
	deleteAAndB = dbtest.Definitions("async_delete", "a", "b")
	tablesAAndB = dbtest.Family(2, dbtest.Children{Table: "a"}, dbtest.Children{Table: "b"}) + `
INSERT INTO a SELECT n, 1 FROM generate_series(1, 10) AS n;
INSERT INTO b SELECT n, 1 FROM generate_series(1, 20) AS n;`
)

// A child that an older transaction inserts after the direct statement is not found when
// the tombstone is removed. The recheck, which waits for that transaction, deletes it.
func TestChildInsertedAfterAStatementIsLate(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, tablesAAndB, deleteAAndB, "parents")
	older := b.beginSession(t)
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.onProgress(func(s *loosefk.Stats) bool { return len(s.DeleteCountByTable) == 1 }, func() {
		older.exec("INSERT INTO a VALUES (100, 1); INSERT INTO b VALUES (100, 1)")
	})
	stats := b.runToEnd(t)
	require.EqualValues(t, 30, stats.DeleteCount)
	require.EqualValues(t, 1, stats.Processed)
	require.Len(t, b.uncheckedKeys(), 1, "the recheck waits for the older transaction")

	older.exec("COMMIT")
	stats = b.runRechecks(t)
	require.EqualValues(t, 2, stats.LateChildren)
	require.EqualValues(t, 2, stats.DeleteCount)
	require.Zero(t, b.count(t, "a")+b.count(t, "b"))
}

// A child that is inserted and committed after the direct statement, and before the
// tombstone is removed, is deleted in the same run.
func TestCommittedChildIsDeletedInTheSameRun(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, tablesAAndB, deleteAAndB, "parents")
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.onProgress(func(s *loosefk.Stats) bool { return len(s.DeleteCountByTable) == 1 }, func() {
		b.Exec("INSERT INTO a VALUES (100, 1); INSERT INTO b VALUES (100, 1)")
	})
	require.EqualValues(t, 32, b.runToEnd(t).DeleteCount)
	require.Zero(t, b.count(t, "a")+b.count(t, "b"))
	require.Empty(t, b.uncheckedKeys())
}

// Rows that are moved to another partition between the statements are deleted before the
// tombstone is removed. An older transaction delays rechecks in this test.
func TestRowsMovedDuringTheStatementsAreFound(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, dbtest.Parents("parents", 1)+`
		CREATE TABLE children (id bigint, parent_id bigint) PARTITION BY RANGE (id);
		CREATE TABLE children_1 PARTITION OF children FOR VALUES FROM (0) TO (50);
		CREATE TABLE children_2 PARTITION OF children FOR VALUES FROM (50) TO (100);
		CREATE INDEX ON children (parent_id);
		INSERT INTO children VALUES (1, 1), (51, 1), (52, 1);`, deleteChildren, "parents")
	b.beginSession(t)
	b.Exec("DELETE FROM parents")
	b.onProgress(rowsDeleted, func() {
		b.Exec("UPDATE children SET id = 100 - id WHERE id IN (51, 52); UPDATE children SET id = 99 WHERE id = 1")
	})
	stats := b.run(t)
	require.Zero(t, b.count(t, "children"))
	require.EqualValues(t, 1, stats.Processed)
	require.Zero(t, stats.LateChildren)
	require.Len(t, b.uncheckedKeys(), 1)
}
