package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// twoSites is a site whose projects have issues in its own database, main, and builds in another one, ci, each of them ten
// times ten. Traces, in main, refer to builds.
type twoSites struct {
	*site

	ci *pgtest.Database
	// jobs is the name of the database with the jobs, the second one in configuration where it is ci.
	jobs string
}

const twoDefinitions = goodDefinitions + `builds:
  - {table: projects, column: project_id, on_delete: async_delete}
traces:
  - {table: builds, column: build_id, on_delete: async_nullify}
`

// twoTables are what is in each database.
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

func twoOn(t *testing.T, jobs string, main, ci *pgtest.Database) *twoSites {
	t.Helper()
	s := &twoSites{site: newSite(t, main), ci: ci, jobs: jobs}
	s.write("loose_foreign_keys.yml", twoDefinitions)
	s.without("")
	return s
}

func plainTwo(t *testing.T, jobs string) *twoSites {
	t.Helper()
	main, ci := pgtest.New(t), pgtest.New(t)
	main.Exec(twoTables()["main"])
	ci.Exec(twoTables()["ci"])
	return twoOn(t, jobs, main, ci)
}

// installedTwo is plainTwo with Sexton in it, on copies of databases that were made once, each beside another one.
func installedTwo(t *testing.T, jobs string) *twoSites {
	t.Helper()
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

// without writes sexton.yaml with one of the databases down, or none.
func (s *twoSites) without(down string) {
	s.tb.Helper()
	urls := map[string]string{"main": s.URL, "ci": s.ci.URL}
	if down != "" {
		urls[down] = "postgres://user:hidden@/app?host=" + s.dir
	}
	s.write("sexton.yaml", fmt.Sprintf("databases:\n  main: {url: %q}\n  ci: {url: %q}\njobs: {database: %s}\n", urls["main"], urls["ci"], s.jobs))
}

// at is the site in the other database.
func (s *twoSites) at(name string) *site {
	if name == "main" {
		return s.site
	}
	return &site{Database: s.ci, tb: s.tb, dir: s.dir, environ: s.environ}
}

func (s *twoSites) snapshots() [][]string {
	s.tb.Helper()
	return append(s.at("main").snapshot(), s.at("ci").snapshot()...)
}

// untracked deletes projects without leaving tombstones.
func (s *twoSites) untracked(condition string) {
	s.Exec("ALTER TABLE projects DISABLE TRIGGER sexton_track; DELETE FROM projects WHERE " + condition +
		"; ALTER TABLE projects ENABLE ALWAYS TRIGGER sexton_track")
}

// unreached is what a command says of a database that is down.
func (s *twoSites) unreached(name string) string {
	line, column := 2, 15
	if name == "ci" {
		line, column = 3, 13
	}
	return fmt.Sprintf("sexton: %s:%d:%d: databases.%s.url: database %s cannot be reached: no server answers at %s port 5432: "+
		"no such file or directory (start it, or correct host and port)\n", s.path("sexton.yaml"), line, column, name, name, s.dir)
}

func eachJobs(t *testing.T, test func(t *testing.T, jobs string)) {
	t.Helper()
	for _, jobs := range []string{"main", "ci"} {
		t.Run("jobs in "+jobs, func(t *testing.T) {
			t.Parallel()
			test(t, jobs)
		})
	}
}

func TestMigrateTwoDatabases(t *testing.T) {
	t.Parallel()
	eachJobs(t, func(t *testing.T, jobs string) {
		t.Helper()
		s := plainTwo(t, jobs)
		untouched := s.snapshots()
		r := s.run("migrate", "status")
		require.Equal(t, 3, r.code)
		require.Equal(t, "sexton: schema of database main: component base is not installed; run `sexton migrate up`\n", r.stderr)
		up := s.ok("migrate", "up")
		for _, name := range []string{"main", "ci"} {
			require.Regexp(t, `(?m)^`+name+` +base +0 +[1-9]$`, up)
			require.Equal(t, name == jobs, strings.Contains(strings.Join(strings.Fields(up), " "), name+" jobs"), "jobs' tables are in %s: %s", jobs, up)
			require.Equal(t, [][]string{{"t", fmt.Sprint(name == jobs)[:1]}},
				s.at(name).Rows("SELECT to_regclass('sexton.fences') IS NOT NULL, to_regclass('sexton.leases') IS NOT NULL"))
		}
		once := s.snapshots()
		s.ok("migrate", "up")
		require.Equal(t, once, s.snapshots())
		require.Equal(t, 7, strings.Count(s.ok("migrate", "status"), "\n"), "heading, four components and, without jobs, two")

		s.ok("triggers", "install")
		s.Exec("DELETE FROM projects WHERE id = 1")
		before := s.snapshots()
		r = s.run("migrate", "down")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.stderr, "database main still has pending tombstones (1)")
		require.Equal(t, before, s.snapshots(), "nothing is taken away anywhere")
		s.ci.Exec("DELETE FROM builds WHERE id = 1")
		s.Exec("DELETE FROM loose_foreign_keys_deleted_records")
		before = s.snapshots()
		r = s.run("migrate", "down")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.stderr, "database ci still has pending tombstones (1)")
		require.Equal(t, before, s.snapshots(), "not in the first one either")

		require.Contains(t, s.ok("migrate", "down", "--force"), "ci: 3 triggers removed\n")
		require.Equal(t, "main: nothing is installed\nci: nothing is installed\n", s.ok("migrate", "down"))
		require.Len(t, s.snapshots(), len(untouched))
	})
}

