package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
)

// imported are four placeholders of a group, of whom the first has written a note.
const imported = people + `
INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o') ON CONFLICT DO NOTHING;
INSERT INTO users (id, username, email, name, user_type) SELECT n, 'p' || n, 'p' || n, 'n', 15 FROM generate_series(301, 304) AS n;
INSERT INTO notes (id, project_id, noteable_type, noteable_id, author_id, note) VALUES (9, 1, 'Issue', 1, 301, 'imported');
INSERT INTO import_placeholder_user_details (id, placeholder_user_id, namespace_id, organization_id) SELECT n, n, 1, 1 FROM generate_series(301, 304) AS n;
`

func TestPlaceholderUsersAreLeft(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(imported)
	scene := &placeholderUsers{stage: testStage(db)}
	times := newStopwatch(db.Pool(), dbtest.Names(), scene.Script())
	a, err := newApplication(t.Context(), scene, times, Pace{Length: time.Millisecond})
	require.NoError(t, err)
	require.EqualValues(t, 4, a.planned)
	require.NoError(t, a.run(t.Context()))
	require.EqualValues(t, 4, a.acted.Load())
	require.Empty(t, db.Rows("SELECT FROM import_placeholder_user_details WHERE namespace_id IS NOT NULL"))
	require.NoError(t, times.look(t.Context()))
	require.Equal(t, 4, times.pending(), "all wait")

	check := func(want ...int64) {
		t.Helper()
		found, err := scene.Check(t.Context())
		require.NoError(t, err)
		var counts []int64
		for _, f := range found {
			counts = append(counts, f.Count)
		}
		require.Equal(t, want, counts, "%v", found)
		require.True(t, found[2].Fault && found[3].Fault)
	}
	check(0, 0, 4, 0)
	db.Exec("SELECT sexton.delete_user(302, 302); UPDATE import_placeholder_user_details SET last_error = 'kept' WHERE id = 301")
	require.NoError(t, times.look(t.Context()))
	require.Equal(t, 2, times.pending(), "those that nobody has decided about")
	db.Exec("DELETE FROM users WHERE id IN (302, 303, 304)")
	check(3, 1, 0, 0)
	db.Exec("UPDATE notes SET author_id = 1 WHERE id = 9")
	check(3, 1, 0, 1)
}
