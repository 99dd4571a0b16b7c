package jobs_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

func TestRunWithWrongArguments(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	before := s.Snapshot()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"now"}, `unknown command "now" for "sexton run"`},
		{[]string{"--fail-fats"}, "unknown flag: --fail-fats"},
		{[]string{"--json"}, "unknown flag: --json"},
	} {
		r := s.Run(append([]string{"run"}, test.args...)...)
		require.Equal(t, 2, r.Code, test.args)
		require.Empty(t, r.Stdout, test.args)
		require.Contains(t, r.Stderr, test.want, test.args)
	}
	require.Equal(t, before, s.Snapshot())
}

// If the configuration, the definitions or the database prevent work, the worker does not
// start. The exit codes are those of other commands.
func TestRunRefusesToStart(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Configure(s.URL, "loose_foreign_keys: {shedule: \"* * * * *\"}\n")
	s.RequireRefused(t, 2, [][]string{{"run"}},
		"sexton: DIR/sexton.yaml:3:22: loose_foreign_keys.shedule: unknown key (did you mean schedule?)")

	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\n")
	s.RequireRefused(t, 2, [][]string{{"run"}},
		"sexton: DIR/sexton.yaml:3:31: loose_foreign_keys.enabled: is false, and no other component is enabled, so there is no job to run")

	s.Configure(s.URL, "")
	s.Write("loose_foreign_keys.yml", "issues:\n  - {table: gone, column: project_id, on_delete: never}\n")
	s.RequireRefused(t, 2, [][]string{{"run"}}, "sexton: DIR/loose_foreign_keys.yml:2:50: issues[0].on_delete: ")

	s.Configure(s.ChangedURL(func(u *url.URL) { u.Path = "/no_such_database" }), "")
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions)
	s.RequireRefused(t, 4, [][]string{{"run", "--fail-fast"}},
		"sexton: DIR/sexton.yaml:2:15: databases.main.url: database main cannot be reached: ")
}
