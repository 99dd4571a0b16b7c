package loosefk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/triggers"
)

// Children go by the comparison that a native foreign key would make, wherever its operator lives, and whatever the path.
func TestChildrenAreComparedAsByANativeKey(t *testing.T) {
	t.Parallel()

	const citext = "CREATE SCHEMA extensions; CREATE EXTENSION citext SCHEMA extensions;"
	const loose = "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
	for name, test := range map[string]struct {
		before, parent, child string
		keys, children        string
		left                  []string
		// unindexed tells that no index can serve.
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
			keys: "('Alice')", children: "(1, 'ALICE'), (2, 'Alice'), (3, 'bob')", left: []string{"1", "3"}, unindexed: true,
		},
		"numeric parent, bigint child": {
			parent: "numeric", child: "bigint",
			keys: "(5.0), (6.5), (1e30), ('NaN')", children: "(1, 5), (2, 6), (3, 7), (4, 9223372036854775807)", left: []string{"2", "3", "4"},
		},
		"char parent, text child": {
			parent: "char(4)", child: "text",
			keys: "('ab')", children: "(1, 'ab'), (2, 'ab  '), (3, 'abc')", left: []string{"3"}, unindexed: true,
		},
		"varchar parent, text child": {
			parent: "varchar(4)", child: "text", keys: "('ab')", children: "(1, 'ab'), (2, 'ab  ')", left: []string{"2"},
		},
		"text parent, varchar child": {
			parent: "text", child: "varchar(4)", keys: "('ab')", children: "(1, 'ab'), (2, 'ab  ')", left: []string{"2"},
		},
		"timestamp parent, date child": {
			parent: "timestamp", child: "date",
			keys: "('2024-01-01'), ('2024-01-02 12:00')", children: "(1, '2024-01-01'), (2, '2024-01-02')", left: []string{"2"},
		},
		"enum": {
			before: "CREATE TYPE colour AS ENUM ('red', 'green');", parent: "colour", child: "colour",
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
	} {
		for _, composite := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, composite %t", name, composite), func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				db.Exec(test.before)
				columns, keys := "parent", []string{"key"}
				if composite {
					columns, keys = "parent, second", []string{"key", "second"}
				}
				db.Exec("CREATE TABLE parents (second int DEFAULT 7, key " + test.parent + ", PRIMARY KEY (" + strings.Join(keys, ", ") + "))")
				db.Exec("CREATE TABLE children (second int DEFAULT 7, id bigint PRIMARY KEY, parent " + test.child + ")")
				db.Exec("CREATE INDEX ON children (parent, second)")
				db.TrackKeys(t, triggers.Parent{Schema: "public", Table: "parents", KeyColumns: keys})
				yaml := "children: [{table: parents, column: [" + columns + "], on_delete: async_delete}]"
				_, problems := resolve(t, db.Pool(), yaml)
				require.NoError(t, problems.Err())
				require.Equal(t, test.unindexed, len(problems) > 0 && strings.HasPrefix(problems[0].Message, "no index on children.parent can serve"), "%v", problems)
				if access := planOn(t, db, yaml, planLimits()).Definitions[0].Access; !test.unindexed {
					require.True(t, access.UsesIndex, "Postgres itself goes by the index: %+v", access)
				}
				b := onto(t, db, yaml)
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

// A partition takes no row that belongs into another one; only the partitioned table moves it there.
func TestChangesOfThePartitionKeyMoveTheRow(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]string{
		"nullify": "async_nullify",
		"update":  "update_column_to, target_column: state, target_value: 9",
	} {
		for _, pace := range []string{"normal", "adaptive"} {
			t.Run(name+" "+pace, func(t *testing.T) {
				t.Parallel()
				key := map[string]string{"nullify": "parent_id", "update": "state"}[name]
				b := setup(t, `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (id bigint, parent_id bigint, state int DEFAULT 1) PARTITION BY RANGE (id);
CREATE TABLE children_low PARTITION OF children FOR VALUES FROM (0) TO (100) PARTITION BY LIST (`+key+`);
CREATE TABLE children_1 PARTITION OF children_low FOR VALUES IN (1);
CREATE TABLE children_2 PARTITION OF children_low FOR VALUES IN (2);
CREATE TABLE children_rest PARTITION OF children_low DEFAULT;
CREATE INDEX ON children (parent_id);
INSERT INTO parents VALUES (1), (2);
INSERT INTO children SELECT n, n % 2 + 1 FROM generate_series(0, 19) AS n;`,
					"children: [{table: parents, column: parent_id, on_delete: "+change+"}]", "parents")
				if pace == "adaptive" {
					b.adapts()
				}
				b.Exec("DELETE FROM parents WHERE id = 1")
				b.run(t)
				require.Empty(t, b.tombstones())
				require.Equal(t, [][]string{{"10"}}, b.Rows("SELECT count(*) FROM children_rest"))
			})
		}
	}
}
