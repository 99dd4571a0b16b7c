package root_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/doctor"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

// A managed server gives no superuser: its roles make no event triggers, set no session_replication_role and see no statistics of others.
// Some of them may make roles. Each installs, tracks and cleans up, and doctor says what is lost.
func TestManagedServers(t *testing.T) {
	t.Parallel()
	for name, rights := range map[string]string{"a role that makes roles": "CREATEROLE CREATEDB", "a role that makes none": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Roles are the server's, and its only superuser must not have made the owner.
			s := clitest.RoleSite{Site: clitest.NewSite(t, pgtest.NewOn(t, pgtest.Server(t)))}
			s.Exec(`CREATE ROLE managed LOGIN ` + rights + `; GRANT CREATE ON DATABASE "` + s.Name + `" TO managed; ALTER SCHEMA public OWNER TO managed`)
			url := s.AsRole("managed")
			s.Configure(url, "")
			s.Environ = append(s.Environ, "SEXTON_HTTP__LISTEN=127.0.0.1:0")
			s.As(t, "managed", "CREATE TABLE projects (id bigint PRIMARY KEY)", "CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint)",
				"CREATE INDEX ON issues (project_id)", "INSERT INTO projects SELECT generate_series(1, 3)", "INSERT INTO issues SELECT n, n % 3 + 1 FROM generate_series(1, 30) AS n")

			installed := s.OK("migrate", "up")
			if rights == "" {
				require.Contains(t, installed, "CREATE ROLE")
				s.Exec(`CREATE ROLE sexton_owner NOLOGIN; GRANT sexton_owner TO managed`) // The provider's own means.
				installed = s.OK("migrate", "up")
			}
			require.NotContains(t, installed, "GRANT")
			require.Equal(t, [][]string{{"sexton_owner"}}, s.Rows(`SELECT DISTINCT relowner::regrole::text FROM pg_class
				WHERE relnamespace = 'sexton'::regnamespace AND relkind = 'r'`))
			s.OK("triggers", "install")
			refused := s.Run("triggers", "install", "--event-trigger")
			require.NotZero(t, refused.Code)
			require.Contains(t, refused.Stdout+refused.Stderr, "CREATE EVENT TRIGGER", "for a superuser, should there be one")
			s.OK("triggers", "status")

			_, stop := startWorker(t, s.Site, url)
			s.As(t, "managed", "DELETE FROM projects WHERE id = 1")
			pgtest.Await(t, s.Database, "the children to go", `SELECT NOT EXISTS (SELECT FROM issues WHERE project_id = 1)
					AND NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)`)
			stop()
			report, _ := s.Examined(5)
			require.Len(t, s.Rows("SELECT FROM issues"), 20)
			require.NotContains(t, severities(report), problem.Error)
			_, lines := s.Diagnosis(report, "statistics")
			require.Contains(t, strings.Join(lines, "\n"), "GRANT pg_read_all_stats TO managed")
			s.OK("status")
		})
	}
}

func severities(report doctor.Report) (all []problem.Severity) {
	for _, f := range report.Findings {
		all = append(all, f.Severity)
	}
	return all
}
