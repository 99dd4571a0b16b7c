package root_test

import (
	"encoding/json"
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
	clitest.EachJobs(t, func(t *testing.T, jobs string) {
		s := clitest.PlainTwo(t, jobs)
		untouched := s.Snapshots()
		r := s.Run("migrate", "status")
		require.Equal(t, 3, r.Code)
		require.Equal(t, "sexton: schema of database main: component base is not installed; run `sexton migrate up`\n", r.Stderr)
		up := s.OK("migrate", "up")
		for _, name := range []string{"main", "ci"} {
			require.Regexp(t, `(?m)^`+name+` +base +0 +[1-9]$`, up)
			require.Equal(t, name == jobs, strings.Contains(strings.Join(strings.Fields(up), " "), name+" jobs"), "jobs' tables are in %s: %s", jobs, up)
			require.Equal(t, [][]string{{"t", fmt.Sprint(name == jobs)[:1]}},
				s.At(name).Rows("SELECT to_regclass('sexton.fences') IS NOT NULL, to_regclass('sexton.leases') IS NOT NULL"))
		}
		s.OK("migrate", "up")
		require.Equal(t, 7, strings.Count(s.OK("migrate", "status"), "\n"), "heading, four components and, without jobs, two")

		s.OK("triggers", "install")
		s.Exec("DELETE FROM projects WHERE id = 1")
		before := s.Snapshots()
		s.Says(1, "database main still has pending tombstones (1)", "migrate", "down")
		require.Equal(t, before, s.Snapshots(), "nothing is taken away anywhere")
		s.Ci.Exec("DELETE FROM builds WHERE id = 1")
		s.Exec("DELETE FROM loose_foreign_keys_deleted_records")
		before = s.Snapshots()
		s.Says(1, "database ci still has pending tombstones (1)", "migrate", "down")
		require.Equal(t, before, s.Snapshots(), "not in the first one either")

		require.Contains(t, s.OK("migrate", "down", "--force"), "ci: 3 triggers removed\n")
		require.Equal(t, "main: nothing is installed\nci: nothing is installed\n", s.OK("migrate", "down"))
		require.Len(t, s.Snapshots(), len(untouched))
	})
}

// A role with what is printed for a database without jobs, and rights on the children, can clean up there.
func TestGrantsForADatabaseWithChildrenOnly(t *testing.T) {
	t.Parallel()
	s := clitest.InstalledTwo(t, "main")
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions+"builds:\n  - {table: projects, column: project_id, on_delete: async_delete, "+
		"cleaner_class: \"Ci::JobArtifacts::LooseForeignKeyCleanerService\"}\n")
	s.OK("triggers", "install")
	role := s.Ci.CreateRole()
	printed := s.OK("migrate", "up", "--print-grants", "--application", role, "--worker", role, "--viewer", role)
	_, grants, found := strings.Cut(printed, "-- database ci\n")
	require.True(t, found)
	require.NotContains(t, grants, "river")
	quoted := pgx.Identifier{role}.Sanitize()
	s.Ci.Exec(grants)
	s.Environ = append(s.Environ, "SEXTON_DATABASES__CI__URL="+s.Ci.AsRole(role))
	report, _ := s.Examined(5)
	_, lines := s.Diagnosis(report, "child_privileges")
	require.Equal(t, []string{"error | builds[0] | DIR/loose_foreign_keys.yml:6:5: the database role lacks DELETE, SELECT, UPDATE on table public.builds" +
		" | GRANT DELETE, SELECT, UPDATE ON public.builds TO " + role}, lines)
	s.Ci.Exec("GRANT SELECT, UPDATE, DELETE ON builds TO " + quoted)
	s.Exec("DELETE FROM projects WHERE id = 1")
	require.Contains(t, s.OK("job", "run", clitest.Kind, "--database", "main"), "deleted    20 rows")
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, s.Ci, "SELECT count(*) FROM sexton.events WHERE kind = 'files_orphaned'"))

	// The outbox in the children's database is written to there.
	s.Ci.Exec("REVOKE INSERT ON sexton.events FROM " + quoted)
	report, _ = s.Examined(5)
	_, lines = s.Diagnosis(report, "privileges")
	require.Equal(t, []string{"error | sexton.events | role " + role + " lacks INSERT on table sexton.events | GRANT INSERT ON TABLE sexton.events TO " + role}, lines)
}

