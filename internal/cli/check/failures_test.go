package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

func TestFailuresAreListedAndRetried(t *testing.T) {
	t.Parallel()
	s := clitest.GroupSite(t)
	require.Equal(t, "no unresolved failures\n", s.OK("failures", "list"))
	require.Equal(t, map[string]any{"failures": []any{}, "more": false}, s.JSON(0, "failures", "list"))
	s.Exec(`INSERT INTO group_deletion_schedules (group_id, user_id, marked_for_deletion_on) VALUES (10, 1, '2026-01-01'), (20, 1, '2026-01-01');
		INSERT INTO sexton.group_deletion_failures (group_id, attempts, last_error, retry_at)
		VALUES (10, 3, E'cannot be\ndecided', '2100-01-02 03:04:05Z'), (20, 2, 'nor this', '2100-01-01')`)
	require.Regexp(t, `(?m)^groups +- +10 +group 10 \(root\) +3 +2100-01-02T03:04:05Z +cannot be; decided$`,
		s.OK("failures", "list"))
	require.Contains(t, s.OK("failures", "list", "--limit", "1"), "more failures of groups; raise --limit to list them\n")
	require.Subset(t, s.JSON(0, "failures", "list").(map[string]any)["failures"].([]any)[1], map[string]any{
		"source": "groups", "id": "20", "what": "group 20 (other)", "error": "nor this", "attempts": 2.0,
		"next_attempt_at": "2100-01-01T00:00:00Z", "given_up": false,
	})
	require.Equal(t, "1 group due now\n", s.OK("failures", "retry", "groups", "10"))
	require.Equal(t, [][]string{{"10", "t"}, {"20", "f"}},
		s.Rows("SELECT group_id, retry_at <= now() FROM sexton.group_deletion_failures ORDER BY 1"))
	require.Equal(t, map[string]any{"result": "2 groups due now"},
		s.JSON(0, "failures", "retry", "groups", "--all"))
	require.Equal(t, [][]string{{"groups 10"}, {"all groups"}},
		s.Rows("SELECT target FROM sexton.audit WHERE action = 'retry' AND actor <> '' ORDER BY id"))

	for want, wrong := range map[string]struct {
		code int
		args []string
	}{
		"group 4711 has not failed":               {1, []string{"failures", "retry", "groups", "4711"}},
		`"x" is not an ID`:                        {2, []string{"failures", "retry", "groups", "x"}},
		`unknown source "moons"; the sources are`: {2, []string{"failures", "retry", "moons", "1"}},
	} {
		s.RequireError(wrong.code, want, wrong.args...)
	}
	for _, args := range [][]string{
		{"failures", "retry"},
		{"failures", "retry", "groups"},
		{"failures", "retry", "groups", "1", "--all"},
		{"failures", "list", "--limit", "0"},
	} {
		require.Equal(t, 2, s.Run(args...).Code, args)
	}
}
