package loosefk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/render"
	"sexton/triggers"
)

// setupComposite calls setup for tables with keys of the columns a and b.
func setupComposite(t *testing.T, tables, definitionsYAML string, tracked ...string) bundle {
	db := newDB(t, tables)
	db.TrackKeys(t, render.Each(tracked, func(table string) triggers.Parent {
		return triggers.Parent{Schema: "public", Table: table, KeyColumns: []string{"a", "b"}}
	})...)
	return setupOn(t, db, definitionsYAML)
}

// byPair is a definition whose children refer to parents by a and b.
const byPair = "children: [{table: parents, column: [a, b], on_delete: async_delete}]"

// compositeKind holds the types of the key columns of a parent and a child, and values
// for each column.
type compositeKind struct {
	name             string
	a, b             string
	childA, childB   string
	valuesA, valuesB []string
	// thorough kinds are tested in every run in the usual layouts, and with Long in all
	// layouts. Other kinds are only tested with Long, in the usual layouts.
	thorough bool
}

func compositeKinds() []compositeKind {
	uuids := []string{
		"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12",
		"00000000-0000-4000-8000-000000000000",
	}
	texts := []string{"", " ", "a", "a,b", "b", `"`, `\`, `{`, `{}`, "NULL", "null", "it's", "é\n"}
	return []compositeKind{
		{
			"integers", "integer", "integer", "bigint", "smallint",
			[]string{"1", "2", "3"},
			[]string{"1", "2", "-3"},
			true,
		},
		{"uuid and text", "uuid", "text", "uuid", "varchar(20)", uuids, texts, false},
		{"texts", "text", "varchar(20)", "text", "text", texts, texts, true},
		{
			"mixed", "bigint", "timestamptz", "integer", "timestamptz",
			[]string{"7", "8"},
			[]string{"2026-02-01 00:00+00", "2026-02-01 00:00:00.5+09"},
			false,
		},
	}
}

// tables returns the statements that create parents and children of one kind, once with a
// loose and once with a native foreign key.
func (k compositeKind) tables(action, children, partitions string) string {
	list := func(values []string) string {
		return strings.Join(render.Each(values, func(value string) string {
			return "('" + strings.ReplaceAll(value, "'",
				"''") + "')"
		}), ", ")
	}
	return fmt.Sprintf(`
CREATE TABLE parents (a %[1]s, b %[2]s, number serial, PRIMARY KEY (a, b));
CREATE TABLE children (id bigint, a %[3]s, b %[4]s, state text) %[5]s;
INSERT INTO parents (a, b) SELECT a::%[1]s, b::%[2]s FROM (VALUES %[6]s) AS one (a), (VALUES %[7]s) AS two (b);
%[8]s
INSERT INTO children
SELECT 10 * number + n, CASE WHEN n NOT IN (3, 5) THEN a END, CASE WHEN n NOT IN (4, 5) THEN b END, CASE WHEN n = 1 THEN 'gone' WHEN n = 2 THEN 'new' END
FROM parents, generate_series(0, 5) AS n;
CREATE TABLE native_parents AS SELECT * FROM parents;
ALTER TABLE native_parents ADD PRIMARY KEY (a, b);
CREATE TABLE native_children (LIKE children);
INSERT INTO native_children SELECT * FROM children;
ALTER TABLE native_children ADD FOREIGN KEY (a, b) REFERENCES native_parents ON DELETE %[9]s;`,
		k.a, k.b, k.childA, k.childB, partitions, list(k.valuesA), list(k.valuesB), children, action)
}

type compositeLayout struct {
	name string
	// children is SQL that is run before the rows are inserted. partitions is the
	// PARTITION BY clause of the table.
	children, partitions string
	// usual layouts are tested in every run with the thorough kinds, and with Long with
	// all kinds.
	usual bool
}

func (k compositeKind) tested(layout compositeLayout) bool {
	if pgtest.Long {
		return k.thorough || layout.usual
	}
	return k.thorough && layout.usual
}

func compositeLayouts() []compositeLayout {
	const hash, halves = "PARTITION BY HASH (id)", `
		CREATE TABLE children_0 PARTITION OF children FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE children_1 PARTITION OF children FOR VALUES WITH (MODULUS 2, REMAINDER 1);`
	return []compositeLayout{
		{"indexed", "CREATE INDEX ON children (a, b);", "", true},
		{"partially indexed", "CREATE INDEX ON children (b, a) WHERE b IS NOT NULL AND a IS NOT NULL;", "", false},
		{"without index", "", "", false},
		{"partitions", halves + "CREATE INDEX ON children (b, a, id);", hash, true},
		{"partitions with and without index", halves + "CREATE INDEX ON children_0 (a, b);", hash, false},
	}
}

// Composite loose foreign keys have the same result as native ones.
func TestCompositeKeysMatchNativeKeys(t *testing.T) {
	t.Parallel()
	for _, kind := range compositeKinds() {
		for action, native := range map[string]string{"async_delete": "CASCADE", "async_nullify": "SET NULL"} {
			for _, layout := range compositeLayouts() {
				if !kind.tested(layout) {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, %s", kind.name, action, layout.name), func(t *testing.T) {
					t.Parallel()
					b := setupComposite(t, kind.tables(native, layout.children, layout.partitions),
						"children: [{table: parents, column: [a, b], on_delete: "+action+"}]", "parents")
					for i, pace := range []string{"normal", "turbo", "adaptive"} {
						b.withPace(pace)
						for _, prefix := range []string{"", "native_"} {
							b.Exec(fmt.Sprintf("DELETE FROM %sparents WHERE number %% 4 = %d", prefix, i))
						}
						require.Equal(t, b.Pending(t), b.runToEnd(t).Processed)
						require.Equal(t, b.Rows("SELECT id, a, b FROM native_children ORDER BY id"),
							b.Rows("SELECT id, a, b FROM children ORDER BY id"), pace)
						require.False(t, b.run(t).Changed(), "the second run changes nothing")
					}
				})
			}
		}
	}
}

func TestCompositeUpdateAppliesConditions(t *testing.T) {
	t.Parallel()
	kinds, thorough := map[string]compositeKind{}, []string{}
	for _, kind := range compositeKinds() {
		if kinds[kind.name] = kind; kind.thorough {
			thorough = append(thorough, kind.name)
		}
	}
	eachAtPaces(t, kinds, func(t *testing.T, _, pace string, kind compositeKind) {
		b := setupComposite(t, kind.tables("CASCADE", "CREATE INDEX ON children (a, b); ALTER TABLE children ADD kind text DEFAULT 'A';", ""), `
children:
  - {table: parents, column: [a, b], on_delete: update_column_to, target_column: state, target_value: gone, conditions: [{column: kind, value: A}]}
`, "parents").withPace(pace)
		b.Exec("UPDATE children SET kind = 'B' WHERE id % 4 >= 2; DELETE FROM parents WHERE number % 3 = 0")
		b.runToEnd(t)
		require.Positive(t, b.count(t, "children WHERE state = 'gone' AND id % 10 <> 1"))
		require.Zero(t, b.count(t, `children WHERE (state IS NOT DISTINCT FROM 'gone') <> (
			id % 10 = 1 OR kind = 'A' AND num_nulls(a, b) = 0 AND NOT EXISTS (SELECT FROM parents WHERE (parents.a, parents.b) = (children.a, children.b)))`))
	}, thorough...)
}

// Composite references that form cycles have the same result as native ones: two tables
// refer to each other, and a third table to itself.
func TestCompositeCyclesEnd(t *testing.T) {
	t.Parallel()
	b := setupComposite(t, `
CREATE TABLE one (a int, b text, two_a int, two_b text, PRIMARY KEY (a, b));
CREATE TABLE two (id int PRIMARY KEY, a int, b text, one_a int, one_b text, UNIQUE (b, a));
CREATE TABLE tree (a int, b text, up text, PRIMARY KEY (a, b));
CREATE INDEX ON one (two_b, two_a); CREATE INDEX ON two (one_a, one_b); CREATE INDEX ON tree (a, up);
INSERT INTO one SELECT n / 10, n % 10, (n + 1) / 10, (n + 1) % 10 FROM generate_series(10, 58) AS n;
INSERT INTO two SELECT n, n / 10, n % 10, (n - 7) / 10, (n - 7) % 10 FROM generate_series(10, 59) AS n;
UPDATE two SET one_b = NULL WHERE one_a = 0 OR id = 17;
INSERT INTO tree SELECT a, n, nullif(n - 1, 0) FROM generate_series(1, 2) AS a, generate_series(1, 40) AS n;
CREATE TABLE native_one (LIKE one INCLUDING ALL); INSERT INTO native_one SELECT * FROM one;
CREATE TABLE native_two (LIKE two INCLUDING ALL); INSERT INTO native_two SELECT * FROM two;
CREATE TABLE native_tree (LIKE tree INCLUDING ALL); INSERT INTO native_tree SELECT * FROM tree;
ALTER TABLE native_one ADD FOREIGN KEY (two_a, two_b) REFERENCES native_two (a, b) ON DELETE CASCADE;
ALTER TABLE native_two ADD FOREIGN KEY (one_a, one_b) REFERENCES native_one ON DELETE CASCADE;
ALTER TABLE native_tree ADD FOREIGN KEY (a, up) REFERENCES native_tree ON DELETE CASCADE;`, `
one: [{table: two, column: [two_a, two_b], parent_column: [a, b], on_delete: async_delete}]
two: [{table: one, column: [one_a, one_b], on_delete: async_delete}]
tree: [{table: tree, column: [a, up], on_delete: async_delete}]
`, "one", "two", "tree")
	for _, prefix := range []string{"", "native_"} {
		b.Exec(fmt.Sprintf("DELETE FROM %[1]stwo WHERE id = 30; DELETE FROM %[1]stree WHERE a = 2 AND b = '5'", prefix))
	}
	b.runToEnd(t)
	require.EqualValues(t, 44, b.count(t, "tree"))
	for _, table := range []string{"one", "two", "tree"} {
		require.Positive(t, b.count(t, table))
		require.Equal(t, b.Rows("SELECT * FROM native_"+table+" ORDER BY 1, 2"),
			b.Rows("SELECT * FROM "+table+" ORDER BY 1, 2"))
	}
}

// A child is kept if another transaction changes its key columns while a statement waits
// for its lock.
func TestCompositeKeyIsCheckedAgainOnLockedRows(t *testing.T) {
	t.Parallel()
	eachAtPaces(t, map[string]string{
		"to another parent": "UPDATE children SET a = 1, b = 2 WHERE id = 1",
		"one column":        "UPDATE children SET b = 2 WHERE id = 1",
		"to no parent":      "UPDATE children SET b = NULL WHERE id = 1",
	}, func(t *testing.T, _, pace, move string) {
		b := setupComposite(t, `
CREATE TABLE parents (a int, b int, PRIMARY KEY (a, b));
CREATE TABLE children (id int, a int, b int);
CREATE INDEX ON children (a, b);
INSERT INTO parents VALUES (1, 1), (1, 2);
INSERT INTO children VALUES (1, 1, 1), (2, 1, 1), (3, 1, 2);`, byPair, "parents").withPace(pace)
		b.Exec("DELETE FROM parents WHERE b = 1")
		s := b.beginSession(t)
		s.exec(move)
		wait := b.runWhile(t.Context(), t)
		b.AwaitLock(t)
		s.exec("COMMIT")
		b.requireClean(t, wait())
		require.Equal(t, []string{"1", "3"}, b.ids("SELECT id FROM children ORDER BY id"))
	}, "one column")
}

// A parent with a composite key and more children than one statement can change in time
// is drained in pieces.
func TestCompositeHeavyParentIsDrainedInPieces(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]bool{"async_delete": true, "async_nullify": true},
		func(t *testing.T, action string, _ bool) {
			b := setupComposite(t, `
CREATE TABLE parents (a uuid, b text, PRIMARY KEY (a, b));
CREATE TABLE children (id int PRIMARY KEY, a uuid, b text);
CREATE INDEX ON children (b, a);
INSERT INTO parents SELECT '00000000-0000-4000-8000-000000000000', n FROM generate_series(1, 3) AS n;
INSERT INTO children SELECT n, '00000000-0000-4000-8000-000000000000', CASE WHEN n <= 10000 THEN 1 WHEN n <= 11000 THEN 2 ELSE 3 END FROM generate_series(1, 12000) AS n;`+limitRows("DELETE", "children", 5000)+limitRows("UPDATE", "children", 5000)+forbidAttempts,
				"children: [{table: parents, column: [a, b], on_delete: "+action+"}]", "parents").withPace("adaptive")
			b.Exec("DELETE FROM parents WHERE b <> '3'; DELETE FROM children WHERE id > 10990 AND id <= 11000")
			require.EqualValues(t, 2, b.runToEnd(t).Processed)
			require.EqualValues(t, 1000, b.count(t, "children WHERE b = '3'"))
			require.Zero(t, b.count(t, "children WHERE b IN ('1', '2')"))
			if action == "async_nullify" {
				require.EqualValues(t, 10_990, b.count(t, "children WHERE a IS NULL AND b IS NULL"))
			}
		})
}

// A tombstone whose key does not fit the columns of the definition is kept with an error.
func TestTombstonesOfOtherKeysAreKept(t *testing.T) {
	t.Parallel()
	b := setupComposite(t, `
CREATE TABLE parents (a int, b text, c text UNIQUE, PRIMARY KEY (a, b));
CREATE TABLE children (id int, a int, b text);
INSERT INTO children VALUES (1, 1, 'x');`, byPair, "parents")
	b.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_text) VALUES
		('public.parents', '{1}'), ('public.parents', '{1,x,y}'), ('public.parents', 'x'), ('public.parents', '{1,NULL}'), ('public.parents', '{1,x}')`)
	b.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.parents', 1), ('public.parents', NULL)")
	require.EqualValues(t, 1, b.run(t).Processed)
	require.Zero(t, b.count(t, "children"))
	require.Equal(t, []string{"", "1", "x", "{1,NULL}", "{1,x,y}", "{1}"},
		b.ids(`SELECT coalesce(primary_key_value::text, primary_key_text, '') FROM loose_foreign_keys_deleted_records
			WHERE last_error LIKE '%key is not of the type of column a, b' ORDER BY coalesce(primary_key_value::text, primary_key_text, '') COLLATE "C"`))
}

func TestCompositeLateChild(t *testing.T) {
	t.Parallel()
	b := setupComposite(t, `
CREATE TABLE parents (a int, b text, PRIMARY KEY (a, b));
CREATE TABLE children (id int, a int, b text);
CREATE INDEX ON children (a, b);
INSERT INTO parents VALUES (1, 'x,y'), (1, 'x'), (2, '"'), (3, '');
INSERT INTO children VALUES (1, 1, 'x,y');`, byPair, "parents")
	older := b.beginSession(t)
	b.Exec("DELETE FROM parents WHERE b <> 'x'")
	require.EqualValues(t, 3, b.run(t).Processed)
	require.Equal(t, []string{`{1,"x,y"}`, `{2,"\""}`, `{3,""}`}, b.uncheckedKeys())
	b.Exec("INSERT INTO parents VALUES (3, '')")
	older.exec(`INSERT INTO children VALUES (2, 1, 'x,y'), (3, 2, '"'), (4, 1, 'x'), (5, 3, ''), (6, 1, NULL), (7, NULL, 'x,y'); COMMIT`)
	require.EqualValues(t, 2, b.runRechecks(t).LateChildren)
	require.Equal(t, []string{"4", "5", "6", "7"}, b.ids("SELECT id FROM children ORDER BY id"),
		"children of existing parents are kept")
}

// Children with composite keys in another database are deleted. A recheck also deletes a
// child that an older transaction inserts there.
func TestCompositeChildrenInAnotherDatabase(t *testing.T) {
	t.Parallel()
	b := setupComposite(t,
		"CREATE TABLE parents (a int, b text, PRIMARY KEY (a, b)); INSERT INTO parents VALUES (1, 'x'), (1, 'x,y'), (2, 'x'); CREATE TABLE own (a int, b text)",
		"own: [{table: parents, column: [a, b], on_delete: async_delete}]", "parents")
	ci := b.addDatabase(t, `CREATE TABLE builds (id int, a bigint, b varchar(9)); CREATE INDEX ON builds (b, a);
		INSERT INTO builds VALUES (1, 1, 'x'), (2, 1, 'x,y'), (3, 2, 'x'), (4, 1, NULL), (5, 1, 'x,y')`)
	bindBoth(t, b, ci, "builds: [{table: parents, column: [a, b], on_delete: async_delete}]")
	older := bundle{DB: ci}.beginSession(t)
	b.Exec("DELETE FROM parents WHERE a = 1")
	stats := b.runWithoutErrors(t)
	require.EqualValues(t, 2, stats.Processed)
	require.Equal(t, [][]string{{"3"}, {"4"}}, ci.Rows("SELECT id FROM builds ORDER BY id"))
	older.exec("INSERT INTO builds VALUES (6, 1, 'x,y'); COMMIT")
	require.EqualValues(t, 1, b.runRechecks(t).LateChildren)
	require.Equal(t, [][]string{{"3"}, {"4"}}, ci.Rows("SELECT id FROM builds ORDER BY id"))
}

func TestCompositeAuditFindsAndRepairs(t *testing.T) {
	t.Parallel()
	const orphans = `children AS c WHERE num_nulls(a, b) = 0 AND NOT EXISTS (SELECT FROM parents AS p WHERE p.a = c.a AND p.b = c.b)`
	for _, kind := range compositeKinds() {
		for _, layout := range compositeLayouts() {
			if !kind.tested(layout) {
				continue
			}
			t.Run(kind.name+", "+layout.name, func(t *testing.T) {
				t.Parallel()
				b := setupComposite(t, kind.tables("CASCADE", layout.children, layout.partitions), byPair, "parents")
				b.execUntracked("DELETE FROM parents WHERE number % 2 = 0")
				b.Exec("DELETE FROM parents WHERE number = 3")
				checked := b.count(t, "(SELECT DISTINCT a, b FROM children WHERE num_nulls(a, b) = 0) AS keys")
				// Parent 3 has a tombstone, so its key and its three rows are no orphans.
				missing := b.count(t, "(SELECT DISTINCT a, b FROM "+orphans+") AS keys") - 1
				rows := b.count(t, orphans) - 3
				for _, batch := range []int{1, 2, 7, 1000} {
					if batch < 7 && !pgtest.Long {
						continue // The repairs below use small batches too.
					}
					report := b.audit(t, b.auditor(batch, false))["children[0]"]
					require.Equal(t, "a, b", report.Column)
					require.Equal(t, checked, report.CheckedKeys, "batches of %d", batch)
					require.Equal(t, missing, report.OrphanedKeys, "batches of %d", batch)
					require.Equal(t, rows, report.OrphanedRows, "batches of %d", batch)
				}
				require.Equal(t, missing, b.audit(t, b.auditor(2, true))["children[0]"].RepairedKeys)
				require.Zero(t, b.audit(t, b.auditor(3, true))["children[0]"].OrphanedKeys,
					"a second repair changes nothing")
				require.Equal(t, missing+1, b.Pending(t))
				b.runToEnd(t)
				require.Zero(t, b.count(t, orphans))
				require.Positive(t, b.count(t, "children WHERE num_nulls(a, b) = 1"))
			})
		}
	}
}

// An audit finds each distinct key once, even if many children have the key or one column
// of it.
func TestCompositeAuditFindsDistinctKeys(t *testing.T) {
	t.Parallel()
	b := setupComposite(t, `
CREATE TABLE parents (a int, b int, PRIMARY KEY (a, b));
CREATE TABLE children (a int, b int);
INSERT INTO children SELECT n % 4, CASE WHEN n % 4 < 2 THEN n % 3 END FROM generate_series(1, 40000) AS n;
INSERT INTO children VALUES (9, 9), (NULL, 9), (NULL, NULL);
CREATE INDEX ON children (a, b);`, byPair, "parents")
	report := b.audit(t, b.auditor(3, false))["children[0]"]
	require.EqualValues(t, 7, report.CheckedKeys)
	require.Equal(t, []string{"{0,0}", "{0,1}", "{0,2}", "{1,0}", "{1,1}", "{1,2}", "{9,9}"}, report.Samples)
}