func TestTriggersInTwoDatabases(t *testing.T) {
	t.Parallel()
	clitest.EachJobs(t, func(t *testing.T, jobs string) {
		s := clitest.PlainTwo(t, jobs)
		s.OK("migrate", "up")
		r := s.Run("triggers", "status")
		require.Equal(t, 5, r.Code)
		require.Regexp(t, `(?m)^ci +missing +public\.builds +sexton_track`, r.Stdout)
		installed := s.OK("triggers", "install")
		require.Regexp(t, `(?m)^main: created sexton_track on public\.projects$`, installed)
		require.Regexp(t, `(?m)^ci: created sexton_track on public\.builds$`, installed)
		require.Equal(t, "main: all triggers are as the definitions need them\nci: all triggers are as the definitions need them\n", s.OK("triggers", "status"))
		before := s.Snapshots()
		s.OK("triggers", "install")
		require.Equal(t, before, s.Snapshots())
		require.Equal(t, "main: 3 triggers removed\nci: 3 triggers removed\n", s.OK("triggers", "uninstall"))
		require.Equal(t, 5, s.Run("triggers", "status").Code)
	})
}

func TestTombstonesOfTwoDatabases(t *testing.T) {
	t.Parallel()
	clitest.EachJobs(t, func(t *testing.T, jobs string) {
		s := clitest.InstalledTwo(t, jobs)
		s.Exec("DELETE FROM projects WHERE id = 1; UPDATE loose_foreign_keys_deleted_records SET id = 1, cleanup_attempts = 3, consume_after = now() + interval '1 hour'")
		s.Ci.Exec("DELETE FROM builds WHERE id = 7; UPDATE loose_foreign_keys_deleted_records SET id = 1, cleanup_attempts = 3, consume_after = now() + interval '1 hour'")
		require.Regexp(t, `\n1 +main +public\.projects +1 .*\n1 +ci +public\.builds +7 .*\n$`, s.OK("tombstones", "list"))
		require.NotContains(t, s.OK("tombstones", "list", "--database", "ci"), "projects")
		s.Says(2, "--id needs --database: each database numbers its own tombstones", "tombstones", "retry", "--id", "1")
		s.Without(map[string]string{"main": "ci", "ci": "main"}[jobs])
		require.Equal(t, jobs+": 1 failed tombstone due now\n", s.OK("tombstones", "retry", "--all", "--database", jobs))
		s.Without("")
		require.Contains(t, s.OK("tombstones", "retry", "--all"), map[string]string{"main": "ci", "ci": "main"}[jobs]+": 1 failed tombstone due now\n")
	})
}

// Commands that are about all databases need all of them, and change nothing otherwise; what is about the jobs goes on.
func TestOneOfTwoDatabasesIsDown(t *testing.T) {
	t.Parallel()
	clitest.EachJobs(t, func(t *testing.T, jobs string) {
		s := clitest.InstalledTwo(t, jobs)
		down := map[string]string{"main": "ci", "ci": "main"}[jobs]
		s.Exec("DELETE FROM projects WHERE id = 1")
		s.Ci.Exec("DELETE FROM builds WHERE id = 7")
		s.Without(down)
		before := s.Snapshots()
		unreached := func(name string, commands ...string) {
			for _, command := range commands {
				r := s.Run(strings.Fields(command)...)
				require.Equal(t, 4, r.Code, "%v: %s", command, r.Stderr)
				require.Empty(t, r.Stdout, command)
				require.Equal(t, s.Unreached(name), r.Stderr, command)
			}
		}
		unreached(down, "migrate up", "migrate status", "migrate down", "migrate down --force", "triggers install", "triggers status", "triggers uninstall",
			"tombstones list", "tombstones retry --all", "tombstones list --database "+down, "audit --database "+down, "job run "+clitest.Kind+" --database "+down)
		require.Equal(t, "ok: 2 databases, 3 definitions\n", s.OK("config", "check"))
		require.Contains(t, s.OK("tombstones", "list", "--database", jobs), "public.")
		require.Regexp(t, `(?m)^`+clitest.Kind+` +main .*\n`+clitest.Kind+` +ci `, s.OK("job", "list"))
		require.Contains(t, s.OK("status"), jobs)
		require.Equal(t, before, s.Snapshots())
		s.OK("pause", clitest.Kind)
		s.OK("resume", clitest.Kind)

		// Without the jobs, nothing but the files can be looked at.
		s.Without(jobs)
		before = s.Snapshots()
		unreached(jobs, "migrate status", "triggers status", "tombstones list --database "+down, "job list", "pause "+clitest.Kind, "resume "+clitest.Kind,
			"status", "plan", "audit", "job run "+clitest.Kind+" --database "+down)
		require.Equal(t, "ok: 2 databases, 3 definitions\n", s.OK("config", "check"))
		require.Equal(t, before, s.Snapshots())
	})
}