// A role with what is printed for a database without jobs, and rights on the children, can clean up there.
func TestGrantsForADatabaseWithChildrenOnly(t *testing.T) {
	t.Parallel()
	s := installedTwo(t, "main")
	s.write("loose_foreign_keys.yml", goodDefinitions+"builds:\n  - {table: projects, column: project_id, on_delete: async_delete, "+
		"cleaner_class: \"Ci::JobArtifacts::LooseForeignKeyCleanerService\"}\n")
	s.ok("triggers", "install")
	role := s.ci.CreateRole()
	printed := s.ok("migrate", "up", "--print-grants", "--application", role, "--worker", role, "--viewer", role)
	_, grants, found := strings.Cut(printed, "-- database ci\n")
	require.True(t, found)
	require.NotContains(t, grants, "river")
	quoted := pgx.Identifier{role}.Sanitize()
	s.ci.Exec(grants)
	s.environ = append(s.environ, "SEXTON_DATABASES__CI__URL="+s.ci.AsRole(role))
	report, _ := s.examined(5)
	_, lines := s.diagnosis(report, "child_privileges")
	require.Equal(t, []string{"error | builds[0] | DIR/loose_foreign_keys.yml:6:5: the database role may not clean up table public.builds" +
		" | GRANT SELECT, UPDATE, DELETE ON public.builds TO " + role}, lines)
	s.ci.Exec("GRANT SELECT, UPDATE, DELETE ON builds TO " + quoted)
	s.Exec("DELETE FROM projects WHERE id = 1")
	require.Contains(t, s.ok("job", "run", kind, "--database", "main"), "deleted    20 rows")
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, s.ci, "SELECT count(*) FROM sexton.events WHERE kind = 'files_orphaned'"))

	// The outbox in the children's database is written to there.
	s.ci.Exec("REVOKE INSERT ON sexton.events FROM " + quoted)
	report, _ = s.examined(5)
	_, lines = s.diagnosis(report, "privileges")
	require.Equal(t, []string{"error | sexton.events | role " + role + " lacks INSERT on table sexton.events | GRANT INSERT ON TABLE sexton.events TO " + role}, lines)
}

func TestTriggersInTwoDatabases(t *testing.T) {
	t.Parallel()
	eachJobs(t, func(t *testing.T, jobs string) {
		t.Helper()
		s := plainTwo(t, jobs)
		s.ok("migrate", "up")
		r := s.run("triggers", "status")
		require.Equal(t, 5, r.code)
		require.Regexp(t, `(?m)^ci +missing +public\.builds +sexton_track`, r.stdout)
		installed := s.ok("triggers", "install")
		require.Regexp(t, `(?m)^main: created sexton_track on public\.projects$`, installed)
		require.Regexp(t, `(?m)^ci: created sexton_track on public\.builds$`, installed)
		require.Equal(t, "main: all triggers are as the definitions need them\nci: all triggers are as the definitions need them\n", s.ok("triggers", "status"))
		before := s.snapshots()
		s.ok("triggers", "install")
		require.Equal(t, before, s.snapshots())
		require.Equal(t, "main: 3 triggers removed\nci: 3 triggers removed\n", s.ok("triggers", "uninstall"))
		require.Equal(t, 5, s.run("triggers", "status").code)
	})
}

