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

// internalReads are statements that read Sexton's tables. An application role may not run
// them.
var internalReads = []string{
	"SELECT FROM sexton.leases", "SELECT FROM sexton.runs", "SELECT FROM sexton.river_job",
	"SELECT FROM sexton.job_kinds", "SELECT FROM sexton.fences",
	"SELECT FROM sexton.swept", "SELECT FROM sexton.clients", "SELECT FROM loose_foreign_keys_deleted_records",
	"SELECT FROM users_ghost_user_migrations", "SELECT FROM sexton.backlog", "SELECT sexton.backlog_rows()",
	"SELECT FROM sexton.placeholder_rules", "SELECT sexton.backlog_of_ghost_users()",
	"SELECT sexton.job_args('tidy', '{}', '{}', '{}')",
}

// ownerChanges are statements that only the owner or the worker may run.
var ownerChanges = []string{
	"DELETE FROM sexton.events", "INSERT INTO sexton.events (kind, payload) VALUES ('k', '{}')",
	"DELETE FROM sexton.leases", "UPDATE sexton.fences SET token = 1",
	"DELETE FROM sexton.river_job", "INSERT INTO sexton.job_kinds VALUES ('k', 'q', '{}', '{}', false, 1)",
	"DELETE FROM loose_foreign_keys_deleted_records",
	"INSERT INTO sexton.generations VALUES ('k', 'd', '{}')",
	"INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.projects', 2)",
	"DELETE FROM users_ghost_user_migrations", "SELECT sexton.begin_batch('k', 0, 1, 1000, 1000, false)",
	"SELECT sexton.ghost_user()",
	"DELETE FROM users", "UPDATE groups SET name = ''", "DELETE FROM group_deletion_schedules",
	"DELETE FROM sexton.group_destructions",
	"SELECT sexton.restore_group(1, 2, '')", "TRUNCATE sexton.runs", "DROP TABLE sexton.runs",
	"CREATE TABLE sexton.mine (id int)", "CREATE TABLE public.mine (id int)",
	"CREATE OR REPLACE FUNCTION sexton.backlog_of_mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
	"ALTER TABLE projects DISABLE TRIGGER ALL",
}

func TestPrivilegesOfTheApplication(t *testing.T) {
	t.Parallel()
	s := clitest.NewRoleSite(t)
	id := s.ExecAs(t, s.Application, "DELETE FROM projects WHERE id = 1",
		"SELECT sexton.enqueue('loose_foreign_keys_cleanup', '{\"database\": \"main\"}')")[0][0]
	require.Equal(t, [][]string{{"loose_foreign_keys_cleanup", "available", "0", "<nil>"}},
		s.ExecAs(t, s.Application, "SELECT kind, state, attempt, outcome FROM sexton.job_status("+id+")"))
	require.Empty(t, s.ExecAs(t, s.Application, "SELECT kind FROM sexton.job_status(-1)"), "no job has this ID")
	require.Equal(t, [][]string{{"true"}}, s.ExecAs(t, s.Application, "SELECT sexton.delete_user(1, 2)"))
	for _, function := range []string{"schedule_group_deletion", "delete_group_now", "cancel_group_deletion"} {
		require.Equal(t, [][]string{{"true"}}, s.ExecAs(t, s.Application, "SELECT sexton."+function+"(1, 2)"), function)
	}
	s.ExecAs(t, s.Application, "SELECT kind FROM sexton.events")
	require.Len(t, s.Rows("SELECT FROM loose_foreign_keys_deleted_records"), 1)
	require.Len(t, s.Rows("SELECT FROM users_ghost_user_migrations"), 1)

	s.RequireForbidden(t, s.Application, append(append([]string{
		"SELECT FROM users", "UPDATE projects SET name = ''",
		"DELETE FROM issues",
	}, internalReads...), ownerChanges...)...)
	s.RequireError(7, "`sexton grants` prints", "status", "--database-url", s.AsRole(s.Application))
}

