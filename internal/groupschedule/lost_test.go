package groupschedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// cascades has the schedules go with their user, as GitLab's tables do.
const cascades = `ALTER TABLE group_deletion_schedules ADD FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE`

func TestAScheduleThatGoesWithItsUser(t *testing.T) {
	t.Parallel()
	const ada = "DELETE FROM members WHERE user_id = 2; "
	restored := [][]string{{"group_restored", "11", "", "user_missing"}}
	for name, c := range map[string]struct {
		// delete deletes ada (2), who has scheduled group 11.
		delete string
		marked [][]string
		events [][]string
	}{
		"plain": {ada + "DELETE FROM users WHERE id = 2", [][]string{}, restored},
		"queued, with an initiator who may remove the group": {
			ada + "SELECT sexton.delete_user(2, 1); DELETE FROM group_deletion_schedules WHERE user_id = 2; DELETE FROM users WHERE id = 2",
			[][]string{{"11", "child-deletion_scheduled-11", "5", "1"}},
			[][]string{{"group_deletion_handed_over", "11", "1", ""}},
		},
		"queued, with an initiator who may not": {
			ada + "SELECT sexton.delete_user(2, 3); DELETE FROM group_deletion_schedules WHERE user_id = 2", [][]string{}, restored,
		},
		"queued, on its own behalf": {
			ada + "SELECT sexton.delete_user(2, 2); DELETE FROM group_deletion_schedules WHERE user_id = 2", [][]string{}, restored,
		},
		"not at all, and the application has a reason": {
			"DELETE FROM group_deletion_schedules WHERE user_id = 2", [][]string{{"11", "child-deletion_scheduled-11", "5", "NULL"}}, [][]string{},
		},
		"after the mark": {
			ada + "UPDATE groups SET marked_for_deletion_on = NULL; DELETE FROM users WHERE id = 2", [][]string{}, [][]string{},
		},
		"while the group is being destroyed": {
			ada + "INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (10, 1); DELETE FROM users WHERE id = 2",
			[][]string{{"11", "child-deletion_scheduled-11", "5", "NULL"}},
			[][]string{},
		},
		"with its group": {
			ada + "DELETE FROM groups WHERE id IN (11, 12); DELETE FROM users WHERE id = 2", [][]string{}, [][]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t, cascades)
			s.ask(t, "schedule_group_deletion", 11, 2)
			s.age(5, 11)
			s.Exec("DELETE FROM sexton.events")
			s.Exec(c.delete)
			require.Equal(t, c.marked, s.marked())
			require.Equal(t, c.events, s.events())
		})
	}
}
