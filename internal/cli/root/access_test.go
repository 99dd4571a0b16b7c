package root_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// connecting are the commands that need a database.
func connecting() [][]string {
	return [][]string{
		{"status"},
		{"job", "list"},
		{"job", "run", clitest.Kind},
		{"migrate", "up"},
		{"migrate", "status"},
		{"migrate", "down"},
		{"triggers", "install"},
		{"triggers", "status"},
		{"triggers", "uninstall"},
	}
}

func TestDatabaseThatIsMissing(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Configure(s.With(func(u *url.URL) { u.Path = "/no_such_database" }), "")
	s.Refused(t, 4, connecting(), `sexton: DIR/sexton.yaml:2:15: databases.main.url: database main cannot be reached: `+
		`database "no_such_database" does not exist (create it, or correct the database's name)`)
}

func TestServerThatIsDown(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	address := "postgres://user:hidden@/app?host=" + url.QueryEscape(s.Dir)
	s.Configure(address, "")
	s.Refused(t, 4, connecting(), "sexton: DIR/sexton.yaml:2:15: databases.main.url: database main cannot be reached: "+
		"no server answers at DIR port 5432: no such file or directory (start it, or correct host and port)")

	// The place is where the address comes from.
	s.Configure(s.URL, "")
	s.Says(4, "sexton: --database-url: database main cannot be reached", "status", "--database-url", address)
	r := clitest.Run([]string{"DATABASE_URL=" + address}, "migrate", "status")
	require.Equal(t, 4, r.Code)
	require.Contains(t, r.Stderr, "sexton: DATABASE_URL: database main cannot be reached")
	require.NotContains(t, r.Stderr, "hidden")
}

func TestDirectServerThatIsDown(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Environ = append(s.Environ, "SEXTON_DATABASES__MAIN__LISTEN_URL=postgres://user:hidden@/app?host="+s.Dir)
	s.Refused(t, 4, connecting(), "sexton: SEXTON_DATABASES__MAIN__LISTEN_URL: database main cannot be reached: no server answers at DIR port 5432")
}

func TestConnectionStringWithBadParameter(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Configure(s.With(func(u *url.URL) { u.RawQuery += "&pool_max_conns=none" }), "")
	s.Refused(t, 2, connecting(), "sexton: DIR/sexton.yaml:2:15: databases.main.url: cannot be parsed (look at its parameters)")
}

func TestPoolParametersAreForThePoolAlone(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Configure(s.With(func(u *url.URL) { u.RawQuery += "&pool_max_conns=3" }), "")
	s.OK("migrate", "up")
}

func TestRoleThatMayNotConnect(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	role := s.CreateRole()
	s.Configure(s.AsRole(role), "")
	name := pgx.Identifier{s.Name}.Sanitize()
	s.Exec("REVOKE CONNECT ON DATABASE " + name + " FROM PUBLIC")
	s.Refused(t, 4, connecting(), `database main cannot be reached: permission denied for database "`+s.Name+`"`)
	require.Contains(t, s.Run("status").Stderr, "(GRANT CONNECT on the database to user "+role+")")

	s.Exec("GRANT CONNECT ON DATABASE " + name + " TO PUBLIC")
	s.Exec("ALTER ROLE " + pgx.Identifier{role}.Sanitize() + " NOLOGIN")
	s.Refused(t, 4, connecting(), `database main cannot be reached: role "`+role+`" is not permitted to log in (correct the user, let it log in`)
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	conn := pgtest.Must(pgx.Connect(t.Context(), server.URL("postgres")))(t)
	pgtest.Exec(t, conn, "CREATE ROLE guarded LOGIN PASSWORD 'right'")
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, os.WriteFile(filepath.Join(server.DataDir(), "pg_hba.conf"), []byte("local all all scram-sha-256\n"), 0o600))
	require.NoError(t, server.Restart(t.Context(), devpg.Fast))

	address := func(password string) string {
		u := pgtest.Must(url.Parse(server.URL("postgres")))(t)
		u.User = url.UserPassword("guarded", password)
		return u.String()
	}
	definitions := filepath.Join(t.TempDir(), "definitions.yml")
	require.NoError(t, os.WriteFile(definitions, []byte(clitest.GoodDefinitions), 0o600))
	environ := []string{"SEXTON_LOOSE_FOREIGN_KEYS__DEFINITIONS=" + definitions}
	for _, args := range connecting() {
		r := clitest.Run(environ, append(args, "--database-url", address("hidden"))...)
		require.Equal(t, 4, r.Code, args)
		require.Empty(t, r.Stdout, args)
		require.Equal(t, "sexton: --database-url: database main cannot be reached: "+
			"password authentication failed for user \"guarded\" (correct user and password)\n", r.Stderr, args)
	}
	require.Equal(t, 3, clitest.Run(nil, "migrate", "status", "--database-url", address("right")).Code)
}