func TestPlanOfTwoDatabases(t *testing.T) {
	t.Parallel()
	clitest.EachJobs(t, func(t *testing.T, jobs string) {
		s := clitest.InstalledTwo(t, jobs)
		s.Ci.Exec("DROP INDEX builds_project_id_idx")
		s.Exec("DELETE FROM projects WHERE id <= 2")
		before := s.Snapshots()
		r := s.Run("plan")
		require.Zero(t, r.Code, r.Stderr)
		require.Regexp(t, `(?m)^builds \(ci\) +project_id +projects +async_delete +2 +0 +20 +Seq Scan on builds +traces\.build_id \(async_nullify\)$`, r.Stdout)
		require.Regexp(t, `(?m)^issues +project_id +projects +async_delete +2 +0 +20 `, r.Stdout)
		require.Regexp(t, `(?m)^traces \(main\) +build_id +builds +async_nullify +0 +0 +0 +(Bitmap Heap|Index) Scan using traces_build_id_idx `, r.Stdout)
		require.Contains(t, r.Stdout, "main: 2 definitions, 2 tombstones due and 0 put off, 40 rows to delete and 0 to change, 1 index missing\n"+
			"\n-- in database ci, builds: no index begins with project_id, so every statement reads all of builds\n"+
			"CREATE INDEX CONCURRENTLY IF NOT EXISTS builds_project_id_idx ON public.builds (project_id);\n")
		builds := s.JSON(0, "plan").([]any)[0].(map[string]any)["definitions"].([]any)[0].(map[string]any)
		require.Equal(t, "ci", builds["child_database"])

		down := map[string]string{"main": "ci", "ci": "main"}[jobs]
		s.Without(down)
		r = s.Run("plan", "--json")
		require.Equal(t, 4, r.Code)
		require.Contains(t, r.Stderr, s.Unreached(down))
		var plans []map[string]any
		require.NoError(t, json.Unmarshal([]byte(r.Stdout), &plans))
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
		require.Contains(t, s.Run("plan").Stdout, down+": cannot be reached\n")
		s.Without("")
		require.Equal(t, before, s.Snapshots())
	})
}

func TestAuditOfTwoDatabases(t *testing.T) {
	t.Parallel()
	clitest.EachJobs(t, func(t *testing.T, jobs string) {
		s := clitest.InstalledTwo(t, jobs)
		s.Ci.Exec("INSERT INTO builds VALUES (1000, 77)")
		s.Untracked("id <= 2")
		before := s.Snapshots()
		r := s.Run("audit")
		require.Equal(t, 5, r.Code, r.Stderr)
		require.Regexp(t, `(?m)^main +builds \(ci\) +project_id +projects +11 +3 +21 +such as 1, 2, 77$`, r.Stdout)
		require.Regexp(t, `(?m)^main +issues +project_id +projects +10 +2 +20 `, r.Stdout)
		require.Regexp(t, `(?m)^ci +traces \(main\) +build_id +builds +100 +0 +0 +-$`, r.Stdout)

		down := map[string]string{"main": "ci", "ci": "main"}[jobs]
		s.Without(down)
		r = s.Run("audit")
		require.Equal(t, 4, r.Code)
		require.Equal(t, s.Unreached(down), r.Stderr)
		require.Equal(t, 2+map[string]int{"main": 0, "ci": 1}[jobs], strings.Count(r.Stdout, "skipped: database "+down+" cannot be reached"), r.Stdout)
		require.Equal(t, before, s.Snapshots())
		require.Equal(t, 4, s.Run("audit", "--table", "builds").Code)
		require.Contains(t, s.Run("audit", "--table", "bilds").Stderr, "no definition has the child table bilds; did you mean builds?")

		s.Without("")
		require.Regexp(t, `\n21 rows of 3 orphaned keys, 3 tombstones left\n$`, s.OK("audit", "--repair"))
		require.Regexp(t, `, 0 tombstones left\n$`, s.OK("audit", "--repair"))
		s.OK("job", "run", clitest.Kind, "--database", "main")
		s.OK("job", "run", clitest.Kind, "--database", "ci")
		require.Regexp(t, `\n0 rows of 0 orphaned keys\n$`, s.OK("audit"))
		require.EqualValues(t, 80, pgtest.Scalar[int64](t, s.Ci, "SELECT count(*) FROM builds"))
		require.EqualValues(t, 80, pgtest.Scalar[int64](t, s.Database, "SELECT count(build_id) FROM traces"))
	})
}

