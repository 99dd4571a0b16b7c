package loosefk_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

func TestKeyTypes(t *testing.T) {
	t.Parallel()
	type example struct{ parent, child, key string }
	kinds := map[string]example{
		"smallint": {"smallint", "bigint", "7"},
		"integer":  {"int", "smallint", "7"},
		"bigint":   {"bigint", "int", "9000000000"},
		"uuid":     {"uuid", "uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"},
		"text":     {"text", "varchar(20)", "'it''s \"x\"'"},
		"char":     {"char(5)", "char(5)", "'ab'"},
		"date":     {"date", "date", "'2024-02-29'"},
		"domain":   {"positive", "int", "7"},
		"domains":  {"more", "more", "7"},
	}
	var tables, rows, yaml strings.Builder
	tables.WriteString("CREATE DOMAIN positive AS bigint CHECK (value > 0); CREATE DOMAIN more AS positive;\n")
	var parents []string
	for name, test := range kinds {
		parents = append(parents, name+"_parents")
		fmt.Fprintf(&tables, `
			CREATE TABLE %[1]s_parents (id %[2]s PRIMARY KEY);
			CREATE TABLE %[1]s_children (id bigint PRIMARY KEY, parent_id %[3]s);
			INSERT INTO %[1]s_parents VALUES (%[4]s);
			INSERT INTO %[1]s_children VALUES (2, NULL);`, name, test.parent, test.child, test.key)
		// The bigint key is too large for the type of the child's column. The run must
		// not fail.
		if name != "bigint" {
			fmt.Fprintf(&tables, "INSERT INTO %[1]s_children SELECT 1, id FROM %[1]s_parents;", name)
		}
		fmt.Fprintf(&yaml, "%[1]s_children: [{table: %[1]s_parents, column: parent_id, on_delete: async_delete}]\n",
			name)
		fmt.Fprintf(&rows, "DELETE FROM %s_parents;", name)
	}
	b := setup(t, tables.String(), yaml.String(), parents...)
	b.Exec(rows.String())
	b.runToEnd(t)
	for name := range kinds {
		require.Equal(t, []string{"2"}, b.ids("SELECT id FROM "+name+"_children"), name)
	}
}

// The trigger records the name of the parent that the engine expects, even if the
// database prints all identifiers in quotes and has another search path.
func TestUnusualSettingsOfTheDatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec("ALTER DATABASE " + db.Name + " SET quote_all_identifiers = on")
	db.Exec("ALTER DATABASE " + db.Name + " SET search_path = 'nowhere'")
	db.Pool().Reset()
	db.Exec("SET search_path = public;" + strings.ReplaceAll(parentsAndChildren, "TABLE ", "TABLE public.") +
		"RESET search_path")
	b := setupOn(t, db, deleteChildren, "parents")
	b.Exec("DELETE FROM public.parents WHERE id = 1")
	require.EqualValues(t, 1, b.run(t).Processed)
}

// A run that is stopped before its first batch records no attempt. The next run processes
// the due tombstones, also one that an operator has put first, and keeps the deferred
// one.
func TestDeferredTombstonesAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec(`DELETE FROM parents WHERE id <= 3;
		UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + interval '1 hour' WHERE primary_key_value = 2;
		UPDATE loose_foreign_keys_deleted_records SET consume_after = '-infinity' WHERE primary_key_value = 3`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stats := pgtest.Must(b.engine.Run(ctx))(t)
	require.Equal(t, []bool{false, true}, []bool{stats.OverLimit, stats.Interrupted})
	require.Zero(t, stats.DeleteCount)
	require.Equal(t, [][]string{{"1", "0", "f", ""}, {"2", "0", "t", ""}, {"3", "0", "f", ""}}, b.tombstones())

	require.EqualValues(t, 2, b.runWithoutErrors(t).Processed)
	require.EqualValues(t, 10, b.count(t, "children WHERE parent_id = 2"))
	require.Equal(t, [][]string{{"2", "0", "t", ""}}, b.tombstones())
}

// Only a parent that is too large for one run gets attempts. Small parents in the same
// statement or after it are processed.
func TestOverLimitCountsAttemptsOfTheLargeParentOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren+addChildren(40_000), deleteChildren, "parents")
	b.engine.Limits.Deletes = 10_000
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.Exec("DELETE FROM parents WHERE id > 1")
	for run, want := range [][]string{{"1", "1", "f"}, {"1", "2", "f"}, {"1", "0", "t"}} {
		require.True(t, b.run(t).OverLimit, "run %d", run)
		left := b.tombstones()
		require.Len(t, left, 1, "the small parents are processed")
		require.Zero(t, b.count(t, "children WHERE parent_id > 1"))
		require.Equal(t, want, left[0][:3], "run %d: key, attempts, deferred", run)
		require.Equal(t, "not finished within the limit of one run (10000 deletes)", left[0][3])
	}
}