func TestPrivilegesOfTheWorker(t *testing.T) {
	t.Parallel()
	s := clitest.NewRoleSite(t)
	s.ExecAs(t, s.Application, "DELETE FROM projects WHERE id = 1", "SELECT sexton.delete_user(1, 2)",
		"SELECT sexton.schedule_group_deletion(1, 2)")
	for _, job := range s.JSON(0, "job", "list").([]any) {
		kind, ok := job.(map[string]any)["kind"].(string)
		require.True(t, ok)
		if job.(map[string]any)["schedule"] != "" {
			s.OK("job", "run", kind, "--database-url", s.AsRole(s.Worker))
		}
	}
	require.Equal(t, [][]string{{"2", "ghost"}, {"3", "ben"}},
		s.Rows("SELECT issues.id, username FROM issues JOIN users ON users.id = author_id ORDER BY 1"),
		"one issue was deleted with its project, one was moved to the ghost user")
	require.Equal(t, [][]string{{"0"}}, s.Rows("SELECT sum(pending) FROM sexton.backlog"))
	require.Equal(t, [][]string{{"public.issues"}, {"public.projects"}},
		s.Rows("SELECT DISTINCT l.name FROM sexton.undo AS u JOIN sexton.undo_layouts AS l ON l.id = u.layout ORDER BY 1"), "no row of a deleted user is kept")
	deleted := s.JSON(0, "undo", "list", "--database-url", s.AsRole(s.Worker)).(map[string]any)["deletions"].([]any)
	deletion := fmt.Sprintf("%.0f", deleted[len(deleted)-1].(map[string]any)["id"])
	s.JSON(6, "undo", deletion, "--database-url", s.AsRole(s.Worker))
	for _, args := range [][]string{
		{"status"},
		{"job", "list"},
		{"migrate", "status"},
		{"triggers", "status"},
		{"undo", "show", deletion},
		{"undo", "forget", deletion},
	} {
		s.OK(append(args, "--database-url", s.AsRole(s.Worker))...)
	}
	require.Equal(t, [][]string{{"1", "one"}}, s.Rows("SELECT id, name FROM projects WHERE id = 1"),
		"the project is restored without its issue, because the author is deleted")
	s.RequireForbidden(t, s.Worker, "DELETE FROM sexton.job_kinds", "DROP TABLE sexton.leases",
		"CREATE TABLE sexton.mine (id int)",
		"CREATE TABLE public.mine (id int)", "INSERT INTO users (username, email, name) VALUES ('x', 'x', 'x')",
		"ALTER TABLE projects DISABLE TRIGGER ALL")
}

func TestTablePrivilegesOfTheWorker(t *testing.T) {
	t.Parallel()
	s := clitest.NewRoleSite(t)
	report := s.Run("doctor", "--database-url", s.AsRole(s.Worker))
	require.NotRegexp(t, "GRANT (SELECT|UPDATE|DELETE|USAGE)", report.Stdout, "doctor finds no missing privileges")
	privileges := func(table string) string {
		return pgtest.Scalar[string](t, s.Database, `SELECT string_agg(name, ' ' ORDER BY name) FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS name
			WHERE has_table_privilege($1, $2, name)`, s.Worker, table)
	}
	require.Equal(t, "DELETE INSERT SELECT UPDATE", privileges("issues"),
		"issues are moved to the ghost user, and restored by undo")
	require.Equal(t, "DELETE INSERT SELECT UPDATE", privileges("merge_request_diff_files"),
		"the rows are deleted with projects, and restored by undo")
	require.Equal(t, [][]string{{"f"}}, s.Rows("SELECT has_table_privilege($1, 'organizations', 'DELETE')", s.Worker),
		"no job deletes organizations")

	// One table has a name that contains a dollar quote, has a partition, and is in
	// another schema. The role granting owns only some of the tables.
	quoted := func(role string) string { return pgx.Identifier{role}.Sanitize() }
	granting := s.CreateRole()
	s.Exec(`CREATE SCHEMA away; CREATE TABLE away."o'$sexton$" (id bigint, project_id bigint) PARTITION BY LIST (id);
		CREATE TABLE away.part PARTITION OF away."o'$sexton$" DEFAULT; CREATE INDEX ON away."o'$sexton$" (project_id);
		ALTER SCHEMA away OWNER TO ` + quoted(granting) + `; ALTER TABLE away.part OWNER TO ` + quoted(granting) + `; ALTER TABLE away."o'$sexton$" OWNER TO ` + quoted(granting))
	s.Configure(s.URL, "loose_foreign_keys: {enabled: true}\n")
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions+`"away.o'$sexton$":
  - {table: projects, column: project_id, on_delete: async_nullify}
gone:
  - {table: projects, column: project_id, on_delete: async_delete}
`)
	// The command prints one block of statements for each owner of tables.
	installer := s.CreateRole()
	s.Exec("GRANT sexton_owner TO " + quoted(installer))
	printed := s.Run("grants", "--worker", s.Viewer, "--apply", "--database-url", s.AsRole(installer))
	require.Equal(t, 7, printed.Code, printed.Stderr)
	_, block, found := strings.Cut(printed.Stdout, "-- database main, run as role "+granting+"\n")
	require.True(t, found, printed.Stdout)
	block, _, _ = strings.Cut(block, "-- database")
	s.ExecAs(t, granting, strings.Split(strings.TrimSpace(block), "\n")...)
	require.Equal(t, [][]string{{"t", "f", "t", "f"}}, s.Rows(`SELECT has_table_privilege($1, 'away.part', 'UPDATE'), has_table_privilege($1, 'away.part', 'DELETE'),
		has_schema_privilege($1, 'away', 'USAGE'), has_table_privilege($1, 'issues', 'DELETE')`, s.Viewer))
	s.Exec(`ALTER SCHEMA away OWNER TO ` + quoted(granting))
	s.ExecAs(t, granting, `CREATE TABLE away.later PARTITION OF away."o'$sexton$" FOR VALUES IN (7)`)
	require.Equal(t, [][]string{{"t"}}, s.Rows("SELECT has_table_privilege($1, 'away.later', 'UPDATE')", s.Viewer),
		"a new partition gets the same privileges")
}

