package integration

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/ghostuser"
)

// testGhostUsers deletes users one after the other while two workers and passes in the foreground are at it, of which one
// worker is killed in the middle, and while the users go on writing.
func testGhostUsers(t *testing.T, p program) {
	t.Helper()
	s := newGhostSite(t, p, "")
	first, second := s.started(t), s.started(t)
	soft, hard := []int64{1, 3, 5, 6, 7, 9, 10}, []int64{2, 4, 8}
	for user := range int64(10) {
		user++
		s.leave(t, user == 2 || user == 4 || user == 8, user)
		for _, busy := range soft {
			if busy <= user {
				s.write(t, busy, 2)
			}
		}
		if user == 5 {
			s.wait(t, time.Minute, "the first rows to be moved", "EXISTS (SELECT FROM changes WHERE point = 'move')")
			s.bury(t, first)
		}
		outcome := parseReport(t, p.run(t, s.dir, s.url, 0, "job", "run", ghostKind, "--json")).Outcome
		require.Contains(t, []string{"done", "skipped"}, outcome, "a pass in the foreground beside two workers")
	}
	s.wait(t, time.Minute, "all users to be gone", noUsersLeft)
	s.sleeps(t)
	s.wait(t, time.Minute, "the dead worker to be buried", "(SELECT count(*) FROM sexton.clients) = 1")
	second.stop(t)
	s.settled(t, soft, hard)
}

// testGhostBackOff has a user who cannot be deleted. It is not tried before its time, however often the worker is woken, and
// others do not wait for it.
func testGhostBackOff(t *testing.T, p program) {
	t.Helper()
	s := newGhostSite(t, p, "")
	s.exec(t, refusal)
	w := s.started(t)
	s.leave(t, false, 1)
	const putOff = `EXISTS (SELECT FROM users_ghost_user_migrations WHERE user_id = 1 AND attempts = 1
		AND consume_after > now() + '25 min'::interval AND last_error = 'issues: SQLSTATE P0001: not this one')`
	s.wait(t, time.Minute, "the user to be put off", putOff)
	for user := range int64(3) {
		s.leave(t, user == 1, user+2)
		s.exec(t, "SELECT pg_notify('sexton_wake', $1)", ghostKind)
		s.wait(t, time.Minute, "the next one to be gone", fmt.Sprintf("NOT EXISTS (SELECT FROM users WHERE id = %d)", user+2))
	}
	s.sleeps(t)
	require.Equal(t, "done", parseReport(t, p.run(t, s.dir, s.url, 0, "job", "run", ghostKind, "--json")).Outcome)
	require.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM users_ghost_user_migrations WHERE "+putOff), "one attempt, and the time that was set then")
	require.Equal(t, 1, w.lines(`"msg":"user_failed"`, `"user_id":1,`, `"table":"issues"`, `"sqlstate":"P0001"`, `"error":"not this one"`, `"stack":"PL/pgSQL function`))
	require.Equal(t, 1, w.lines(`"msg":"user_failed"`))

	// Once its time has come it is tried again, and what was done before counts.
	s.exec(t, "DROP TRIGGER refuse ON issues")
	s.exec(t, "UPDATE users_ghost_user_migrations SET consume_after = clock_timestamp()")
	s.exec(t, "SELECT pg_notify('sexton_wake', $1)", ghostKind)
	s.wait(t, time.Minute, "it to be gone at last", noUsersLeft)
	s.sleeps(t)
	w.stop(t)
	s.settled(t, []int64{1, 2, 4}, []int64{3})
}

// testGhostStatus looks at `sexton status` while a user's deletion stands in the middle.
func testGhostStatus(t *testing.T, p program) {
	t.Helper()
	s := newGhostSite(t, p, "")
	// More than one turn has batches for: then what remains is estimated.
	s.exec(t, `INSERT INTO notes (id, noteable_type, noteable_id, author_id, note) SELECT 20000 + n, 'Issue', 1, 1, 'note' FROM generate_series(1, 200) AS n`)
	s.exec(t, "INSERT INTO expected.notes SELECT * FROM notes WHERE id > 20000")
	_, release := s.shut(t, "delete")
	s.leave(t, false, 1)
	w := s.started(t)
	s.wait(t, time.Minute, "the worker to stop in a deletion", atGate)

	var status struct {
		Tables []struct {
			Table   string              `json:"table"`
			Pending int64               `json:"pending"`
			Users   []ghostuser.Waiting `json:"users"`
		} `json:"deletion_tables"`
	}
	require.NoError(t, json.Unmarshal([]byte(p.run(t, s.dir, s.url, 0, "status", "--json")), &status))
	human := p.run(t, s.dir, s.url, 0, "status")
	release()
	require.Len(t, status.Tables, 1)
	require.EqualValues(t, 1, status.Tables[0].Pending)
	require.Len(t, status.Tables[0].Users, 1)
	user := status.Tables[0].Users[0]
	require.EqualValues(t, 1, user.UserID)
	require.Positive(t, user.Moved)
	require.NotNil(t, user.Remaining)
	require.Positive(t, *user.Remaining)
	require.Regexp(t, `USER +MOVED +DELETED +NULLIFIED +REMAINING +CHILDREN FIRST +ATTEMPTS +NOT BEFORE +ERROR`, human)
	require.Regexp(t, fmt.Sprintf(`(?m)^1 +%d +%d +%d +%d +- +0 +- +-$`, user.Moved, user.Deleted, user.Nullified, *user.Remaining), human)
	s.wait(t, time.Minute, "the user to be gone", noUsersLeft)
	s.sleeps(t)
	w.stop(t)
	s.settled(t, []int64{1}, nil)
}