// Under two names each would take the other one's triggers for surplus.
func TestOneDatabaseUnderTwoNames(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Write("sexton.yaml", fmt.Sprintf("databases:\n  main: {url: %q, tables: [projects]}\n  twin: {url: %q, tables: [issues]}\n", s.URL, s.URL))
	for _, command := range []string{"triggers install", "triggers status", "plan", "job run " + clitest.Kind} {
		s.Says(2, "sexton.yaml:3:3: databases.twin: is the same database as main, with the same schema", strings.Fields(command)...)
	}
}

// What an operator sees of a key of two columns, from installing the triggers to repairing orphans.
func TestCompositeKeysFromEndToEnd(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	s.Exec(`CREATE TABLE tickets (tenant integer, number text, PRIMARY KEY (tenant, number));
		CREATE TABLE comments (id bigint PRIMARY KEY, tenant integer, ticket text);
		INSERT INTO tickets SELECT t, n FROM generate_series(1, 2) AS t, (VALUES ('a'), ('a,b'), ('"')) AS names (n);
		INSERT INTO comments SELECT row_number() OVER (), tenant, number FROM tickets, generate_series(1, 10);
		INSERT INTO comments VALUES (100, 1, NULL)`)
	s.Write("loose_foreign_keys.yml", "comments:\n  - {table: tickets, column: [tenant, ticket], on_delete: async_delete}\n")
	s.OK("migrate", "up")
	r := s.Run("triggers", "install")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, ":2:30: comments[0].column: no index begins with tenant, ticket, so every statement reads all of comments")
	require.Contains(t, s.OK("triggers", "status"), "all triggers are as the definitions need them")

	s.Exec("DELETE FROM tickets WHERE tenant = 1 AND number <> 'a'")
	r = s.Run("plan")
	require.Zero(t, r.Code, r.Stderr)
	require.Empty(t, r.Stderr, "indexes are said once")
	require.Regexp(t, `(?m)^comments +tenant, ticket +tickets +async_delete +2 +0 +20 +Seq Scan on comments`, r.Stdout)
	require.Contains(t, r.Stdout, "CREATE INDEX CONCURRENTLY IF NOT EXISTS comments_tenant_ticket_idx ON public.comments (tenant, ticket);\n")
	require.Contains(t, s.Run("doctor").Stdout, "CREATE INDEX CONCURRENTLY IF NOT EXISTS comments_tenant_ticket_idx ON public.comments (tenant, ticket)")
	s.Exec("CREATE INDEX ON comments (ticket, tenant)")
	require.Contains(t, s.OK("tombstones", "list"), `{1,"a,b"}`)
	s.OK("job", "run", clitest.Kind)
	require.EqualValues(t, 41, pgtest.Scalar[int64](t, s.Database, "SELECT count(*) FROM comments"))

	s.Exec("ALTER TABLE tickets DISABLE TRIGGER ALL; DELETE FROM tickets WHERE tenant = 2; ALTER TABLE tickets ENABLE ALWAYS TRIGGER sexton_track; ALTER TABLE tickets ENABLE ALWAYS TRIGGER sexton_truncate")
	require.Equal(t, 5, s.Run("audit").Code)
	s.Run("audit", "--repair")
	s.OK("job", "run", clitest.Kind)
	require.Zero(t, s.Run("audit").Code)
	require.EqualValues(t, 11, pgtest.Scalar[int64](t, s.Database, "SELECT count(*) FROM comments"))
}
