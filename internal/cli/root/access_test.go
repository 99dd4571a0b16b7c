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

// connecting returns the commands that need a database.
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

func TestServerThatIsDown(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	address := "postgres://user:hidden@/app?host=" + url.QueryEscape(s.Dir)
	s.Configure(address, "")
	s.Refused(t, 4, connecting(), "sexton: DIR/sexton.yaml:2:15: databases.main.url: database main cannot be reached: "+
		"no server answers at DIR port 5432: no such file or directory (start it, or correct host and port)")

	// Errors name where the address was configured.
	s.Configure(s.URL, "")
	s.Says(4, "sexton: --database-url: database main cannot be reached", "status", "--database-url", address)
	r := clitest.Run([]string{"DATABASE_URL=" + address}, "migrate", "status")
	require.Equal(t, 4, r.Code)
	require.Contains(t, r.Stderr, "sexton: DATABASE_URL: database main cannot be reached")
	require.NotContains(t, r.Stderr, "hidden")
}

func TestRoleWithoutRights(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	role := s.CreateRole()
	s.Configure(s.AsRole(role), "")
	s.Refused(t, 7, [][]string{
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

// Another session locks every application table, including partitions. Commands that read
// only the catalogue are not affected. Commands that read or change the tables time out
// and report why.
func TestLockedTablesHoldUpNoCommand(t *testing.T) {
	t.Parallel()
	s := clitest.Roles(t)
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
	if pgtest.Version(t) < 18 { // Since then GRANT itself waits for its table.
		require.NoError(t, err)
	} else {
		require.ErrorContains(t, err, "canceling statement due to lock timeout")
	}

	const gaveUp = "canceling statement due to lock timeout (SQLSTATE 55P03): another session has locked a table or row"
	for _, each := range []struct {
		says    string
		command []string
	}{
		{"", []string{"migrate", "status"}},
		{"", []string{"grants", "--worker", role}},
		{"", []string{"job", "list"}},
		{"", []string{"triggers", "status"}},
		{"check failed: count groups to be deleted.*lock timeout", []string{"doctor"}},
		{regexp.QuoteMeta(gaveUp), []string{"status"}},
		{regexp.QuoteMeta(gaveUp), []string{"failures", "list"}},
		{regexp.QuoteMeta(gaveUp), []string{"group", "list"}},
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
		said := r.Stdout + r.Stderr
		if each.says == "" {
			require.NotContains(t, said, " timeout", each.command)
			require.Contains(t, []int{0, 5}, r.Code, each.command)
		} else {
			require.Regexp(t, each.says, said, each.command)
		}
	}
}

// Managed servers have no superuser. Their roles cannot set session_replication_role or
// read the statistics of other roles, and only some can create roles. Each of them can
// install, track and clean up, and doctor reports the limitations.
func TestManagedServers(t *testing.T) {
	t.Parallel()
	roles := map[string]string{"a role that makes roles": "CREATEROLE CREATEDB", "a role that makes none": ""}
	pgtest.Each(t, pgtest.Few(t, roles, "a role that makes none"), func(t *testing.T, _, rights string) {
		// Roles belong to the server, and its only superuser must not have created the
		// owner.
		s := clitest.RoleSite{Site: clitest.NewSite(t, pgtest.NewOn(t, pgtest.Server(t)))}
		s.Exec(`CREATE ROLE managed LOGIN ` + rights + `; GRANT CREATE ON DATABASE "` + s.Name +
			`" TO managed; ALTER SCHEMA public OWNER TO managed`)
		url := s.AsRole("managed")
		s.Configure(url, "")
		s.Environ = append(s.Environ, "SEXTON_HTTP__LISTEN=127.0.0.1:0")
		s.As(t, "managed", "CREATE TABLE projects (id bigint PRIMARY KEY)",
			"CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint)",
			"CREATE INDEX ON issues (project_id)", "INSERT INTO projects SELECT generate_series(1, 3)",
			"INSERT INTO issues SELECT n, n % 3 + 1 FROM generate_series(1, 30) AS n")

		if rights == "" {
			s.Says(7, "CREATE ROLE", "migrate", "up")
			s.Exec(`CREATE ROLE sexton_owner NOLOGIN; GRANT sexton_owner TO managed`) // The provider's own means.
		}
		require.NotContains(t, s.OK("migrate", "up"), "GRANT")
		require.Equal(t, [][]string{{"sexton_owner"}}, s.Rows(`SELECT DISTINCT relowner::regrole::text FROM pg_class
			WHERE relnamespace = 'sexton'::regnamespace AND relkind = 'r'`))
		s.OK("triggers", "install")
		s.OK("triggers", "status")

		_, stop := startWorker(t, s.Site, url)
		s.As(t, "managed", "DELETE FROM projects WHERE id = 1")
		pgtest.Await(t, s.Database, "the children to go", `SELECT NOT EXISTS (SELECT FROM issues WHERE project_id = 1)
				AND NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)`)
		examined := s.Run("doctor")
		require.Equal(t, 5, examined.Code, examined.Stdout)
		require.Contains(t, examined.Stdout, "checking the privileges of role managed, role of the newest running worker\n")
		require.Contains(t, examined.Stdout, "GRANT pg_read_all_stats TO managed;\n")
		stop()
		require.Len(t, s.Rows("SELECT FROM issues"), 20)
		report, _ := s.Examined(0)
		require.NotContains(t, severities(report), problem.Warning, "the role may be none of a worker")
		s.OK("status")
	})
}

func severities(report doctor.Report) (all []problem.Severity) {
	for _, f := range report.Findings {
		all = append(all, f.Severity)
	}
	return all
}
