package clitest

import (
	"context"
	"fmt"
	"testing"

	"sexton/internal/pgtest"
)

// TwoSites is a site with two databases. Ten projects have ten issues each in main and
// ten builds each in ci. Traces in main refer to builds.
type TwoSites struct {
	*Site

	Ci *pgtest.Database
	// jobs is the name of the database with the jobs, the second one in configuration
	// where it is ci.
	jobs string
}

const twoDefinitions = GoodDefinitions + `builds:
  - {table: projects, column: project_id, on_delete: async_delete}
traces:
  - {table: builds, column: build_id, on_delete: async_nullify}
`

// twoTables returns the tables of each database.
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

func twoOn(t *testing.T, jobs string, main, ci *pgtest.Database) *TwoSites {
	s := &TwoSites{Site: NewSite(t, main), Ci: ci, jobs: jobs}
	s.Write("loose_foreign_keys.yml", twoDefinitions)
	s.Without("")
	return s
}

// PlainTwo returns a site without Sexton.
func PlainTwo(t *testing.T, jobs string) *TwoSites {
	main, ci := pgtest.New(t), pgtest.New(t)
	main.Exec(twoTables()["main"])
	ci.Exec(twoTables()["ci"])
	return twoOn(t, jobs, main, ci)
}

// InstalledTwo returns a site with Sexton installed in both databases, on copies of
// templates.
func InstalledTwo(t *testing.T, jobs string) *TwoSites {
	copyOf := func(name, beside string) *pgtest.Database {
		return pgtest.FromTemplate(t, name+" with jobs in "+jobs, func(ctx context.Context, url string) error {
			databases := map[string]*pgtest.Database{name: {URL: url}, beside: pgtest.New(t)}
			for at, sql := range twoTables() {
				if err := execute(ctx, databases[at].URL, sql); err != nil {
					return err
				}
			}
			return twoOn(t, jobs, databases["main"], databases["ci"]).install()
		})
	}
	return twoOn(t, jobs, copyOf("main", "ci"), copyOf("ci", "main"))
}

// Without writes sexton.yaml with one of the databases down, or none.
func (s *TwoSites) Without(down string) {
	s.Tb.Helper()
	urls := map[string]string{"main": s.URL, "ci": s.Ci.URL}
	if down != "" {
		urls[down] = "postgres://user:hidden@/app?host=" + s.Dir
	}
	s.Write("sexton.yaml", fmt.Sprintf("databases:\n  main: {url: %q}\n  ci: {url: %q}\njobs: {database: %s}\n",
		urls["main"], urls["ci"], s.jobs))
}

// At returns the site of a database.
func (s *TwoSites) At(name string) *Site {
	if name == "main" {
		return s.Site
	}
	return &Site{Database: s.Ci, Tb: s.Tb, Dir: s.Dir, Environ: s.Environ}
}

// Snapshots returns the snapshots of both databases.
func (s *TwoSites) Snapshots() [][]string {
	s.Tb.Helper()
	return append(s.At("main").Snapshot(), s.At("ci").Snapshot()...)
}

// Unreached returns the text of a command about a database that is down.
func (s *TwoSites) Unreached(name string) string {
	line, column := 2, 15
	if name == "ci" {
		line, column = 3, 13
	}
	return fmt.Sprintf("sexton: %s:%d:%d: databases.%s.url: database %s cannot be reached: no server answers at %s port 5432: "+
		"no such file or directory (start it, or correct host and port)\n", s.Path("sexton.yaml"), line, column, name,
		name, s.Dir)
}

// EachJobs runs a test with the jobs in the children's database and, if Long is set, with
// the jobs in the parents' database.
func EachJobs(t *testing.T, test func(t *testing.T, jobs string)) {
	places := []string{"ci"}
	if pgtest.Long {
		places = append(places, "main")
	}
	for _, jobs := range places {
		t.Run("jobs in "+jobs, func(t *testing.T) {
			t.Parallel()
			test(t, jobs)
		})
	}
}
