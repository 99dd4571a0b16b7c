package demo

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

// A project is deleted, and asked back once all below it is gone and the time is over; what is missing then is a fault.
func TestUndoScene(t *testing.T) {
	t.Parallel()
	db := dbtest.Keeping(t, exampleapp.Schema(), "projects")
	var asked []int64
	back := func(_ context.Context, deletion int64) (int64, error) {
		asked = append(asked, deletion)
		return 1, nil
	}
	u := newUndone(testStage(db), Site{Rows: 2_000_000, Undo: back})
	require.Equal(t, 10*time.Second, u.wait)
	require.EqualValues(t, 2, pgtest.Must(u.Plan(t.Context()))(t))
	require.EqualValues(t, 5001, u.rows)
	require.Equal(t, [][]string{{"0"}}, db.Rows("SELECT count(*) FROM ("+dbtest.Names().Render(u.Script().Waiting)+") AS waiting"))
	step := func(acted int, more bool) {
		t.Helper()
		items, goesOn := pgtest.Must2(u.Act(t.Context(), 1))(t)
		require.Len(t, items, acted)
		require.Equal(t, more, goesOn)
	}
	said := func() string {
		var s SceneState
		u.Tell(&s)
		return s.Activity
	}
	require.Equal(t, "sleeps until a wrong delete comes", said())
	step(1, true)
	require.Equal(t, [][]string{{"1"}}, db.Rows("SELECT count(*) FROM ("+dbtest.Names().Render(u.Script().Waiting)+") AS waiting"))
	require.Equal(t, "a project is gone by mistake, with 5,000 rows below it", said())
	u.wait = 0
	step(0, true)
	db.Exec("DELETE FROM ci_pipelines; DELETE FROM p_ci_builds; DELETE FROM uploads")
	u.wait = time.Hour
	step(0, true)
	require.Empty(t, asked, "neither before all is gone nor at once")
	u.wait = 0
	step(1, false)
	require.Equal(t, [][]string{{"t"}}, db.Rows("SELECT origin = $1 FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public.projects'", asked[0]))
	require.Equal(t, []Finding{
		{Name: "restored", Text: "rows came back after wrong deletes", Count: 1},
		{Name: "lost", Text: "rows of the project are missing", Count: 5001, Fault: true},
		{Name: "changed", Text: "projects came back with other contents", Count: 1, Fault: true},
	}, pgtest.Must(u.Check(t.Context()))(t))
	step(0, false)
}
