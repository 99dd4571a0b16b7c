package root_test

import (
	"context"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/doctor"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

// databaseCommands returns commands that connect to the database.
func databaseCommands() [][]string {
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

func TestServerThatIsDown(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	address := "postgres://user:hidden@/app?host=" + url.QueryEscape(s.Dir)
	s.Configure(address, "")
	s.RequireRefused(t, 4, databaseCommands(), "sexton: DIR/sexton.yaml:2:15: databases.main.url: database main cannot be reached: "+
		"no server answers at DIR port 5432: no such file or directory (start it, or correct host and port)")

	// The error names the flag or variable that has the address.
	s.Configure(s.URL, "")
	s.RequireError(4, "sexton: --database-url: database main cannot be reached", "status", "--database-url", address)
	r := clitest.Run([]string{"DATABASE_URL=" + address}, "migrate", "status")
	require.Equal(t, 4, r.Code)
	require.Contains(t, r.Stderr, "sexton: DATABASE_URL: database main cannot be reached")
	require.NotContains(t, r.Stderr, "hidden")
}

func TestRoleWithoutPrivileges(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	role := s.CreateRole()
	s.Configure(s.AsRole(role), "")
	s.RequireRefused(t, 7, [][]string{
		{"status"},
		{"job", "list"},
		{"job", "run", clitest.Kind},
		{"migrate", "up"},
		{"migrate", "status"},
		{"triggers", "install"},
	},
		"role "+role+
			" in database main: permission denied for schema sexton; run: the statements that `sexton grants` prints")
}

// While another session locks all application tables, commands that read only the catalog
// succeed. Commands that read the tables time out and report the lock.
func TestCommandsWhileTablesAreLocked(t *testing.T) {
	t.Parallel()
	s := clitest.NewRoleSite(t)
	s.Exec(`CREATE TABLE parts (id bigint, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
		CREATE TABLE parts_old PARTITION OF parts FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
		CREATE INDEX some_issues ON issues (project_id) WHERE project_id IS NOT NULL;
		CREATE INDEX other_issues ON issues (author_id) WHERE id > 7;
		ALTER TABLE issues ALTER project_id DROP NOT NULL, ADD CONSTRAINT some_project CHECK (project_id > 0) NOT VALID`)
	s.Write("loose_foreign_keys.yml", `issues: [{table: projects, column: project_id, on_delete: async_nullify}]
parts: [{table: projects, column: id, on_delete: async_delete}]
p_ci_builds: [{table: projects, column: project_id, on_delete: async_delete}]
notes: [{table: parts, column: id, on_delete: async_delete}]
`)
	s.Configure(s.URL+"&lock_timeout=200ms", clitest.EveryComponent)
	role := s.CreateRole()
	grants := s.OK("grants", "--app", role, "--worker", role, "--viewer", role)
	pgtest.Exec(t, pgtest.Connect(t, s.URL), `BEGIN; DO $$ DECLARE held text; BEGIN
		FOR held IN SELECT oid::regclass FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
			AND relname NOT IN ('loose_foreign_keys_deleted_records', 'users_ghost_user_migrations', 'import_placeholder_user_details', 'group_deletion_schedules')
		LOOP EXECUTE 'LOCK TABLE ONLY ' || held || ' IN ACCESS EXCLUSIVE MODE'; END LOOP; END $$`)
	_, err := s.Pool().Exec(t.Context(), "SET lock_timeout = '200ms'; "+grants)
	// Since Postgres 18, GRANT waits for a lock on the table.
	if pgtest.Version(t) < 18 {
		require.NoError(t, err)
	} else {
		require.ErrorContains(t, err, "canceling statement due to lock timeout")
	}

	const timedOut = "canceling statement due to lock timeout (SQLSTATE 55P03): another session has locked a table or row"
	for _, each := range []struct {
		want    string
		command []string
	}{
		{"", []string{"migrate", "status"}},
		{"", []string{"grants", "--worker", role}},
		{"", []string{"job", "list"}},
		{"", []string{"triggers", "status"}},
		{"check failed: count groups to be deleted.*lock timeout", []string{"doctor"}},
		{regexp.QuoteMeta(timedOut), []string{"status"}},
		{regexp.QuoteMeta(timedOut), []string{"failures", "list"}},
		{regexp.QuoteMeta(timedOut), []string{"group", "list"}},
	} {
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.Run(each.command...) }()
		var r clitest.Result
		pgtest.WaitFor(t, "the end of "+each.command[0], func(context.Context) (bool, error) {
			select {
			case r = <-ended:
				return true, nil
			default:
				return false, nil
			}
		})
		output := r.Stdout + r.Stderr
		if each.want == "" {
			require.NotContains(t, output, " timeout", each.command)
			require.Contains(t, []int{0, 5}, r.Code, each.command)
		} else {
			require.Regexp(t, each.want, output, each.command)
		}
	}
}

// Without superuser privileges, as on a managed server, a role can install Sexton, record
// deletions and clean up. doctor reports what the role cannot do. The role may lack
// CREATEROLE.
func TestManagedServers(t *testing.T) {
	t.Parallel()
	roles := map[string]string{"role with CREATEROLE": "CREATEROLE CREATEDB", "role without CREATEROLE": ""}
	pgtest.Each(t, pgtest.Few(t, roles, "role without CREATEROLE"), func(t *testing.T, _, attributes string) {
		// The test needs its own server, because roles belong to the server, and a
		// superuser must not have created sexton_owner before.
		s := clitest.RoleSite{Site: clitest.NewSite(t, pgtest.NewOn(t, pgtest.Server(t)))}
		s.Exec(`CREATE ROLE managed LOGIN ` + attributes + `; GRANT CREATE ON DATABASE "` + s.Name +
			`" TO managed; ALTER SCHEMA public OWNER TO managed`)
		url := s.AsRole("managed")
		s.Configure(url, "")
		s.Environ = append(s.Environ, "SEXTON_HTTP__LISTEN=127.0.0.1:0")
		s.ExecAs(t, "managed", "CREATE TABLE projects (id bigint PRIMARY KEY)",
			"CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint)",
			"CREATE INDEX ON issues (project_id)", "INSERT INTO projects SELECT generate_series(1, 3)",
			"INSERT INTO issues SELECT n, n % 3 + 1 FROM generate_series(1, 30) AS n")

		if attributes == "" {
			s.RequireError(7, "CREATE ROLE", "migrate", "up")
			// The role cannot create sexton_owner. On a managed server, the provider's
			// tools create it.
			s.Exec(`CREATE ROLE sexton_owner NOLOGIN; GRANT sexton_owner TO managed`)
		}
		require.NotContains(t, s.OK("migrate", "up"), "GRANT")
		require.Equal(t, [][]string{{"sexton_owner"}}, s.Rows(`SELECT DISTINCT relowner::regrole::text FROM pg_class
			WHERE relnamespace = 'sexton'::regnamespace AND relkind = 'r'`))
		s.OK("triggers", "install")
		s.OK("triggers", "status")

		_, stop := startWorker(t, s.Site, url)
		s.ExecAs(t, "managed", "DELETE FROM projects WHERE id = 1")
		pgtest.Await(t, s.Database, "the children to be deleted", `SELECT NOT EXISTS (SELECT FROM issues WHERE project_id = 1)
				AND NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)`)
		examined := s.Run("doctor")
		require.Equal(t, 5, examined.Code, examined.Stdout)
		require.Contains(t, examined.Stdout, "checking the privileges of role managed, role of the newest running worker\n")
		require.Contains(t, examined.Stdout, "GRANT pg_read_all_stats TO managed;\n")
		stop()
		require.Len(t, s.Rows("SELECT FROM issues"), 20)
		report, _ := s.RunDoctor(0)
		require.NotContains(t, severities(report), problem.Warning, "without a running worker, the checked role may not be the role of a worker")
		s.OK("status")
	})
}

func severities(report doctor.Report) (all []problem.Severity) {
	for _, f := range report.Findings {
		all = append(all, f.Severity)
	}
	return all
}
