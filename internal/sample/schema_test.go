package sample

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
	sqlfiles "sexton/sql"
)

func TestEveryFileHasItsUse(t *testing.T) {
	t.Parallel()
	want := []string{"data/session.sql", "schema.sql", "loose_foreign_keys.yml"}
	for _, s := range newPlan(1_000) {
		want = append(want, "data/"+s.file+".sql")
	}
	var got []string
	require.NoError(t, fs.WalkDir(sqlfiles.Reference, "reference", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			got = append(got, strings.TrimPrefix(name, "reference/"))
			require.NotEmpty(t, file(got[len(got)-1]), name)
		}
		return err
	}))
	require.ElementsMatch(t, want, got)
}

func TestPlanFillsEveryTable(t *testing.T) {
	t.Parallel()
	var planned []string
	for _, s := range newPlan(1_000).tables() {
		planned = append(planned, s.table)
	}
	slices.Sort(planned)
	require.Equal(t, ordinaryTables(empty(t)), planned)
}

func TestSchemaLeavesSextonsTablesToSexton(t *testing.T) {
	t.Parallel()
	tables := ordinaryTables(empty(t))
	require.NotContains(t, tables, "loose_foreign_keys_deleted_records")
	require.NotContains(t, tables, "users_ghost_user_migrations")
}

func TestEveryForeignKeyIsIndexed(t *testing.T) {
	t.Parallel()
	require.Empty(t, empty(t).Rows(`
		SELECT conrelid::regclass, conname
		FROM pg_constraint AS key
		WHERE key.contype = 'f' AND NOT EXISTS (
			SELECT FROM pg_index AS index
			WHERE index.indrelid = key.conrelid AND index.indisvalid AND index.indpred IS NULL AND index.indkey[0] = key.conkey[1]
		)`), "keys whose first column leads no whole index")
}

func TestOneKeyStopsTheDeletionOfAUser(t *testing.T) {
	t.Parallel()
	require.Equal(t, [][]string{{"abuse_reports", "reporter_id"}}, empty(t).Rows(`
		SELECT key.conrelid::regclass, attribute.attname
		FROM pg_constraint AS key
		JOIN pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = key.conkey[1]
		WHERE key.contype = 'f' AND key.confrelid = 'users'::regclass AND key.confdeltype IN ('a', 'r')
`), "columns that stop a user's deletion")
	require.Empty(t, empty(t).Rows(`
		SELECT key.conrelid::regclass, attribute.attname
		FROM pg_constraint AS key
		JOIN pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = ANY (key.conkey)
		WHERE key.contype = 'f' AND key.confdeltype = 'n' AND attribute.attnotnull`), "columns that ON DELETE SET NULL cannot set")
}

func TestDefinitionsFitTheSchema(t *testing.T) {
	t.Parallel()
	d := empty(t)
	defs := loose(t)
	parents, problems, err := loosefk.Resolve(t.Context(), []loosefk.Site{{Name: "main", Schema: "public", DB: d.Pool()}}, defs)
	require.NoError(t, err)
	require.Empty(t, problems, "errors, warnings and information")
	bound := 0
	for _, parent := range parents["main"] {
		bound += len(parent.References)
	}
	require.Equal(t, len(defs), bound)
}

func TestDefinitionsShowEveryKindOfCleanUp(t *testing.T) {
	t.Parallel()
	actions, others := map[definitions.Action]int{}, map[string]int{}
	updates := map[string]map[definitions.Action]bool{}
	for _, d := range loose(t) {
		actions[d.OnDelete]++
		if updates[d.Child.String()] == nil {
			updates[d.Child.String()] = map[definitions.Action]bool{}
		}
		updates[d.Child.String()][d.OnDelete] = true
		if len(d.Conditions) > 0 {
			others["conditions"]++
		}
		if d.CleanerClass != "" {
			others["cleaner_class"]++
		}
		if d.DeleteLimit > 0 {
			others["delete_limit"]++
		}
	}
	require.Equal(t, map[definitions.Action]int{definitions.Delete: 24, definitions.Nullify: 5, definitions.UpdateColumn: 1}, actions)
	require.Equal(t, map[string]int{"conditions": 10, "cleaner_class": 2, "delete_limit": 1}, others)
	for child, of := range updates {
		// Updated rows are counted by table, so one table can be told only one of the two ways.
		require.False(t, of[definitions.Nullify] && of[definitions.UpdateColumn], "%s is both nullified and updated", child)
	}
}

func TestLooseColumnsHaveNoRealKey(t *testing.T) {
	t.Parallel()
	d := empty(t)
	for _, definition := range loose(t) {
		require.Zero(t, pgtest.Scalar[int64](t, d, `
			SELECT count(*)
			FROM pg_constraint AS key
			JOIN pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = ANY (key.conkey)
			WHERE key.contype = 'f' AND key.conrelid = $1::text::regclass AND attribute.attname = $2`,
			definition.Child.String(), definition.Columns[0]), "%s: %s.%s", definition.Key, definition.Child, definition.Columns[0])
	}
}
