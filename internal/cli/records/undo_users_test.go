package records_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

// usersSite returns the reference application with the tables clubs and badges. Users
// belong to clubs, and badges belong to users. users is the value of undo.users.
func usersSite(t *testing.T, users bool) *clitest.Site {
	s := clitest.Prepared(t, exampleapp.Schema()+`
		INSERT INTO users (id, username, email, name) VALUES (1, 'ada', 'ada@example.com', 'Ada'), (2, 'ben', 'ben@example.com', 'Ben');
		CREATE TABLE clubs (id bigint PRIMARY KEY); INSERT INTO clubs VALUES (1);
		CREATE TABLE badges (id bigint PRIMARY KEY, user_id bigint); CREATE INDEX ON badges (user_id); INSERT INTO badges VALUES (1, 1), (2, 2);
		ALTER TABLE users ADD club_id bigint; CREATE INDEX ON users (club_id); UPDATE users SET club_id = 1 WHERE id = 2;`,
		"loose_foreign_keys: {enabled: false}\nghost_users: {enabled: true}\n")
	s.Configure(s.URL,
		fmt.Sprintf("loose_foreign_keys: {enabled: true, undo: {keep: 72h, users: %t}}\nghost_users: {enabled: true}\n",
			users))
	s.Write("loose_foreign_keys.yml", `badges: [{table: users, column: user_id, on_delete: async_delete}]
users: [{table: clubs, column: club_id, on_delete: async_delete}]
`)
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	return s
}

const people = "SELECT u.id::text, u.username::text, b.id::text FROM users AS u LEFT JOIN badges AS b ON b.user_id = u.id WHERE u.user_type <> 5 ORDER BY u.id"

// Rows of users, and rows deleted with users, are saved only if undo.users is set.
func TestKeepingRowsOfUsers(t *testing.T) {
	t.Parallel()
	for _, users := range []bool{false, true} {
		if !users && !pgtest.Long {
			continue
		}
		t.Run(fmt.Sprint(users), func(t *testing.T) {
			t.Parallel()
			s := usersSite(t, users)
			s.OK("user", "delete", "1")
			s.OK("job", "run", ghostKind)
			s.Exec("DELETE FROM users WHERE id = 2 AND " + fmt.Sprint(users) + "; DELETE FROM clubs")
			s.OK("job", "run", clitest.Kind)
			s.OK("job", "run", clitest.Kind)
			require.Empty(t, s.Rows(people))
			require.Empty(t, s.Rows("SELECT FROM badges"))
			if !users {
				require.Empty(t, s.Rows("SELECT FROM sexton.undo WHERE c::text ~ '(ada|ben)'"))
				require.Equal(t, [][]string{{"public.clubs", "1", "0"}, {"public.users", "0", "1"}}, s.Rows(`SELECT l.name, sum(u.rows)::text, sum(u.left_out)::text
					FROM sexton.undo AS u JOIN sexton.undo_layouts AS l ON l.id = u.layout GROUP BY 1 ORDER BY 1`), "the deletion of the club counts as incomplete")
				require.Contains(t, s.OK("undo", "list"), "incomplete")
				return
			}
			for _, unit := range s.JSON(0, "undo", "list").(map[string]any)["deletions"].([]any) {
				s.OK("undo", fmt.Sprintf("%.0f", unit.(map[string]any)["id"]))
			}
			require.Equal(t, [][]string{{"1", "ada", "1"}, {"2", "ben", "2"}}, s.Rows(people))
			s.OK("job", "run", clitest.Kind)
			s.OK("job", "run", ghostKind)
			require.Equal(t, [][]string{{"1", "ada", "1"}, {"2", "ben", "2"}}, s.Rows(people),
				"restored users are not deleted again")
		})
	}
}
