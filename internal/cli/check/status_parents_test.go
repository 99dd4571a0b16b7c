package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

func TestStatusShowsTheBacklogOfEachParentTable(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec(`INSERT INTO loose_foreign_keys_deleted_records (primary_key_value, fully_qualified_table_name, created_at)
		SELECT id, 'public.projects', now() - interval '1 minute' FROM generate_series(1, 1001) AS id
		UNION ALL SELECT 1, 'public.users', now() - interval '2 hours'`)
	table, _, _ := s.StatusOf()
	parents, ok := table["parents"].([]any)
	require.True(t, ok)
	require.Len(t, parents, 2)
	users, ok := parents[0].(map[string]any)
	require.True(t, ok)
	require.Equal(t, "public.users", users["parent"], "the oldest comes first")
	require.EqualValues(t, 1, users["pending"])
	require.InDelta(t, 7200, users["oldest_age_seconds"], 60)
	require.Subset(t, parents[1], map[string]any{"parent": "public.projects", "pending": 1000.0, "capped": true})
	require.Regexp(t, `(?m)^PARENT +DATABASE +PENDING +OLDEST\npublic\.users +main +1 +2h0m.*\npublic\.projects +main +1000\+ +1m`, s.OK("status"))
}
