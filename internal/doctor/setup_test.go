package doctor_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/doctor"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	testTables = `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON children (parent_id);`
	tombstone = "INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, consume_after) VALUES "
)

// testDatabase is a database without problems, and the target for its checks.
type testDatabase struct {
	*dbtest.DB

	t      *testing.T
	target doctor.Target
}

func healthyDatabase(t *testing.T) *testDatabase {
	p := &testDatabase{DB: dbtest.New(t), t: t}
	p.Exec(testTables)
	p.target = doctor.Target{
		Installed: true, Connections: 5,
		Schema:  migrate.Database{TrackedSchema: "public", Jobs: true, Components: []string{migrate.LooseForeignKeys}},
		Parents: []doctor.Parent{{Schema: "public", Table: "parents", Recorded: "public.parents"}},
	}
	p.connect(p.URL)
	return p
}

// connect opens the given URL for the checks.
func (p *testDatabase) connect(url string) {
	p.t.Helper()
	db := pgtest.Must(database.Open(p.t.Context(), "main", url, "", dbtest.Names(), 2))(p.t)
	p.t.Cleanup(db.Pool.Close)
	p.target.Database = db
}

// connectAsNewRole opens connections for the checks as a new role without privileges. It
// returns the name of the role, which needs no quotes.
func (p *testDatabase) connectAsNewRole() string {
	p.t.Helper()
	role := p.CreateRole()
	p.connect(p.AsRole(role))
	return role
}

// findings examines the database and returns the findings of one check. It requires that
// every finding is complete.
func (p *testDatabase) findings(check string) []doctor.Finding {
	p.t.Helper()
	report := doctor.NewReport()
	doctor.Examine(p.t.Context(), report, p.target)
	return findingsOf(p.t, report, check)
}

// unexpectedFindings returns all findings except the information that the tests' own role
// is a superuser.
func unexpectedFindings(report *doctor.Report) []doctor.Finding {
	return slices.DeleteFunc(slices.Clone(report.Findings),
		func(f doctor.Finding) bool { return f.Severity == problem.Info && f.Check == "superusers" })
}

func findingsOf(t *testing.T, report *doctor.Report, check string) []doctor.Finding {
	var found []doctor.Finding
	for _, f := range report.Findings {
		require.NotEmpty(t, f.Object, f)
		require.NotEmpty(t, f.Fix, f)
		require.Contains(t, []problem.Severity{problem.Error, problem.Warning, problem.Info}, f.Severity, f)
		if f.Check == check {
			require.Equal(t, "main", f.Database)
			found = append(found, f)
		}
	}
	want := doctor.OK
	if len(found) > 0 {
		want = doctor.Found
	}
	require.Contains(t, report.Checks, doctor.Check{Check: check, Database: "main", Result: want}, report.Findings)
	return found
}

// onlyFinding examines the database and returns the only finding of one check.
func (p *testDatabase) onlyFinding(check string) doctor.Finding {
	p.t.Helper()
	found := p.findings(check)
	require.Len(p.t, found, 1, "findings of %s: %v", check, found)
	return found[0]
}