func TestThousandsOfTombstonesInOneRun(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec("INSERT INTO parents SELECT generate_series(11, 3000)")
	b.Exec("INSERT INTO children SELECT 1000 + n, n % 3000 FROM generate_series(1, 9000) AS n")
	b.Exec("DELETE FROM parents")
	require.EqualValues(t, 3000, b.runToEnd(t).Processed)
	require.EqualValues(t, 3, b.count(t, "children"), "children whose parent was not deleted")
}

// MERGE writes tombstones for the parents that it deletes, also for children that are
// parents themselves.
func TestMerge(t *testing.T) {
	t.Parallel()
	pgtest.RequireVersion(t, 15)
	b := setup(t, `
CREATE TABLE parents (id bigint PRIMARY KEY, n bigint);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint) PARTITION BY RANGE (id);
CREATE TABLE children_1 PARTITION OF children FOR VALUES FROM (1) TO (20);
CREATE TABLE children_2 PARTITION OF children FOR VALUES FROM (20) TO (100);
CREATE TABLE leaves (id bigint PRIMARY KEY, child_id bigint);
CREATE INDEX ON children (parent_id); CREATE INDEX ON leaves (child_id);
INSERT INTO parents SELECT generate_series(1, 4), 0;
INSERT INTO children SELECT n, n / 10 FROM generate_series(10, 49) AS n;
INSERT INTO leaves SELECT n, n FROM generate_series(10, 49) AS n;`, `
children: [{table: parents, column: parent_id, on_delete: async_delete}]
leaves: [{table: children, column: child_id, on_delete: async_delete}]`, "parents", "children")
	returning := ""
	if pgtest.Version(t) >= 17 {
		returning = " RETURNING merge_action()"
	}
	b.Exec(`MERGE INTO parents AS p USING (VALUES (1, 'delete'), (2, 'update'), (3, 'delete'), (5, 'insert')) AS by (id, what) ON p.id = by.id
		WHEN MATCHED AND what = 'delete' THEN DELETE WHEN MATCHED THEN UPDATE SET n = 1 WHEN NOT MATCHED THEN INSERT VALUES (by.id, 0)` + returning)
	b.Exec(`MERGE INTO children AS c USING parents AS p ON p.id = c.parent_id WHEN MATCHED AND p.id = 4 AND c.id < 45 THEN DELETE` + returning)
	require.Equal(t, int64(7), b.Pending(t))
	b.run(t)
	// The children that the first run deleted are parents too.
	b.run(t)
	require.Zero(t, b.Pending(t))
	for _, table := range []string{"children", "leaves"} {
		require.Equal(t, [][]string{{"15", "20", "49"}}, b.Rows("SELECT count(*), min(id), max(id) FROM "+table))
	}
}

// Children are deleted by a virtual column, although it cannot have an index. A virtual
// column cannot be the parent's key, since triggers see NULL, and cannot be set to NULL.
func TestVirtualColumns(t *testing.T) {
	t.Parallel()
	pgtest.RequireVersion(t, 18)
	b := setup(t, `
CREATE TABLE parents (id bigint PRIMARY KEY, twice bigint GENERATED ALWAYS AS (id * 2) VIRTUAL);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint GENERATED ALWAYS AS (id / 10) VIRTUAL);
INSERT INTO parents SELECT generate_series(1, 3);
INSERT INTO children SELECT generate_series(10, 39);`, deleteChildren, "parents")
	b.Exec("DELETE FROM parents WHERE id = 2")
	b.runToEnd(t)
	require.Equal(t, [][]string{{"1", "10"}, {"3", "10"}},
		b.Rows("SELECT parent_id, count(*) FROM children GROUP BY 1 ORDER BY 1"))

	_, problems := resolve(t, b.Pool(),
		"children: [{table: parents, column: parent_id, parent_column: twice, on_delete: async_delete}]")
	found := problems.Only(problem.Error)
	require.Len(t, found, 1)
	require.Contains(t, found[0].String(), "column twice of parent parents is not unique")
	_, problems = resolve(t, b.Pool(), dbtest.Definitions("async_nullify", "children"))
	require.Contains(t, problems.Only(problem.Error)[0].String(),
		"children.parent_id is a generated column and cannot be set")
}

