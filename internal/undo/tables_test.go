package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

// The configuration names projects alone. What goes with them is kept through all levels, and what goes by itself is not.
func TestRowsBelowATableThatIsKept(t *testing.T) {
	t.Parallel()
	c := setup(t, tree, treeDefinitions, "projects", "issues")
	cfg := triggers.Config{
		JobsSchema: dbtest.Names().Jobs, TrackedSchema: dbtest.Names().Tracked, Truncate: triggers.Reject, Undo: triggers.Undo{MaxRow: 1 << 20},
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
