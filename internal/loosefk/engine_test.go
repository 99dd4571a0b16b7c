package loosefk_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
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
		if name != "bigint" { // its key does not fit into the child's column, which must be no error
			fmt.Fprintf(&tables, "INSERT INTO %[1]s_children SELECT 1, id FROM %[1]s_parents;", name)
		}
		fmt.Fprintf(&yaml, "%[1]s_children: [{table: %[1]s_parents, column: parent_id, on_delete: async_delete}]\n", name)
		fmt.Fprintf(&rows, "DELETE FROM %s_parents;", name)
	}
	b := setup(t, tables.String(), yaml.String(), parents...)
	b.Exec(rows.String())
	b.drained(t)
	for name := range kinds {
		require.Equal(t, []string{"2"}, b.ids("SELECT id FROM "+name+"_children"), name)
	}
}

// A database may print all identifiers in quotes; the trigger's and the engine's names must still agree.
func TestUnusualSettingsOfTheDatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec("ALTER DATABASE " + db.Name + " SET quote_all_identifiers = on")
	db.Exec("ALTER DATABASE " + db.Name + " SET search_path = 'nowhere'")
	db.Pool().Reset()
	db.Exec("SET search_path = public;" + strings.ReplaceAll(parentsAndChildren, "TABLE ", "TABLE public.") + "RESET search_path")
	b := onto(t, db, deleteChildren, "parents")
	b.Exec("DELETE FROM public.parents WHERE id = 1")
	require.EqualValues(t, 1, b.run(t).Processed)
}

// One is put off, and one was put first by hand. Being stopped before the first batch is nobody's fault.
func TestTombstonesThatAreNotDueStay(t *testing.T) {
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

	require.EqualValues(t, 2, b.runSound(t).Processed)
	require.EqualValues(t, 10, b.count(t, "children WHERE parent_id = 2"))
	require.Equal(t, [][]string{{"2", "0", "t", ""}}, b.tombstones())
}

// A parent that is too big for one run counts attempts; the small ones that shared a statement with it, or stand behind it, do not, and go.
func TestOverLimitBlamesTheBigParentAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren+heavy(40_000), deleteChildren, "parents")
	b.engine.Limits.Deletes = 10_000
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.Exec("DELETE FROM parents WHERE id > 1")
	for run, want := range [][]string{{"1", "1", "f"}, {"1", "2", "f"}, {"1", "0", "t"}} {
		require.True(t, b.run(t).OverLimit, "run %d", run)
		left := b.tombstones()
		require.Len(t, left, 1, "the small ones are done")
		require.Zero(t, b.count(t, "children WHERE parent_id > 1"))
		require.Equal(t, want, left[0][:3], "run %d: key, attempts, put off", run)
		require.Equal(t, "not finished within the limit of one run (10000 deletes)", left[0][3])
	}
}

func TestThousandsOfTombstonesInOneRun(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec("INSERT INTO parents SELECT generate_series(11, 3000)")
	b.Exec("INSERT INTO children SELECT 1000 + n, n % 3000 FROM generate_series(1, 9000) AS n")
	b.Exec("DELETE FROM parents")
	require.EqualValues(t, 3000, b.drained(t).Processed)
	require.EqualValues(t, 3, b.count(t, "children"), "children of no deleted parent")
}
