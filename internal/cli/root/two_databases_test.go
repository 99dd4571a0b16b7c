package root_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

func TestMigrateTwoDatabases(t *testing.T) {
	t.Parallel()
	clitest.EachJobsDatabase(t, func(t *testing.T, jobs string) {
		s := clitest.PlainTwoDatabases(t, jobs)
		untouched := s.Snapshots()
		r := s.Run("migrate", "status")
		require.Equal(t, 3, r.Code)
		require.Equal(t, "sexton: schema of database main: component base is not installed; run `sexton migrate up`\n",
			r.Stderr)
		up := s.OK("migrate", "up")
		for _, name := range []string{"main", "ci"} {
			require.Regexp(t, `(?m)^`+name+` +base +0 +[1-9]$`, up)
			require.Equal(t, name == jobs, strings.Contains(strings.Join(strings.Fields(up), " "), name+" jobs"),
				"the tables of jobs are in %s: %s", jobs, up)
			require.Equal(t, [][]string{{"t", fmt.Sprint(name == jobs)[:1]}},
				s.SiteOf(name).Rows("SELECT to_regclass('sexton.fences') IS NOT NULL, to_regclass('sexton.leases') IS NOT NULL"))
		}
		s.OK("migrate", "up")
		require.Equal(t, 7, strings.Count(s.OK("migrate", "status"), "\n"),
			"a heading, four components in the jobs database, and two in the other")

		s.OK("triggers", "install")
		s.Exec("DELETE FROM projects WHERE id = 1")
		before := s.Snapshots()
		s.RequireError(1, "database main still has pending tombstones (1)", "migrate", "down")
		require.Equal(t, before, s.Snapshots(), "neither database is changed")
		s.Ci.Exec("DELETE FROM builds WHERE id = 1")
		s.Exec("DELETE FROM loose_foreign_keys_deleted_records")
		before = s.Snapshots()
		s.RequireError(1, "database ci still has pending tombstones (1)", "migrate", "down")
		require.Equal(t, before, s.Snapshots(), "the first database is not changed either")

		require.Contains(t, s.OK("migrate", "down", "--force"), "ci: 3 triggers removed\n")
		require.Equal(t, "main: nothing is installed\nci: nothing is installed\n", s.OK("migrate", "down"))
		require.Len(t, s.Snapshots(), len(untouched))
	})
}

// A role with the printed privileges for a database without jobs, and with privileges on
// the children, can clean up the children in that database.
func TestGrantsForADatabaseWithChildrenOnly(t *testing.T) {
	t.Parallel()
	s := clitest.InstalledTwoDatabases(t, "main")
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions+
		"builds:\n  - {table: projects, column: project_id, on_delete: async_delete, "+
		"cleaner_class: \"Ci::JobArtifacts::LooseForeignKeyCleanerService\"}\n")
	s.OK("triggers", "install")
	role := s.Ci.CreateRole()
	grants := s.OK("grants", "--database", "ci", "--app", role, "--worker", role, "--viewer", role)
	require.NotContains(t, grants, "river")
	quoted := pgx.Identifier{role}.Sanitize()
	s.Ci.Exec(grants)
	s.Ci.Exec("REVOKE ALL ON builds FROM " + quoted)
	s.Environ = append(s.Environ, "SEXTON_DATABASES__CI__URL="+s.Ci.AsRole(role))
	report, _ := s.RunDoctor(5)
	_, lines := s.CheckResult(report, "child_privileges")
	require.Equal(t,
		[]string{"error | builds[0] | DIR/loose_foreign_keys.yml:6:5: the database role lacks DELETE, SELECT, UPDATE on table public.builds" +
			" | GRANT DELETE, SELECT, UPDATE ON public.builds TO " + role + ";"}, lines)
	s.Ci.Exec("GRANT SELECT, UPDATE, DELETE ON builds TO " + quoted)
	s.Exec("DELETE FROM projects WHERE id = 1")
	require.Contains(t, s.OK("job", "run", clitest.Kind, "--database", "main"), "deleted    20 rows")
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, s.Ci,
		"SELECT count(*) FROM sexton.events WHERE kind = 'files_orphaned'"))

	// The cleanup writes events in the database of the children.
	s.Ci.Exec("REVOKE INSERT ON sexton.events FROM " + quoted)
	report, _ = s.RunDoctor(5)
	_, lines = s.CheckResult(report, "privileges")
	require.Equal(t, []string{"error | sexton.events | role " + role +
		" lacks INSERT on table sexton.events | GRANT INSERT ON TABLE sexton.events TO " + role + ";"}, lines)
}

