package check_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	require.Equal(t, "ok: 1 database, 1 definition\n", s.OK("config", "check"))
	require.Equal(t, map[string]any{"databases": 1.0, "definitions": 1.0, "problems": []any{}},
		s.JSON(0, "config", "check"))
	s.Configure(s.URL, "jobs: {silence: 1h}\n")
	require.Equal(t, []any{map[string]any{
		"severity": "error", "file": s.Path("sexton.yaml"), "line": 3.0, "column": 17.0, "key": "jobs.silence",
		"message": "must be between 2s and 10m",
	}}, s.JSON(2, "config", "check").(map[string]any)["problems"])

	s.Configure("postgres://nobody@nowhere.invalid/none",
		"loose_foreign_keys: {definitions: [missing.yml], enabled: false}\n")
	require.Equal(t, "ok: 1 database, 0 definitions\n", s.OK("config", "check"),
		"the command does not connect, and reads only the definitions of enabled jobs")
}

func TestConfigShowLoadsAgain(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	s.Configure("postgres://user:hidden-1@db.example/app?sslpassword=hidden-2", `http: {user: admin, password: hidden-3, token: hidden-4}
loose_foreign_keys: {schedule: "*/5 * * * *"}
jobs: {lock_timeout: 200ms}
`)
	shown := s.OK("config", "show")
	require.NotContains(t, shown, "hidden")
	require.Contains(t, shown, `url: "postgres://user:***@db.example/app?sslpassword=***"`)
	require.Contains(t, shown, `schedule: "*/5 * * * *"`)
	require.Contains(t, shown, "lock_timeout: 200ms")
	require.Contains(t, shown, "statement_timeout: 5s", "defaults are shown")
	require.Contains(t, shown, "- "+s.Path("loose_foreign_keys.yml"))

	s.Write("shown.yaml", shown)
	require.Equal(t, shown, s.OK("config", "show", "--config", s.Path("shown.yaml")))
	require.Equal(t, "ok: 1 database, 1 definition\n", s.OK("config", "check", "--config", s.Path("shown.yaml")))

	var document struct {
		Databases map[string]struct{ URL, Pace string }
		HTTP      struct{ Password, Token string }
	}
	r := s.Run("config", "show", "--json")
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &document))
	require.NotContains(t, r.Stdout, "hidden")
	require.Equal(t, "adaptive", document.Databases["main"].Pace)
	require.Equal(t, "***", document.HTTP.Token)
}

func TestFlagsAndEnvironment(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	require.Contains(t, s.OK("config", "show", "--database-url", "postgres://flag@host/db"),
		`url: "postgres://flag@host/db"`)
	s.Environ = append(s.Environ, "SEXTON_LOG__LEVEL=debug", "SEXTON_JOBS__OWNER=other")
	require.Contains(t, s.OK("config", "show"), "level: debug")
	require.Contains(t, s.OK("config", "show"), "owner: other")

	alone := clitest.Run([]string{"DATABASE_URL=postgres://alone@host/db"}, "config", "show")
	require.Zero(t, alone.Code, alone.Stderr)
	require.Contains(t, alone.Stdout, `url: "postgres://alone@host/db"`)
}

func TestLogFormat(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Environ = append(s.Environ, "SEXTON_LOG__FORMAT=text", "SEXTON_LOG__LEVEL=info")
	r := s.Run("job", "run", clitest.Kind)
	require.Regexp(t, `(?m)^\d\d:\d\d:\d\dZ INF run_started kind=`+clitest.Kind+` database=main`, r.Stderr)
	require.NotContains(t, r.Stderr, "\x1b", "no colors if the output is not a terminal")

	s.Environ = append(s.Environ, "SEXTON_LOG__LEVEL=error")
	require.Empty(t, s.Run("job", "run", clitest.Kind).Stderr)
}