func TestRoleThatMayNotInstall(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	s.Exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	role := s.CreateRole()
	s.Configure(s.AsRole(role), "")
	quoted := pgx.Identifier{role}.Sanitize()
	before := s.Snapshot()
	r := s.Run("migrate", "up")
	require.Equal(t, 1, r.Code)
	require.Empty(t, r.Stdout)
	require.Contains(t, r.Stderr, "role "+role+` in database main: may not create schema "sexton"; run: GRANT CREATE ON DATABASE "`+s.Name+`" TO `+quoted)
	require.Contains(t, r.Stderr, `may not create tables in schema "public"; run: GRANT USAGE, CREATE ON SCHEMA "public" TO `+quoted)
	require.Equal(t, before, s.Snapshot())
}

func TestRoleWithoutRights(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	role := s.CreateRole()
	s.Configure(s.AsRole(role), "")
	s.Refused(t, 1, [][]string{{"status"}, {"job", "list"}, {"job", "run", clitest.Kind}, {"migrate", "up"}, {"migrate", "status"}, {"triggers", "install"}},
		"role "+role+" in database main: permission denied for schema sexton; run: the statements that `sexton migrate up --print-grants` prints")
}

// asOwner gives a role everything of Sexton's and nothing of the application's tables.
func asOwner(s *clitest.Site) (role string) {
	s.Tb.Helper()
	role = s.CreateRole()
	quoted := pgx.Identifier{role}.Sanitize()
	s.Exec("GRANT ALL ON SCHEMA public TO " + quoted + "; GRANT CREATE ON DATABASE " + pgx.Identifier{s.Name}.Sanitize() + " TO " + quoted)
	s.Configure(s.AsRole(role), "")
	s.OK("migrate", "up")
	return role
}

func TestRoleWithoutRightsOnTheChild(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	asOwner(s)
	s.Refused(t, 1, [][]string{{"job", "run", clitest.Kind}}, "sexton: warning: triggers are not as the definitions need them",
		`DIR/loose_foreign_keys.yml:2:5: issues[0]: the database role may not clean up table public.issues (GRANT SELECT, UPDATE, DELETE ON public.issues TO `)
}

func TestRoleWithoutRightsOnTheParent(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	quoted := pgx.Identifier{asOwner(s)}.Sanitize()
	s.Exec("GRANT SELECT, UPDATE, DELETE ON issues TO " + quoted)
	s.Refused(t, 1, [][]string{{"triggers", "install"}}, "role "+quoted+" lacks TRIGGER on table public.projects; run: GRANT TRIGGER ON TABLE public.projects TO "+quoted)

	s.Exec("GRANT TRIGGER ON TABLE projects TO " + quoted)
	require.Contains(t, s.OK("triggers", "install"), "created sexton_track on public.projects")
	r := s.Run("triggers", "status")
	require.Zero(t, r.Code, "a plain trigger is no drift: %s", r.Stdout)
	require.Contains(t, r.Stdout, "ENABLE ALWAYS TRIGGER sexton_track")
}