// Each database with retention rules has its own job, plan, privileges and failures.
func TestRulesInTwoDatabases(t *testing.T) {
	t.Parallel()
	clitest.EachJobsDatabase(t, func(t *testing.T, jobs string) {
		s := clitest.PlainTwoDatabases(t, jobs)
		for _, db := range []*pgtest.Database{s.Database, s.Ci} {
			db.Exec(`CREATE TABLE logs (id bigint PRIMARY KEY, at timestamptz); CREATE INDEX ON logs (at);
				CREATE TABLE lines (log_id bigint REFERENCES logs); CREATE INDEX ON lines (log_id);
				INSERT INTO logs SELECT n, now() - interval '2 days' FROM generate_series(1, 3) AS n`)
		}
		s.Ci.Exec("INSERT INTO lines VALUES (1)")
		s.Environ = append(s.Environ, "SEXTON_RETENTION__ENABLED=true",
			"SEXTON_RETENTION__RULES=[{table: logs, column: at, keep: 1d, database: ci}, {table: logs, column: at, keep: 3d, database: main}]")
		s.OK("migrate", "up")
		s.OK("triggers", "install")
		worker := s.Ci.CreateRole()
		grants := s.OK("grants", "--worker", worker, "--database", "ci")
		require.Contains(t, grants, "GRANT DELETE, SELECT, UPDATE ON TABLE public.logs TO")
		require.Contains(t, s.OK("plan"), "logs.at: every row of the table is due (check the column and keep")
		require.Regexp(t, `logs\.at +3 `, s.OK("plan"))
		report, _ := s.RunDoctor(5)
		_, lines := s.CheckResult(report, "retention")
		require.Len(t, lines, 3, "the key without an action in both databases, and that every row in ci is due")

		s.OK("job", "run", "retention_cleanup", "--database", "main")
		require.Equal(t, [][]string{{"3"}}, s.Rows("SELECT count(*) FROM logs"))
		s.RequireError(1, "1 of the rules failed: logs.at: lines: the row with", "job", "run", "retention_cleanup", "--database", "ci")
		require.Equal(t, [][]string{{"1"}}, s.Ci.Rows("SELECT id FROM logs"))
		require.Regexp(t, `\nretention +ci +logs\.at +rule logs\.at +1 `, s.OK("failures", "list"))
		s.Ci.Exec("DELETE FROM lines")
		require.Equal(t, "1 rule due now\n", s.OK("failures", "retry", "retention", "logs.at", "--database", "ci"))
		s.OK("job", "run", "retention_cleanup", "--database", "ci")
		require.Empty(t, s.Ci.Rows("SELECT id FROM logs"))
	})
}

func TestTriggersInTwoDatabases(t *testing.T) {
	t.Parallel()
	clitest.EachJobsDatabase(t, func(t *testing.T, jobs string) {
		s := clitest.PlainTwoDatabases(t, jobs)
		s.OK("migrate", "up")
		r := s.Run("triggers", "status")
		require.Equal(t, 5, r.Code)
		require.Regexp(t, `(?m)^ci +missing +public\.builds +sexton_track`, r.Stdout)
		installed := s.OK("triggers", "install")
		require.Regexp(t, `(?m)^main: created sexton_track on public\.projects$`, installed)
		require.Regexp(t, `(?m)^ci: created sexton_track on public\.builds$`, installed)
		require.Equal(t,
			"main: all triggers match the definitions\nci: all triggers match the definitions\n",
			s.OK("triggers", "status"))
		before := s.Snapshots()
		s.OK("triggers", "install")
		require.Equal(t, before, s.Snapshots())
		require.Equal(t, "main: 3 triggers removed\nci: 3 triggers removed\n", s.OK("triggers", "uninstall"))
		require.Equal(t, 5, s.Run("triggers", "status").Code)
	})
}