func TestTombstonesOfTwoDatabases(t *testing.T) {
	t.Parallel()
	eachJobs(t, func(t *testing.T, jobs string) {
		t.Helper()
		s := installedTwo(t, jobs)
		s.Exec("DELETE FROM projects WHERE id = 1; UPDATE loose_foreign_keys_deleted_records SET id = 1, cleanup_attempts = 3, consume_after = now() + interval '1 hour'")
		s.ci.Exec("DELETE FROM builds WHERE id = 7; UPDATE loose_foreign_keys_deleted_records SET id = 1, cleanup_attempts = 3, consume_after = now() + interval '1 hour'")
		require.Regexp(t, `\n1 +main +public\.projects +1 .*\n1 +ci +public\.builds +7 .*\n$`, s.ok("tombstones", "list"))
		require.NotContains(t, s.ok("tombstones", "list", "--database", "ci"), "projects")
		r := s.run("tombstones", "retry", "--id", "1")
		require.Equal(t, 2, r.code)
		require.Contains(t, r.stderr, "--id needs --database: each database numbers its own tombstones")
		s.without(map[string]string{"main": "ci", "ci": "main"}[jobs])
		require.Equal(t, jobs+": 1 failed tombstone due now\n", s.ok("tombstones", "retry", "--all", "--database", jobs))
		s.without("")
		require.Contains(t, s.ok("tombstones", "retry", "--all"), map[string]string{"main": "ci", "ci": "main"}[jobs]+": 1 failed tombstone due now\n")
	})
}

// Commands that are about all databases need all of them, and change nothing otherwise; what is about the jobs goes on.
func TestOneOfTwoDatabasesIsDown(t *testing.T) {
	t.Parallel()
	eachJobs(t, func(t *testing.T, jobs string) {
		t.Helper()
		s := installedTwo(t, jobs)
		down := map[string]string{"main": "ci", "ci": "main"}[jobs]
		s.Exec("DELETE FROM projects WHERE id = 1")
		s.ci.Exec("DELETE FROM builds WHERE id = 7")
		s.without(down)
		before := s.snapshots()
		for _, args := range [][]string{
			{"migrate", "up"},
			{"migrate", "status"},
			{"migrate", "down"},
			{"migrate", "down", "--force"},
			{"triggers", "install"},
			{"triggers", "status"},
			{"triggers", "uninstall"},
			{"tombstones", "list"},
			{"tombstones", "retry", "--all"},
			{"tombstones", "list", "--database", down},
			{"audit", "--database", down},
			{"job", "run", kind, "--database", down},
		} {
			r := s.run(args...)
			require.Equal(t, 4, r.code, "%v: %s", args, r.stderr)
			require.Empty(t, r.stdout, args)
			require.Equal(t, s.unreached(down), r.stderr, args)
		}
		require.Equal(t, "ok: 2 databases, 3 definitions\n", s.ok("config", "check"))
		require.Contains(t, s.ok("tombstones", "list", "--database", jobs), "public.")
		require.Regexp(t, `(?m)^`+kind+` +main .*\n`+kind+` +ci `, s.ok("job", "list"))
		require.Contains(t, s.ok("status"), jobs)
		require.Equal(t, before, s.snapshots())
		s.ok("pause", kind)
		s.ok("resume", kind)

		// Without the jobs, nothing but the files can be looked at.
		s.without(jobs)
		before = s.snapshots()
		for _, args := range [][]string{
			{"migrate", "status"},
			{"triggers", "status"},
			{"tombstones", "list", "--database", down},
			{"job", "list"},
			{"pause", kind},
			{"resume", kind},
			{"status"},
			{"plan"},
			{"audit"},
			{"job", "run", kind, "--database", down},
		} {
			r := s.run(args...)
			require.Equal(t, 4, r.code, "%v: %s", args, r.stderr)
			require.Empty(t, r.stdout, args)
			require.Equal(t, s.unreached(jobs), r.stderr, args)
		}
		require.Equal(t, "ok: 2 databases, 3 definitions\n", s.ok("config", "check"))
		require.Equal(t, before, s.snapshots())
	})
}

func TestConfigCheckOfTwoDatabases(t *testing.T) {
	t.Parallel()
	s := plainTwo(t, "main")
	s.write("sexton.yaml", "databases:\n  main: {url: postgres://h/a}\n  ci: {url: postgres://h/b, tables: [\"ci_[\"]}\njobs: {database: sec}\n")
	s.write("loose_foreign_keys.yml", "builds:\n  - {table: projects, column: project_id, on_delete: async_delete, database: cy}\n")
	r := s.run("config", "check")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "databases.ci.tables[0]: is not a pattern such as ci_* or p_ci_*")
	require.Contains(t, r.stderr, "jobs.database: is not a configured database (the databases are main, ci)")
	s.without("")
	r = s.run("config", "check")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, `builds[0].database: no database "cy" is configured (there is main, ci)`)
}