// The worker gets privileges on the tables that a deletion by a retention rule reaches
// through foreign keys, and on no other tables.
func TestPrivilegesBelowRetentionRules(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	s.Exec(`CREATE TABLE sessions (id bigint PRIMARY KEY, expires_at timestamptz); CREATE INDEX ON sessions (expires_at);
		CREATE TABLE pages (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions ON DELETE CASCADE); CREATE INDEX ON pages (session_id);
		CREATE TABLE words (page_id bigint REFERENCES pages ON DELETE CASCADE); CREATE INDEX ON words (page_id);
		CREATE TABLE marks (id bigint PRIMARY KEY, page_id bigint REFERENCES pages ON DELETE SET NULL); CREATE INDEX ON marks (page_id);
		CREATE TABLE stars (mark_id bigint REFERENCES marks ON DELETE CASCADE);
		CREATE TABLE bills (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions); CREATE INDEX ON bills (session_id);
		CREATE TABLE sums (bill_id bigint REFERENCES bills ON DELETE CASCADE);
		INSERT INTO sessions SELECT n, now() - interval '1 day' FROM generate_series(1, 3) AS n;
		INSERT INTO pages VALUES (7, 2); INSERT INTO words VALUES (7); INSERT INTO marks VALUES (1, 7); INSERT INTO stars VALUES (1)`)
	s.Configure(s.URL,
		"loose_foreign_keys: {enabled: false}\nretention: {enabled: true, rules: [{table: sessions, column: expires_at, keep: 0s}]}\n")
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	worker := s.CreateRole()
	missing := []string{
		`the database role lacks DELETE, SELECT, UPDATE on table public.pages`,
		`the database role lacks DELETE, SELECT, UPDATE on table public.words`,
		`the database role lacks SELECT, UPDATE on table public.marks`,
		`the database role lacks SELECT on table public.bills`,
	}
	report := s.Run("doctor", "--role", worker).Stdout
	for _, lack := range missing {
		require.Contains(t, report, lack, "doctor checks the role of --role")
	}
	s.OK("grants", "--worker", worker, "--apply")
	require.NotContains(t, s.Run("doctor", "--role", worker).Stdout, "lacks")
	s.OK("job", "run", "retention_cleanup", "--database-url", s.AsRole(worker))
	require.Equal(t, [][]string{{"0", "0", "0", "1", "1"}}, s.Rows(`SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM pages), (SELECT count(*) FROM words),
		(SELECT count(*) FROM marks WHERE page_id IS NULL), (SELECT count(*) FROM stars)`))
	require.Equal(t, [][]string{{"f", "f", "f", "f"}}, s.Rows(`SELECT has_table_privilege($1, 'marks', 'DELETE'), has_table_privilege($1, 'stars', 'SELECT'),
		has_any_column_privilege($1, 'bills', 'UPDATE'), has_table_privilege($1, 'sums', 'SELECT')`, worker), "the worker has no other privileges")
}