func TestTombstonesOfTwoDatabases(t *testing.T) {
	t.Parallel()
	clitest.EachJobsDatabase(t, func(t *testing.T, jobs string) {
		s := clitest.InstalledTwoDatabases(t, jobs)
		s.Exec("DELETE FROM projects WHERE id = 1; UPDATE loose_foreign_keys_deleted_records SET id = 1, cleanup_attempts = 3, consume_after = now() + interval '1 hour'")
		s.Ci.Exec("DELETE FROM builds WHERE id = 7; UPDATE loose_foreign_keys_deleted_records SET id = 1, cleanup_attempts = 3, consume_after = now() + interval '1 hour'")
		require.Regexp(t,
			`\ntombstones +main +1 +public\.projects, key 1 .*\ntombstones +ci +1 +public\.builds, key 7 .*\n$`,
			s.OK("failures", "list"))
		s.RequireError(2, `tombstones need --database NAME, because each database has its own (configured: main, ci)`, "failures", "retry", "tombstones", "1")
		s.MakeUnreachable(map[string]string{"main": "ci", "ci": "main"}[jobs])
		require.Equal(t, "1 tombstone due now\n", s.OK("failures", "retry", "tombstones", "--all", "--database", jobs))
		s.MakeUnreachable("")
		other := map[string]string{"main": "ci", "ci": "main"}[jobs]
		require.Equal(t, "1 tombstone due now\n", s.OK("failures", "retry", "tombstones", "1", "--database", other))
	})
}

// If one of two databases cannot be reached, commands that need both databases change
// nothing. Commands that need only the jobs database work.
func TestOneOfTwoDatabasesIsDown(t *testing.T) {
	t.Parallel()
	clitest.EachJobsDatabase(t, func(t *testing.T, jobs string) {
		s := clitest.InstalledTwoDatabases(t, jobs)
		down := map[string]string{"main": "ci", "ci": "main"}[jobs]
		s.Exec("DELETE FROM projects WHERE id = 1")
		s.Ci.Exec("DELETE FROM builds WHERE id = 7")
		s.MakeUnreachable(down)
		before := s.Snapshots()
		requireUnreachable := func(name string, commands ...string) {
			for _, command := range commands {
				r := s.Run(strings.Fields(command)...)
				require.Equal(t, 4, r.Code, "%v: %s", command, r.Stderr)
				require.Empty(t, r.Stdout, command)
				require.Equal(t, s.UnreachableError(name), r.Stderr, command)
			}
		}
		requireUnreachable(down, "migrate up", "migrate status", "migrate down", "migrate down --force", "triggers install",
			"triggers status", "triggers uninstall",
			"audit --database "+down, "job run "+clitest.Kind+" --database "+down)
		require.Equal(t, "ok: 2 databases, 3 definitions\n", s.OK("config", "check"))
		require.Regexp(t, `(?m)^`+clitest.Kind+` +main .*\n`+clitest.Kind+` +ci `, s.OK("job", "list"))
		require.Contains(t, s.OK("status"), jobs)
		require.Equal(t, before, s.Snapshots())
		s.OK("pause", clitest.Kind)
		s.OK("resume", clitest.Kind)

		// If the jobs database cannot be reached, only commands that read files work.
		s.MakeUnreachable(jobs)
		before = s.Snapshots()
		requireUnreachable(jobs, "migrate status", "triggers status", "job list", "pause "+clitest.Kind, "resume "+clitest.Kind,
			"status", "plan", "audit", "job run "+clitest.Kind+" --database "+down)
		require.Equal(t, "ok: 2 databases, 3 definitions\n", s.OK("config", "check"))
		require.Equal(t, before, s.Snapshots())
	})
}

// Configuring one database under two names is an error, because each name would treat the
// triggers of the other name as surplus.
func TestOneDatabaseUnderTwoNames(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Write("sexton.yaml",
		fmt.Sprintf("databases:\n  main: {url: %q, tables: [projects]}\n  twin: {url: %q, tables: [issues]}\n", s.URL,
			s.URL))
	for _, command := range []string{"triggers install", "triggers status", "plan", "job run " + clitest.Kind} {
		s.RequireError(2, "sexton.yaml:3:3: databases.twin: is the same database as main, with the same schema",
			strings.Fields(command)...)
	}
}