func TestPlanOfTwoDatabases(t *testing.T) {
	t.Parallel()
	eachJobs(t, func(t *testing.T, jobs string) {
		t.Helper()
		s := installedTwo(t, jobs)
		s.ci.Exec("DROP INDEX builds_project_id_idx")
		s.Exec("DELETE FROM projects WHERE id <= 2")
		before := s.snapshots()
		r := s.run("plan")
		require.Zero(t, r.code, r.stderr)
		require.Regexp(t, `(?m)^builds \(ci\) +project_id +projects +async_delete +2 +0 +20 +Seq Scan on builds +traces\.build_id \(async_nullify\)$`, r.stdout)
		require.Regexp(t, `(?m)^issues +project_id +projects +async_delete +2 +0 +20 `, r.stdout)
		require.Regexp(t, `(?m)^traces \(main\) +build_id +builds +async_nullify +0 +0 +0 +(Bitmap Heap|Index) Scan using traces_build_id_idx `, r.stdout)
		require.Contains(t, r.stdout, "main: 2 definitions, 2 tombstones due and 0 put off, 40 rows to delete and 0 to change, 1 index missing\n"+
			"\n-- in database ci, builds: no index begins with project_id, so every statement reads all of builds\n"+
			"CREATE INDEX CONCURRENTLY ON public.builds (project_id);\n")
		builds := s.json(0, "plan").([]any)[0].(map[string]any)["definitions"].([]any)[0].(map[string]any)
		require.Equal(t, "ci", builds["child_database"])

		down := map[string]string{"main": "ci", "ci": "main"}[jobs]
		s.without(down)
		r = s.run("plan", "--json")
		require.Equal(t, 4, r.code)
		require.Contains(t, r.stderr, s.unreached(down))
		var plans []map[string]any
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &plans))
		for _, plan := range plans {
			if plan["database"] == down {
				require.Contains(t, plan["unreachable"], "cannot be reached")
				require.NotContains(t, plan, "definitions")
				continue
			}
			first := plan["definitions"].([]any)[0].(map[string]any)
			require.Equal(t, down, first["child_database"])
			require.Equal(t, []any{"database " + down + " cannot be reached"}, first["findings"])
		}
		require.Contains(t, s.run("plan").stdout, down+": cannot be reached\n")
		s.without("")
		require.Equal(t, before, s.snapshots())
	})
}

func TestAuditOfTwoDatabases(t *testing.T) {
	t.Parallel()
	eachJobs(t, func(t *testing.T, jobs string) {
		t.Helper()
		s := installedTwo(t, jobs)
		s.ci.Exec("INSERT INTO builds VALUES (1000, 77)")
		s.untracked("id <= 2")
		before := s.snapshots()
		r := s.run("audit")
		require.Equal(t, 5, r.code, r.stderr)
		require.Regexp(t, `(?m)^main +builds \(ci\) +project_id +projects +11 +3 +21 +such as 1, 2, 77$`, r.stdout)
		require.Regexp(t, `(?m)^main +issues +project_id +projects +10 +2 +20 `, r.stdout)
		require.Regexp(t, `(?m)^ci +traces \(main\) +build_id +builds +100 +0 +0 +-$`, r.stdout)

		down := map[string]string{"main": "ci", "ci": "main"}[jobs]
		s.without(down)
		r = s.run("audit")
		require.Equal(t, 4, r.code)
		require.Equal(t, s.unreached(down), r.stderr)
		require.Equal(t, 2+map[string]int{"main": 0, "ci": 1}[jobs], strings.Count(r.stdout, "skipped: database "+down+" cannot be reached"), r.stdout)
		require.Equal(t, before, s.snapshots())
		require.Equal(t, 4, s.run("audit", "--table", "builds").code)
		require.Contains(t, s.run("audit", "--table", "bilds").stderr, "no definition has the child table bilds; did you mean builds?")

		s.without("")
		require.Regexp(t, `\n21 rows of 3 orphaned keys, 3 tombstones left\n$`, s.ok("audit", "--repair"))
		require.Regexp(t, `, 0 tombstones left\n$`, s.ok("audit", "--repair"))
		s.ok("job", "run", kind, "--database", "main")
		s.ok("job", "run", kind, "--database", "ci")
		require.Regexp(t, `\n0 rows of 0 orphaned keys\n$`, s.ok("audit"))
		require.EqualValues(t, 80, pgtest.Scalar[int64](t, s.ci, "SELECT count(*) FROM builds"))
		require.EqualValues(t, 80, pgtest.Scalar[int64](t, s.Database, "SELECT count(build_id) FROM traces"))
	})
}

// Under two names each would take the other one's triggers for surplus.
func TestOneDatabaseUnderTwoNames(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.write("sexton.yaml", fmt.Sprintf("databases:\n  main: {url: %q, tables: [projects]}\n  twin: {url: %q, tables: [issues]}\n", s.URL, s.URL))
	for _, command := range []string{"triggers install", "triggers status", "plan", "job run " + kind} {
		r := s.run(strings.Fields(command)...)
		require.Equal(t, 2, r.code, command)
		require.Contains(t, r.stderr, "sexton.yaml:3:3: databases.twin: is the same database as main, with the same schema", command)
	}
}