// A role name with line breaks or quotes cannot end an SQL comment, so psql does not run
// the rest of the name.
func TestGrantsOfRolesWithSpecialCharacters(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	base := s.CreateRole()
	name := base[:30] + "\r\n\"DROP; --"
	quoted := pgx.Identifier{name}.Sanitize()
	s.Exec("CREATE ROLE " + quoted + "; ALTER TABLE issues OWNER TO " + quoted)
	t.Cleanup(func() { s.Exec("DROP OWNED BY " + quoted + " CASCADE; DROP ROLE " + quoted) })
	installer := s.CreateRole()
	s.Exec("GRANT sexton_owner TO " + installer)
	printed := s.OK("grants", "--worker", base, "--database-url", s.AsRole(installer))
	require.Contains(t, printed, "run as role "+base[:30]+"  \"DROP; --\n")
	s.Exec(s.OK("grants", "--worker", name, "--app", name, "--viewer", name))
	require.NotRegexp(t, "(?m)^GRANT", s.OK("grants", "--worker", name, "--app", name, "--viewer", name,
		"--check"))
}

func TestPrivilegesOfTheViewer(t *testing.T) {
	t.Parallel()
	s := clitest.NewRoleSite(t)
	s.ExecAs(t, s.Application, "DELETE FROM projects WHERE id = 1", "SELECT sexton.enqueue('loose_foreign_keys_cleanup')")
	for _, args := range [][]string{{"status"}, {"job", "list"}, {"migrate", "status"}} {
		s.OK(append(args, "--database-url", s.AsRole(s.Viewer))...)
	}
	require.Equal(t, [][]string{{"1"}}, s.ExecAs(t, s.Viewer, "SELECT sum(pending)::text FROM sexton.backlog"))
	require.Len(t, s.ExecAs(t, s.Viewer, "SELECT kind FROM sexton.river_job"), 1)
	require.Len(t, s.ExecAs(t, s.Viewer, "SELECT kind FROM sexton.job_status((SELECT max(id) FROM sexton.river_job))"), 1)
	s.RequireForbidden(t, s.Viewer, append([]string{
		"SELECT email FROM users", "SELECT FROM issues", "DELETE FROM projects",
		"SELECT sexton.enqueue('loose_foreign_keys_cleanup')", "SELECT sexton.delete_user(1, 2)",
		"UPDATE sexton.runs SET error = ''", "UPDATE sexton.river_queue SET paused_at = now()",
		"SELECT FROM sexton.leases FOR UPDATE",
	}, ownerChanges...)...)
	require.NotZero(t, s.Run("job", "run", clitest.Kind, "--database-url", s.AsRole(s.Viewer)).Code)
}

