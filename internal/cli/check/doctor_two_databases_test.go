package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/doctor"
)

// checks returns the names of the checks of a database that have the given result, in
// order.
func checks(report doctor.Report, database string, result doctor.Result) []string {
	var names []string
	for _, c := range report.Checks {
		if c.Database == database && c.Result == result {
			names = append(names, c.Check)
		}
	}
	return names
}

// findingsOf returns the findings for a database, one line each.
func findingsOf(s *clitest.TwoDatabases, report doctor.Report, database string) []string {
	s.Tb.Helper()
	var lines []string
	for _, f := range report.Findings {
		if f.Database == database {
			lines = append(lines, strings.ReplaceAll(fmt.Sprintf("%s | %s | %s | %s | %s", f.Severity, f.Check,
				f.Object, f.Message, f.Fix), s.Dir, "DIR"))
		}
	}
	return lines
}

func TestDoctorOfTwoDatabases(t *testing.T) {
	t.Parallel()
	clitest.EachJobsDatabase(t, func(t *testing.T, jobs string) {
		s := clitest.InstalledTwoDatabases(t, jobs)
		insertClient(s.SiteOf(jobs), "host:1:abc")
		report, _ := s.RunDoctor(0)
		require.Empty(t, report.Findings)
		other := map[string]string{"main": "ci", "ci": "main"}[jobs]
		passed := checks(report, other, doctor.OK)
		require.Subset(t, checks(report, jobs, doctor.OK), append(passed, "workers", "pauses", "stalled_jobs", "cron"))
		for _, c := range report.Checks {
			require.Equal(t, doctor.OK, c.Result, c)
		}

		// If one database cannot be reached, all checks of the other database still run.
		s.MakeUnreachable(other)
		report, r := s.RunDoctor(5)
		require.Empty(t, r.Stderr)
		require.Equal(t, []string{"error | connection | databases." + other +
			".url | the database cannot be reached: no server answers at DIR port 5432: " +
			"no such file or directory | start it, or correct host and port"}, findingsOf(s, report, other))
		require.Empty(t, findingsOf(s, report, jobs))
		require.Equal(t, passed[1:], checks(report, other, doctor.Skipped), "all checks except the connection are skipped")
		require.Subset(t, checks(report, jobs, doctor.OK), append(passed, "workers", "pauses", "stalled_jobs", "cron"))

		s.MakeUnreachable(jobs)
		report, _ = s.RunDoctor(5)
		require.Len(t, report.Findings, 1)
		require.Equal(t, append(passed[1:], "workers", "pauses", "stalled_jobs", "cron"),
			checks(report, jobs, doctor.Skipped))
		require.Equal(t, passed, checks(report, other, doctor.OK))
	})
}

// If two databases have a table of the same name, doctor requires tables or database in
// the configuration.
func TestDoctorOfATableInTwoDatabases(t *testing.T) {
	t.Parallel()
	s := clitest.InstalledTwoDatabases(t, "main")
	s.Exec("CREATE TABLE builds (id bigint PRIMARY KEY, project_id bigint); CREATE INDEX ON builds (project_id)")
	requireFindings(s.Site, 5, "tables",
		"error | builds[0] | DIR/loose_foreign_keys.yml:6:5: table builds is in more than one database: main, ci | "+
			"set tables of the databases, such as tables: [builds], or database in the definition",
		"error | traces[0].table | DIR/loose_foreign_keys.yml:8:13: table builds is in more than one database: main, ci | "+
			"set tables of the databases, such as tables: [builds]")
	s.Environ = append(s.Environ, "SEXTON_DATABASES__CI__TABLES=builds")
	s.OK("triggers", "install")
	report, _ := s.RunDoctor(0)
	require.Empty(t, clitest.ChecksWithProblems(report))
}

func TestDoctorOfTheSchemaInTheOtherDatabase(t *testing.T) {
	t.Parallel()
	s := clitest.InstalledTwoDatabases(t, "main")
	s.Ci.Exec("DROP TABLE sexton.fences")
	report, _ := s.RunDoctor(5)
	lines := findingsOf(s, report, "ci")
	require.Len(t, lines, 1)
	require.Contains(t, lines[0],
		`error | schema | component base | schema of database ci: component base lacks "sexton".fences; `)
	require.Empty(t, clitest.ChecksWithProblems(doctor.Report{Findings: slices.DeleteFunc(slices.Clone(report.Findings),
		func(f doctor.Finding) bool { return f.Database != "main" })}))

	s.OK("migrate", "up")
	s.OK("triggers", "install")
	s.Ci.Exec("CREATE OR REPLACE FUNCTION sexton.session_name(fence_key text) RETURNS text LANGUAGE sql AS 'SELECT fence_key'")
	report, _ = s.RunDoctor(0)
	require.Contains(t, findingsOf(s, report, "ci"),
		"info | functions | component base | its functions are from another release; "+
			"run `sexton migrate up` of the newest release | sexton migrate up")

	s.Ci.Exec("DROP SCHEMA sexton CASCADE; DROP TABLE loose_foreign_keys_deleted_records")
	report, _ = s.RunDoctor(5)
	require.Equal(t,
		[]string{"error | schema | component base | schema of database ci: component base is not installed; run `sexton migrate up` | sexton migrate up"},
		findingsOf(s, report, "ci"))
}