// A parent's key can have a range column with WITHOUT OVERLAPS. Only the children with
// exactly the same range are deleted.
func TestPeriodsAsKeys(t *testing.T) {
	t.Parallel()
	pgtest.RequireVersion(t, 18)
	b := setupComposite(t, `
CREATE TABLE parents (a int4range, b daterange, PRIMARY KEY (a, b WITHOUT OVERLAPS));
CREATE TABLE children (id bigint PRIMARY KEY, a int4range, b daterange);
CREATE INDEX ON children (a, b);
INSERT INTO parents SELECT int4range(1, 2), daterange(make_date(n, 1, 1), make_date(n + 1, 1, 1)) FROM generate_series(2020, 2023) AS n;
INSERT INTO children SELECT 1000 + lower(b) - '2020-01-01'::date, a, b FROM parents;
INSERT INTO children VALUES (1, '[1,1]', '[2021-03-01,2021-04-01)');`,
		byPair, "parents")
	b.Exec("DELETE FROM parents WHERE b @> '2021-06-01'::date")
	b.runToEnd(t)
	require.Equal(t, []string{"1", "1000", "1731", "2096"}, b.ids("SELECT id FROM children ORDER BY id"))
}

func TestFingerprintChangesWithTableDefinitions(t *testing.T) {
	t.Parallel()
	b := setup(t, `
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (id bigint, parent_id bigint) PARTITION BY LIST (id);
		CREATE TABLE children_1 PARTITION OF children FOR VALUES IN (1);`, deleteChildren, "parents")
	first := b.fingerprint(t)
	b.Exec("INSERT INTO parents VALUES (1); INSERT INTO children VALUES (1, 1); ANALYZE parents, children_1")
	require.Equal(t, first, b.fingerprint(t), "data and statistics change nothing")
	for _, change := range []string{
		"CREATE TABLE children_2 PARTITION OF children FOR VALUES IN (2)",
		"ALTER TABLE children DETACH PARTITION children_2",
		"CREATE INDEX ours ON children (parent_id)",
		"DROP INDEX ours",
		"ALTER TABLE children ADD COLUMN note text",
		"ALTER TABLE parents RENAME id TO key",
		"ALTER TABLE parents RENAME TO elders",
		"DROP TABLE children_1",
	} {
		before := b.fingerprint(t)
		b.Exec(change)
		require.NotEqual(t, before, b.fingerprint(t), change)
	}
}

// If the fingerprint of the tables has changed, the run ends with ErrChanged and changes
// nothing.
func TestRunEndsIfTablesHaveChanged(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.Family(1, dbtest.Children{Each: 1}), deleteChildren, "parents")
	b.engine.Fingerprint = b.fingerprint(t)
	b.Exec("DELETE FROM parents; ALTER TABLE children ADD note text")
	_, err := b.engine.Run(t.Context())
	require.ErrorIs(t, err, loosefk.ErrChanged)
	require.EqualValues(t, 1, b.count(t, "children"))

	b.engine.Fingerprint = b.fingerprint(t)
	pgtest.Must(b.engine.Run(t.Context()))(t)
	require.Zero(t, b.count(t, "children"))
}

