package app_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	s := plain(t)
	require.Equal(t, "ok: 1 database, 1 definition\n", s.ok("config", "check"))
	require.Equal(t, map[string]any{"databases": 1.0, "definitions": 1.0}, s.json(0, "config", "check"))

	s.configure("postgres://nobody@nowhere.invalid/none", "loose_foreign_keys: {definitions: [missing.yml], enabled: false}\n")
	require.Equal(t, "ok: 1 database, 0 definitions\n", s.ok("config", "check"), "it connects to nothing and reads what is enabled")
}

func TestConfigShowLoadsAgain(t *testing.T) {
	t.Parallel()
	s := plain(t)
	s.configure("postgres://user:hidden-1@db.example/app?sslpassword=hidden-2", `http: {user: admin, password: hidden-3, token: hidden-4}
loose_foreign_keys: {schedule: "*/5 * * * *", lock_timeout: 200ms}
`)
	require.Contains(t, s.run("config", "check").stderr, "loose_foreign_keys.lock_timeout: holds for all kinds of jobs, so it is jobs.lock_timeout now")
	shown := s.ok("config", "show")
	require.NotContains(t, shown, "hidden")
	require.Contains(t, shown, `url: "postgres://user:***@db.example/app?sslpassword=***"`)
	require.Contains(t, shown, `schedule: "*/5 * * * *"`)
	require.Contains(t, shown, "lock_timeout: 200ms")
	require.Contains(t, shown, "statement_timeout: 5s", "defaults are shown, too")
	require.Contains(t, shown, "- "+s.path("loose_foreign_keys.yml"))

	s.write("shown.yaml", shown)
	require.Equal(t, shown, s.ok("config", "show", "--config", s.path("shown.yaml")))
	require.Equal(t, "ok: 1 database, 1 definition\n", s.ok("config", "check", "--config", s.path("shown.yaml")))

	var document struct {
		Databases map[string]struct{ URL, Pace string }
		HTTP      struct{ Password, Token string }
	}
	r := s.run("config", "show", "--json")
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &document))
	require.NotContains(t, r.stdout, "hidden")
	require.Equal(t, "adaptive", document.Databases["main"].Pace)
	require.Equal(t, "***", document.HTTP.Token)
}

func TestFlagsAndEnvironment(t *testing.T) {
	t.Parallel()
	s := plain(t)
	require.Contains(t, s.ok("config", "show", "--database-url", "postgres://flag@host/db"), `url: "postgres://flag@host/db"`)
	s.environ = append(s.environ, "SEXTON_LOG__LEVEL=debug", "SEXTON_JOBS__SCHEMA=other")
	require.Contains(t, s.ok("config", "show"), "level: debug")
	require.Contains(t, s.ok("migrate", "up", "--print-grants"), `"other".leases`)

	alone := run([]string{"DATABASE_URL=postgres://alone@host/db"}, "config", "show")
	require.Zero(t, alone.code, alone.stderr)
	require.Contains(t, alone.stdout, `url: "postgres://alone@host/db"`)
}

func TestLogFormat(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.environ = append(s.environ, "SEXTON_LOG__FORMAT=text", "SEXTON_LOG__LEVEL=info")
	r := s.run("job", "run", kind)
	require.Regexp(t, `(?m)^\d\d:\d\d:\d\d INF run_started kind=`+kind+` database=main`, r.stderr)
	require.NotContains(t, r.stderr, "\x1b", "no colours outside of a terminal")

	s.environ = append(s.environ, "SEXTON_LOG__LEVEL=error")
	require.Empty(t, s.run("job", "run", kind).stderr)
}
