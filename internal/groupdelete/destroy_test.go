package groupdelete_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/groupdelete"
)

func TestGroupIsDestroyed(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	stats := b.destroy(t, groupdelete.Destroyed)
	b.requireAsNative(t, issues, someIssues)
	require.EqualValues(t, 4, stats.Groups)
	require.EqualValues(t, 8, stats.Projects)
	require.Equal(t, map[string]int64{"groups": 4, "projects": 8, "issues": 16, "notes": 32, "members": 4, "group_group_links": 3}, stats.Deleted)
	require.Equal(t, [][]string{{"9"}}, b.Rows("SELECT source_id FROM members"))
	require.Empty(t, b.Rows("SELECT FROM sexton.group_destructions UNION ALL SELECT FROM group_deletion_schedules"))
	require.Empty(t, b.Rows("SELECT key FROM sexton.leases WHERE key LIKE 'groups/%' UNION ALL SELECT key FROM sexton.fences WHERE key LIKE 'groups/%'"))
	require.Equal(t, [][]string{
		{"project_destroyed", "11"},
		{"project_destroyed", "12"},
		{"project_destroyed", "21"},
		{"project_destroyed", "22"},
		{"project_destroyed", "31"},
		{"project_destroyed", "32"},
		{"group_destroyed", "3"},
		{"group_destroyed", "2"},
		{"project_destroyed", "41"},
		{"project_destroyed", "42"},
		{"group_destroyed", "4"},
		{"group_destroyed", "1"},
	}, b.events())
	require.Equal(t, [][]string{{`{"path": "three", "user_id": 1, "group_id": 3, "full_path": "one/two/three", "parent_id": 2, "destroyed_with": 1}`}},
		b.Rows("SELECT payload FROM sexton.events WHERE kind = 'group_destroyed' AND payload ->> 'group_id' = '3'"))
	require.Equal(t, [][]string{{`{"path": "project-1", "group_id": 3, "project_id": 31, "destroyed_with": 1}`}},
		b.Rows("SELECT payload FROM sexton.events WHERE payload ->> 'project_id' = '31'"))
	b.destroy(t, groupdelete.Gone)
}
