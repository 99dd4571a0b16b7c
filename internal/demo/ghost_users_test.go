package demo

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// crowd are 20 people beside those who may not be deleted: an administrator, the ghost, a placeholder, and number 100,
// the only owner of a group.
const crowd = people + `
INSERT INTO users (id, username, email, name, user_type)
SELECT n, 'u' || n, 'u' || n, 'n', CASE WHEN n % 9 = 0 THEN 6 ELSE 0 END FROM generate_series(11, 29) AS n;
INSERT INTO users (id, username, email, name, user_type) VALUES (100, 'owner', 'o', 'o', 0), (200, 'placeholder', 'p', 'p', 15);
DELETE FROM users WHERE id = 2;
INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (100, 'Namespace', 1, 50);
INSERT INTO notes (id, project_id, noteable_type, noteable_id, author_id, note) SELECT n, 1, 'Issue', 1, n, 'note' FROM generate_series(11, 29) AS n;
`

func TestGhostUsersDeletesUsers(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(crowd)
	scene := &ghostUsers{stage: testStage(db)}
	scene.share = 100
	times := newStopwatch(db.Pool(), dbtest.Names(), scene.Script())
	a := pgtest.Must(newApplication(t.Context(), scene, times, Pace{Length: time.Millisecond}))(t)
	require.EqualValues(t, 20, a.planned)
	require.NoError(t, a.run(t.Context()))
	require.EqualValues(t, 19, a.acted.Load(), "the owner may not go, and then there is nobody left")
	require.Equal(t, []int64{100}, scene.refused)
	require.Equal(t, [][]string{{"19", "11", "29", "3", "1"}}, db.Rows(`
		SELECT count(*), min(user_id), max(user_id), count(*) FILTER (WHERE hard_delete), max(initiator_user_id) FROM users_ghost_user_migrations`),
		"every fifth goes with all that it wrote")
	require.Equal(t, [][]string{{"19"}}, db.Rows("SELECT count(*) FROM users WHERE state = 'blocked'"))
	require.Equal(t, [][]string{{"16"}}, db.Rows("SELECT count(*) FROM demo.contributions"), "what those deleted softly wrote")
	require.NoError(t, times.look(t.Context()))
	require.Equal(t, 19, times.pending(), "all wait")

	check := func(want ...int64) {
		t.Helper()
		found := pgtest.Must(scene.Check(t.Context()))(t)
		var counts []int64
		for _, f := range found {
			counts = append(counts, f.Count)
		}
		require.Equal(t, want, counts, "%v", found)
		require.True(t, found[0].Fault && found[4].Fault)
	}
	check(19, 16, 0, 0, 16)
	db.Exec(`
		DELETE FROM notes USING users_ghost_user_migrations AS job WHERE author_id = user_id AND hard_delete;
		UPDATE notes SET author_id = 3;
		DELETE FROM users USING users_ghost_user_migrations AS job WHERE users.id = user_id`)
	check(0, 16, 16, 0, 0)
	require.NoError(t, times.look(t.Context()))
	require.Zero(t, times.pending())
}

func TestGhostUsersPlansAShareOfTheUsers(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(crowd + `INSERT INTO users_ghost_user_migrations (user_id) VALUES (11), (12)`)
	scene := &ghostUsers{stage: testStage(db)}
	scene.share = 50
	planned := pgtest.Must(scene.Plan(t.Context()))(t)
	require.EqualValues(t, 9, planned, "but for those that an earlier demo has left in the queue")

	scene.share = 1
	acted, more, err := scene.Act(t.Context(), 4)
	require.NoError(t, err)
	require.True(t, more)
	require.LessOrEqual(t, len(acted), 4)
	for _, item := range acted {
		require.Equal(t, "users", item.Name)
		require.True(t, slices.Contains(scene.deleted, item.Number))
	}
}

func TestGhostUsersReportsWhatItCannotDo(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(crowd)
	scene := &ghostUsers{stage: testStage(db)}
	pgtest.Must(scene.Plan(t.Context()))(t)
	scene.last = scene.first // From the first one on.
	db.Exec("DROP TABLE reviews CASCADE")
	_, _, err := scene.Act(t.Context(), 20)
	require.ErrorContains(t, err, "delete user ")
	require.Empty(t, scene.deleted)
	require.Equal(t, [][]string{{"0"}}, db.Rows("SELECT count(*) FROM users_ghost_user_migrations"), "the transaction is undone as a whole")
	_, err = scene.Check(t.Context())
	require.ErrorContains(t, err, "count contributions in reviews: ")
}