// A run applies all actions and options of definitions, and counts them in its
// statistics.
func TestActions(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		b := setup(t, `
		CREATE TABLE parents (id bigint PRIMARY KEY, parent_id bigint);
		CREATE TABLE deleted (id bigint PRIMARY KEY, parent_id int, second_id bigint);
		CREATE TABLE grandchildren (id bigint PRIMARY KEY, deleted_id bigint);
		CREATE TABLE nullified (id bigint PRIMARY KEY, parent_id bigint);
		CREATE TABLE updated (id bigint PRIMARY KEY, parent_id bigint, state text);
		CREATE TABLE conditional (id bigint PRIMARY KEY, parent_id bigint, kind text);
		CREATE TABLE few (id bigint PRIMARY KEY, parent_id bigint);
		CREATE TABLE artifacts (id bigint, part int, parent_id bigint, PRIMARY KEY (id, part));
		CREATE TABLE parted (id bigint, parent_id bigint) PARTITION BY RANGE (id);
		CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (50);
		CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (50) TO (100) PARTITION BY RANGE (id);
		CREATE TABLE parted_2a PARTITION OF parted_2 FOR VALUES FROM (50) TO (100);
		CREATE INDEX ON parents (parent_id);
		CREATE INDEX ON deleted (parent_id); CREATE INDEX ON deleted (second_id); CREATE INDEX ON grandchildren (deleted_id);
		CREATE INDEX ON nullified (parent_id); CREATE INDEX ON updated (parent_id); CREATE INDEX ON conditional (parent_id);
		CREATE INDEX ON few (parent_id); CREATE INDEX ON artifacts (parent_id); CREATE INDEX ON parted (parent_id);
		INSERT INTO parents VALUES (1, NULL), (2, NULL), (3, 1), (4, 3), (5, 2);
		INSERT INTO deleted VALUES (1, 1, 2), (2, 2, 2), (3, NULL, NULL), (4, 2, 1), (5, 4, 2);
		INSERT INTO grandchildren VALUES (1, 1), (2, 2), (3, 5), (4, 5);
		INSERT INTO nullified VALUES (1, 1), (2, 2), (3, NULL), (4, 1);
		INSERT INTO updated VALUES (1, 1, 'new'), (2, 2, 'new'), (3, 1, 'gone'), (4, 1, NULL);
		INSERT INTO conditional VALUES (1, 1, 'A'), (2, 1, 'B'), (3, 2, 'A');
		INSERT INTO few SELECT n, 1 + n % 2 FROM generate_series(1, 20) AS n;
		INSERT INTO artifacts SELECT n, 7, n % 2 + 1 FROM generate_series(1, 6) AS n;
		INSERT INTO parted SELECT n, n % 2 + 1 FROM generate_series(0, 99) AS n;
		CREATE TABLE statements (affected bigint);`+dbtest.OnStatement("DELETE", "few", "INSERT INTO public.statements SELECT count(*) FROM gone;"), `
parents: [{table: parents, column: parent_id, on_delete: async_delete}]
deleted:
  - {table: parents, column: parent_id, on_delete: async_delete}
  - {table: parents, column: second_id, on_delete: async_delete}
grandchildren: [{table: deleted, column: deleted_id, on_delete: async_delete}]
nullified: [{table: parents, column: parent_id, on_delete: async_nullify}]
updated: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: gone}]
conditional: [{table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: kind, value: A}]}]
few: [{table: parents, column: parent_id, on_delete: async_delete, delete_limit: 3}]
artifacts: [{table: parents, column: parent_id, on_delete: async_delete, delete_limit: 2, cleaner_class: "Ci::JobArtifacts::LooseForeignKeyCleanerService"}]
parted: [{table: parents, column: parent_id, on_delete: async_delete}]
`, "parents", "deleted").withPace(pace)
		b.Exec(forbidAttempts)
		b.Exec("DELETE FROM parents WHERE id = 1")
		b.Exec("ALTER TABLE loose_foreign_keys_deleted_records DISABLE TRIGGER forbidAttempts; " +
			"UPDATE loose_foreign_keys_deleted_records SET created_at = now() - interval '50 minutes'; " +
			"ALTER TABLE loose_foreign_keys_deleted_records ENABLE TRIGGER forbidAttempts")

		stats := b.run(t)
		require.EqualValues(t, 1, stats.Latency["3600"], "%v", stats.Latency)
		stats.Latency = nil
		require.Equal(t, &loosefk.Stats{
			Connection: "main", Pace: pace, DeleteCount: 2 + 3 + 3 + 1 + 10 + 3 + 50, UpdateCount: 4,
			Processed: 3 + 3, Confirmed: 6, Errors: []batch.FaultCounts{},
			DeleteCountByTable: map[string]int64{
				"parents": 2, "deleted": 3, "grandchildren": 3, "conditional": 1,
				"few": 10, "artifacts": 3, "parted": 50,
			},
			UpdateCountByTable: map[string]int64{"nullified": 2, "updated": 2},
			ByParent:           map[string]loosefk.ParentCounts{"parents": {Processed: 3}, "deleted": {Processed: 3}},
		}, stats)
		require.Zero(t, b.Pending(t))
		for sql, want := range map[string][]string{
			"SELECT id FROM parents ORDER BY id":          {"2", "5"},
			"SELECT id FROM deleted ORDER BY id":          {"2", "3"},
			"SELECT id FROM grandchildren ORDER BY id":    {"2"},
			"SELECT parent_id FROM nullified ORDER BY id": {"NULL", "2", "NULL", "NULL"},
			"SELECT state FROM updated ORDER BY id":       {"gone", "new", "gone", "gone"},
			"SELECT id FROM conditional ORDER BY id":      {"2", "3"},
			"SELECT DISTINCT parent_id FROM few":          {"2"},
			"SELECT id FROM artifacts ORDER BY id":        {"1", "3", "5"},
			"SELECT DISTINCT parent_id FROM parted":       {"2"},
			"SELECT max(affected) FROM statements":        {"3"},
			// Each of the two batches of artifacts writes an event.
			"SELECT count(*) FROM sexton.events": {"2"},
			`SELECT kind || ' ' || (payload ->> 'table') || ' ' || (key ->> 'id') || ' ' || (key ->> 'part')
		 FROM sexton.events, jsonb_array_elements(payload -> 'keys') AS key ORDER BY 1`: {
				"files_orphaned artifacts 2 7", "files_orphaned artifacts 4 7", "files_orphaned artifacts 6 7",
			},
		} {
			require.Equal(t, want, b.ids(sql), sql)
		}
		require.EqualValues(t, 50, b.count(t, "parted"))

		require.False(t, b.run(t).Changed(), "the second run changes nothing")
	})
}
