package clitest

import (
	"context"
	"fmt"
	"testing"

	"sexton/internal/pgtest"
)

// TwoDatabases is a site with two databases. Each of ten projects has ten issues in main
// and ten builds in ci. Traces in main refer to builds.
type TwoDatabases struct {
	*Site

	Ci *pgtest.Database
	// jobs is the name of the jobs database. It need not be the first configured
	// database.
	jobs string
}

const twoDefinitions = GoodDefinitions + `builds:
  - {table: projects, column: project_id, on_delete: async_delete}
traces:
  - {table: builds, column: build_id, on_delete: async_nullify}
`

// twoTables returns the statements that create the tables, by database.
func twoTables() map[string]string {
	return map[string]string{"main": `
		CREATE TABLE projects (id bigint PRIMARY KEY);
		CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint);
		CREATE TABLE traces (id bigint PRIMARY KEY, build_id bigint);
		CREATE INDEX ON issues (project_id);
		CREATE INDEX ON traces (build_id);
		INSERT INTO projects SELECT generate_series(1, 10);
		INSERT INTO issues SELECT id, id % 10 + 1 FROM generate_series(1, 100) AS id;
		INSERT INTO traces SELECT id, id FROM generate_series(1, 100) AS id;`, "ci": `
		CREATE TABLE builds (id bigint PRIMARY KEY, project_id bigint);
		CREATE INDEX ON builds (project_id);
		INSERT INTO builds SELECT id, id % 10 + 1 FROM generate_series(1, 100) AS id;`}
}

func newTwoDatabases(t *testing.T, jobs string, main, ci *pgtest.Database) *TwoDatabases {
	s := &TwoDatabases{Site: NewSite(t, main), Ci: ci, jobs: jobs}
	s.Write("loose_foreign_keys.yml", twoDefinitions)
	s.MakeUnreachable("")
	return s
}

// PlainTwoDatabases returns a site in which Sexton is not installed.
func PlainTwoDatabases(t *testing.T, jobs string) *TwoDatabases {
	main, ci := pgtest.New(t), pgtest.New(t)
	main.Exec(twoTables()["main"])
	ci.Exec(twoTables()["ci"])
	return newTwoDatabases(t, jobs, main, ci)
}

// InstalledTwoDatabases returns a site in which Sexton is installed in both databases.
// The databases are copies of templates.
func InstalledTwoDatabases(t *testing.T, jobs string) *TwoDatabases {
	copyOf := func(name, other string) *pgtest.Database {
		return pgtest.FromTemplate(t, name+" with jobs in "+jobs, func(ctx context.Context, url string) error {
			databases := map[string]*pgtest.Database{name: {URL: url}, other: pgtest.New(t)}
			for database, sql := range twoTables() {
				if err := execute(ctx, databases[database].URL, sql); err != nil {
					return err
				}
			}
			return newTwoDatabases(t, jobs, databases["main"], databases["ci"]).install()
		})
	}
	return newTwoDatabases(t, jobs, copyOf("main", "ci"), copyOf("ci", "main"))
}

// MakeUnreachable writes a sexton.yaml in which the URL of the given database leads to no
// server. With an empty name, both databases can be reached.
func (s *TwoDatabases) MakeUnreachable(name string) {
	s.Tb.Helper()
	urls := map[string]string{"main": s.URL, "ci": s.Ci.URL}
	if name != "" {
		urls[name] = "postgres://user:hidden@/app?host=" + s.Dir
	}
	s.Write("sexton.yaml", fmt.Sprintf("databases:\n  main: {url: %q}\n  ci: {url: %q}\njobs: {database: %s}\n",
		urls["main"], urls["ci"], s.jobs))
}

// SiteOf returns a Site for one of the databases.
func (s *TwoDatabases) SiteOf(name string) *Site {
	if name == "main" {
		return s.Site
	}
	return &Site{Database: s.Ci, Tb: s.Tb, Dir: s.Dir, Environ: s.Environ}
}

// Snapshots returns the snapshots of both databases.
func (s *TwoDatabases) Snapshots() [][]string {
	s.Tb.Helper()
	return append(s.SiteOf("main").Snapshot(), s.SiteOf("ci").Snapshot()...)
}

// UnreachableError returns the error that commands print if the given database cannot be
// reached.
func (s *TwoDatabases) UnreachableError(name string) string {
	line, column := 2, 15
	if name == "ci" {
		line, column = 3, 13
	}
	return fmt.Sprintf("sexton: %s:%d:%d: databases.%s.url: database %s cannot be reached: no server answers at %s port 5432: "+
		"no such file or directory (start it, or correct host and port)\n", s.Path("sexton.yaml"), line, column, name,
		name, s.Dir)
}

// EachJobsDatabase runs a test with the jobs in ci, which has only children. If Long is
// set, it also runs the test with the jobs in main.
func EachJobsDatabase(t *testing.T, test func(t *testing.T, jobs string)) {
	databases := []string{"ci"}
	if pgtest.Long {
		databases = append(databases, "main")
	}
	for _, jobs := range databases {
		t.Run("jobs in "+jobs, func(t *testing.T) {
			t.Parallel()
			test(t, jobs)
		})
	}
}
