package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

// Only rows of projects are saved by configuration. Rows of issues are saved if they are
// deleted with a project, and not if they are deleted directly.
func TestRowsBelowKeptTable(t *testing.T) {
	t.Parallel()
	c := setup(t, tree, treeDefinitions, "projects", "issues")
	cfg := triggers.Config{
		TrackedSchema: dbtest.Names().Tracked, Truncate: triggers.Reject, Undo: triggers.Undo{MaxRow: 1 << 20},
	}
	pgtest.Must(triggers.Install(t.Context(), pgtest.Acquire(t, c.Pool()).Conn(), cfg, []triggers.Parent{
		{Schema: "public", Table: "projects", KeyColumns: []string{"id"}, Undo: triggers.KeepsAll},
		{Schema: "public", Table: "issues", KeyColumns: []string{"id"}, Undo: triggers.KeepsBelow},
	}))(t)
	c.delete(t, "issues WHERE id = 4")
	require.Empty(t, pgtest.Must(c.engine.List(t.Context(), 10))(t), "nothing is kept of an issue")
	want := c.all(treeTables...)
	c.delete(t, "projects WHERE id = 3")
	require.NotEqual(t, want, c.all(treeTables...))
	require.Empty(t, c.restore(t, c.last(t).ID).Left)
	require.Equal(t, want, c.all(treeTables...))
}

// A DELETE on a parent also deletes rows of inheriting tables. These are not saved,
// because a restore would insert them into the parent. Batches and foreign keys delete
// only rows of the table itself.
func TestRowsOfInheritingTablesAreNotKept(t *testing.T) {
	t.Parallel()
	const heirs = "CREATE TABLE old_folders (shelf int) INHERITS (folders); CREATE TABLE old_files () INHERITS (files);" +
		"INSERT INTO folders VALUES (1, 'a'); INSERT INTO old_folders VALUES (2, 'b', 5);" +
		"INSERT INTO files VALUES (1, 1, NULL), (3, NULL, 1); INSERT INTO old_files VALUES (4, 1);"
	t.Run("parent", func(t *testing.T) {
		t.Parallel()
		b := setup(t, folders+heirs, foldersDefinitions, "folders")
		b.delete(t, "folders")
		unit := b.last(t)
		require.Equal(t, "incomplete", unit.State)
		require.EqualValues(t, 2, unit.Tables[0].LeftOut)
		require.Zero(t, b.restore(t, unit.ID).Restored)
		require.Empty(t, b.Rows("SELECT FROM folders"))
	})
	for name, c := range map[string]struct{ ddl, state string }{
		"batch and foreign key": {"DROP TABLE old_folders", "complete"},
		"trigger": {
			"DROP TABLE old_folders; CREATE FUNCTION below() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM public.files WHERE folder_id = OLD.id; RETURN NULL; END';" +
				"CREATE TRIGGER below AFTER DELETE ON folders FOR EACH ROW EXECUTE FUNCTION below()", "incomplete",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, folders+heirs+c.ddl, foldersDefinitions, "folders")
			b.installCascadeTriggers(t)
			before := b.all("folders", "ONLY files")
			b.delete(t, "folders")
			require.Equal(t, c.state, b.last(t).State)
			require.Empty(t, b.Rows("SELECT FROM ONLY files"))
			b.restore(t, b.last(t).ID)
			if c.state == "complete" {
				require.Equal(t, before, b.all("folders", "ONLY files"))
			} else {
				require.Empty(t, b.Rows("SELECT FROM ONLY files"))
			}
		})
	}
}