// status and the view sexton.backlog report the same backlog.
func TestStatusMatchesTheBacklogView(t *testing.T) {
	t.Parallel()
	s := clitest.NewRoleSite(t)
	// A worker stores its settings in the database, and the view uses them.
	s.Configure(s.URL, strings.Replace(clitest.EveryComponent, "placeholder_users: {enabled: true}",
		"placeholder_users: {enabled: true, max_attempts: 3, retry_period: 2h}", 1))
	s.OK("job", "run", "import_placeholder_user_cleanup", "--database-url", s.AsRole(s.Worker))
	s.Exec(`INSERT INTO loose_foreign_keys_deleted_records (primary_key_value, fully_qualified_table_name, created_at, consume_after, last_error)
		SELECT id, 'public.projects', now() - interval '1 hour', CASE WHEN id > 9999 THEN now() + interval '1 day' ELSE now() END, 'because'
		FROM generate_series(1, 10003) AS id`)
	s.Exec(`INSERT INTO users_ghost_user_migrations (user_id, consume_after, created_at) VALUES (1, now(), now() - interval '2 hours'),
		(2, now() + interval '1 hour', now())`)
	s.Exec(`UPDATE groups SET marked_for_deletion_on = current_date - 30; INSERT INTO group_deletion_schedules (group_id, user_id, marked_for_deletion_on)
		VALUES (1, 2, current_date - 30)`)
	s.Exec(`INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO users (id, username, email, name, user_type) SELECT id, 'p' || id, id || '@x.com', '', 15 FROM generate_series(11, 14) AS id;
		INSERT INTO import_placeholder_user_details (placeholder_user_id, organization_id, deletion_attempts, last_deletion_attempt_at, last_error, created_at)
		VALUES (11, 1, 0, NULL, NULL, now() - interval '3 hours'), (12, 1, 1, now() - interval '1 hour', 'kept', now()), (13, 1, 2, now() - interval '5 hours', NULL, now()),
			(14, 1, 3, now(), 'given up', now());
		INSERT INTO sexton.external_diff_removals (diff_id, key, queued_at, not_before, attempts, last_error)
		VALUES (1, 'a', now() - interval '4 hours', now(), 0, NULL), (2, 'b', now(), now() + interval '1 hour', 2, 'gone away')`)
	const columns = "SELECT deletion_table, pending, capped::text, deferred FROM sexton.backlog ORDER BY deletion_table"
	view := s.Rows(columns)
	require.Equal(t, [][]string{
		{"external_diff_removals", "2", "false", "1"},
		{"group_deletion_schedules", "1", "false", "0"},
		{"import_placeholder_user_details", "3", "false", "1"},
		{"loose_foreign_keys_deleted_records", "10000", "true", "4"},
		{"merge_request_diffs", "0", "false", "0"},
		{"users_ghost_user_migrations", "2", "false", "1"},
	}, view)
	var status [][]string
	for _, table := range s.JSON(0, "status").(map[string]any)["deletion_tables"].([]any) {
		row := table.(map[string]any)
		name, ok := row["table"].(string)
		require.True(t, ok)
		status = append(status, []string{
			name, fmt.Sprint(row["pending"]), fmt.Sprint(row["capped"]),
			fmt.Sprint(row["deferred"]),
		})
		age := pgtest.Scalar[float64](t, s.Database,
			"SELECT oldest_age_seconds FROM sexton.backlog WHERE deletion_table = $1", name)
		require.Equal(t, name != "merge_request_diffs", age > 3599, name)
		require.InDelta(t, age, row["oldest_age_seconds"], 60, name)
	}
	require.ElementsMatch(t, view, status, "status and the view have the same tables")
	require.Equal(t, [][]string{{"t", "because"}}, s.Rows(`SELECT deferred_until > now() + interval '23 hours', deferred_reason
		FROM sexton.backlog WHERE deletion_table = 'loose_foreign_keys_deleted_records'`))
}

func TestGrantsNeedRolesThatExist(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.RequireError(2, "name at least one role", "grants")
	s.RequireError(2, `role "no ""such""": the role does not exist in database main (CREATE ROLE "no ""such""" LOGIN)`,
		"grants", "--worker", `no "such"`)
	s.RequireError(2, "no database", "grants", "--worker", "x", "--database", "away")
	role := s.CreateRole()
	quoted := pgx.Identifier{role}.Sanitize()
	grants := []string{"grants", "--worker", role, "--app", role, "--viewer", role}
	require.Equal(t, 5, s.Run(append(grants, "--check")...).Code)
	blocks, _ := s.JSON(0, grants...).([]any)
	require.Len(t, blocks, 2, "one block is required, and one is optional")
	require.Equal(t, true, blocks[1].(map[string]any)["optional"])
	require.Contains(t, s.OK(append(grants, "--apply")...), "-- database main, applied: ")
	require.Equal(t, "-- no privileges are missing\n", s.OK(append(grants, "--check")...))
	require.Equal(t, [][]string{{"t", "search_path=pg_catalog, pg_temp"}},
		s.Rows("SELECT pg_has_role($1, 'pg_read_all_stats', 'USAGE'), rolconfig[1] FROM pg_roles WHERE rolname = $1",
			role))

	// `grants` prints only the missing privileges. `grants --check` succeeds if only
	// optional privileges are missing.
	s.Exec("REVOKE DELETE ON issues FROM " + quoted + "; REVOKE pg_read_all_stats FROM " + quoted)
	me := s.Rows("SELECT current_user::text")[0][0]
	require.Equal(t, "-- database main, run as role "+me+"\nGRANT DELETE ON TABLE public.issues TO "+role+";\n"+
		"-- database main, run as role "+me+", optional\n-- GRANT pg_read_all_stats TO "+role+";\n",
		s.OK(grants...))
	s.Exec("GRANT DELETE ON issues TO " + quoted)
	require.Zero(t, s.Run(append(grants, "--check")...).Code)
}
