package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

// testAdjournedGroups marks groups while two workers and a foreground run work and one
// worker is killed. Every group must be queued for destruction once, 20 s after the
// previous one, or be restored.
func testAdjournedGroups(t *testing.T, p program) {
	s := p.site(t, pgtest.New(t).URL, mainSetup(`
loose_foreign_keys: {enabled: false}
adjourned_groups: {enabled: true, schedule: "0 0 1 1 *"}
http: {listen: ""}
`, exampleapp.Schema()+`
		INSERT INTO application_settings (deletion_adjourned_period) VALUES (7);
		INSERT INTO users (id, username, email, name, admin) SELECT n, 'user' || n, n || '@example.com', 'User ' || n, n = 1 FROM generate_series(1, 2) AS n;
		INSERT INTO groups (id, name, path) SELECT n, 'Group ' || n, 'group-' || n FROM generate_series(1, 600) AS n;`,
		// The queue of group_destroy is paused, so that no group is destroyed.
		`INSERT INTO sexton.job_kinds (kind, queue, cron, max_attempts, args, defaults)
		VALUES ('group_destroy', 'group_destroy', false, 25, '{"group_id": "bigint", "user_id": "bigint"}', '{}') ON CONFLICT DO NOTHING;
		INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ('group_destroy', now(), now())`))
	first, second := s.startWorker(t, shortSilence), s.startWorker(t, shortSilence)
	s.exec(t, "SELECT sexton.schedule_group_deletion(id, 1) FROM groups")
	// Every third group was scheduled by a user without the privilege to remove it, every
	// sixth by a deleted user.
	s.exec(t, `UPDATE group_deletion_schedules SET user_id = CASE WHEN group_id % 2 = 0 THEN 404 ELSE 2 END WHERE group_id % 3 = 0;
		UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - 8`)
	s.wait(t, time.Minute, "the first groups to be queued",
		"EXISTS (SELECT FROM sexton.river_job WHERE kind = 'group_destroy')")
	s.kill(t, first)
	p.run(t, s.dir, s.url, 0, "job", "run", "adjourned_group_deletion")
	s.wait(t, time.Minute, "all groups to be queued or restored",
		"600 = (SELECT count(*) FROM sexton.river_job WHERE kind = 'group_destroy') + (SELECT count(*) FROM groups WHERE marked_for_deletion_on IS NULL)")
	second.stop(t)
	require.EqualValues(t, 400,
		s.count(t, "SELECT count(DISTINCT args ->> 'group_id') FROM sexton.river_job WHERE kind = 'group_destroy'"))
	require.EqualValues(t, 400, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE kind = 'group_destroy'"),
		"one job per group")
	require.EqualValues(t, 20, s.count(t, `SELECT min(gap)::bigint FROM (
		SELECT round(extract(epoch FROM scheduled_at - lag(scheduled_at) OVER (ORDER BY scheduled_at))) AS gap FROM sexton.river_job WHERE kind = 'group_destroy'
	) AS line`))
	require.EqualValues(t, 200,
		s.count(t, "SELECT count(*) FROM sexton.events WHERE kind = 'group_restored' AND payload -> 'user_id' = 'null'"), "one event per group")
	require.EqualValues(t, 100,
		s.count(t, "SELECT count(*) FROM sexton.events WHERE kind = 'group_restored' AND payload ->> 'reason' = 'user_missing'"))
	require.EqualValues(t, 0,
		s.count(t, "SELECT count(*) FROM groups WHERE (marked_for_deletion_on IS NULL) <> (path = 'group-' || id)"))
	require.EqualValues(t, 0, s.count(t, "SELECT count(*) FROM sexton.group_deletion_failures"))
}

// groupTree inserts a tree of three levels of groups with 50 projects, each with issues,
// and another group that is not deleted. A trigger stops sessions that delete rows of a
// table while its gate is closed.
const groupTree = dbtest.Gates + `
INSERT INTO application_settings (deletion_adjourned_period) VALUES (7);
INSERT INTO users (id, username, email, name, admin) VALUES (1, 'ada', 'ada@example.com', 'Ada', true);
INSERT INTO groups (id, parent_id, name, path) VALUES
    (1, NULL, 'One', 'one'), (2, 1, 'Two', 'two'), (3, 2, 'Three', 'three'), (4, 2, 'Four', 'four'), (9, NULL, 'Nine', 'nine');
INSERT INTO projects (id, group_id, name, path) SELECT n, (ARRAY[1, 2, 3, 4])[1 + n % 4], 'Project', 'project-' || n FROM generate_series(1, 50) AS n;
INSERT INTO projects (id, group_id, name, path) VALUES (90, 9, 'Project', 'project');
INSERT INTO issues (project_id, title) SELECT id, 'Issue ' || n FROM projects, generate_series(1, 20) AS n;
INSERT INTO milestones (project_id, title) SELECT id, 'Next' FROM projects;
UPDATE issues SET milestone_id = milestones.id FROM milestones WHERE milestones.project_id = issues.project_id;
CREATE FUNCTION stop_after_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM public.stop_at_gate(TG_TABLE_NAME);
    RETURN NULL;
END $$;
CREATE TRIGGER stop_at_gate AFTER DELETE ON issues FOR EACH STATEMENT EXECUTE FUNCTION stop_after_change();
CREATE TRIGGER stop_at_gate AFTER DELETE ON projects FOR EACH STATEMENT EXECUTE FUNCTION stop_after_change();
CREATE TRIGGER stop_at_gate AFTER DELETE ON groups FOR EACH STATEMENT EXECUTE FUNCTION stop_after_change();`

// testGroupDestroy requests a group's deletion and kills the worker three times: while it
// deletes issues, projects and a subgroup. Two more workers then delete the remaining
// rows. The other group must be kept, and each deleted project and group must have one
// event.
func testGroupDestroy(t *testing.T, p program) {
	s := p.site(t, pgtest.New(t).URL, mainSetup(`
loose_foreign_keys: {enabled: false, target: 1s}
adjourned_groups: {enabled: true}
http: {listen: ""}
`, exampleapp.Schema()+groupTree, ""))
	pass, _ := s.closeGate(t, "issues")
	s.exec(t, "SELECT sexton.delete_group_now(1, 1)")
	for _, table := range []string{"issues", "projects", "groups"} {
		s.exec(t, "INSERT INTO closed_gate VALUES ($1)", table)
		w := s.startWorker(t)
		s.wait(t, time.Minute, "the worker to stop while it deletes "+table, dbtest.AtGate)
		s.kill(t, w)
		pass()
	}
	require.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM sexton.group_destructions"))
	first, second := s.startWorker(t), s.startWorker(t)
	s.wait(t, time.Minute, "the group to be deleted", "NOT EXISTS (SELECT FROM groups WHERE id = 1)")
	first.stop(t)
	second.stop(t)
	require.EqualValues(t, 1, s.count(t, "SELECT sum(id - 8) FROM groups"), "only group 9 is left")
	require.EqualValues(t, 90, s.count(t, "SELECT sum(id) FROM projects"))
	require.EqualValues(t, 20,
		s.count(t, "SELECT count(*) FROM issues WHERE project_id = 90 AND milestone_id IS NOT NULL"))
	require.EqualValues(t, 20, s.count(t, "SELECT count(*) FROM issues"))
	require.EqualValues(t, 50, s.count(t, "SELECT count(*) FROM sexton.events WHERE kind = 'project_destroyed'"))
	require.EqualValues(t, 50,
		s.count(t, "SELECT count(DISTINCT payload) FROM sexton.events WHERE kind = 'project_destroyed'"))
	require.EqualValues(t, 4,
		s.count(t, "SELECT count(DISTINCT payload) FROM sexton.events WHERE kind = 'group_destroyed'"))
	require.EqualValues(t, 4, s.count(t, "SELECT count(*) FROM sexton.events WHERE kind = 'group_destroyed'"))
	require.EqualValues(t, 0, s.count(t, "SELECT count(*) FROM sexton.group_destructions"))
}

// docBlocks returns the fenced blocks of one language in a file of docs, in order.
func docBlocks(t *testing.T, file, language string) []string {
	return fencedBlocks(string(pgtest.Must(os.ReadFile(filepath.Join("..", "docs", file)))(t)), language)
}

// fencedBlocks returns the fenced blocks of one language in a Markdown text, in order. It
// removes the indentation of blocks that are inside a list.
func fencedBlocks(text, language string) []string {
	var blocks []string
	for _, match := range regexp.MustCompile("(?ms)^( *)```"+language+
		"\n(.*?)\n *```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, strings.ReplaceAll("\n"+match[2], "\n"+match[1], "\n")[1:])
	}
	return blocks
}

// sqlSite is a site of the reference application whose worker has only the privileges of
// the documented worker role.
type sqlSite struct {
	workSite

	worker *runningWorker
	// application is the URL of a role with the application's privileges, which may also
	// delete projects and update its position in the outbox.
	application string
}

func newSQLSite(t *testing.T, p program) sqlSite {
	db := pgtest.New(t)
	application, worker, viewer := db.CreateRole(), db.CreateRole(), db.CreateRole()
	pool := pgtest.Must(pgxpool.New(t.Context(), db.URL))(t)
	t.Cleanup(pool.Close)
	s := sqlSite{
		workSite:    workSite{program: p, url: db.URL, dir: t.TempDir(), pool: pool},
		application: db.AsRole(application),
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "sexton.yaml"),
		[]byte("databases: {main: {url: \"${DATABASE_URL}\"}}\nghost_users: {enabled: true}\nhttp: {listen: \"\"}\nlog: {format: json}\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "loose_foreign_keys.yml"),
		[]byte("issues:\n  - {table: projects, column: project_id, on_delete: async_delete}\n"+docBlocks(t, "events.md",
			"yaml")[0]), 0o600))
	s.exec(t, exampleapp.Schema())
	s.exec(t, `
		ALTER TABLE issues DROP CONSTRAINT IF EXISTS issues_project_id_fkey;
		INSERT INTO users (id, username, email, name) VALUES (1, 'ada', 'ada@example.com', 'Ada'), (2, 'ben', 'ben@example.com', 'Ben');
		INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'one', 'one'), (2, 1, 'two', 'two');
		INSERT INTO issues (id, project_id, title, author_id) VALUES (1, 1, 'by Ada', 1), (2, 2, 'by Ada', 1), (3, 2, 'by Ben', 2);
		CREATE TABLE attachments (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), project_id bigint NOT NULL, storage_key text, bucket text);
		CREATE INDEX ON attachments (project_id);
		INSERT INTO attachments (project_id, storage_key, bucket) VALUES (2, 'a/7', 'uploads');`)
	p.run(t, s.dir, db.URL, 0, "migrate", "up")
	p.run(t, s.dir, db.URL, 0, "triggers", "install")
	p.run(t, s.dir, db.URL, 0, "grants", "--app", application, "--worker", worker, "--viewer", viewer, "--apply")
	s.exec(t, docBlocks(t, "events.md", "sql")[0])
	s.exec(t, "GRANT SELECT, DELETE ON projects TO "+application+
		"; GRANT SELECT, UPDATE ON file_places TO "+application+
		"; GRANT INSERT ON files_to_remove TO "+application)
	s.worker = s.startWorker(t, "DATABASE_URL="+db.AsRole(worker))
	return s
}

// requireWorkDone waits until the requested deletions are done.
func (s sqlSite) requireWorkDone(t *testing.T) {
	s.wait(t, stopLimit, "the work to be done", `NOT EXISTS (SELECT FROM sexton.backlog WHERE pending > 0) AND NOT EXISTS (SELECT FROM users WHERE id = 1)
		AND NOT EXISTS (SELECT FROM issues WHERE project_id = 1)`)
	require.EqualValues(t, 2, s.count(t, "SELECT count(*) FROM issues"))
}

// testSQLInterface runs the commands of docs/sql.md and docs/events.md word for word,
// with the privileges that the program grants.
func testSQLInterface(t *testing.T, p program) {
	requirePsql(t)
	s := newSQLSite(t, p)
	require.Regexp(t, `(?m)^ +(available|running|completed) +\|`,
		p.runShell(t, s.dir, s.application, docBlocks(t, "sql.md", "sh")[0]))
	s.wait(t, stopLimit, "a completed job", `EXISTS (
		SELECT FROM sexton.river_job AS job, sexton.job_status(job.id) AS status
		WHERE job.kind = 'loose_foreign_keys_cleanup' AND status.state = 'completed' AND status.outcome = 'done' AND status.finalized_at IS NOT NULL
		  AND status.run_id > 0 AND status.last_error IS NULL)`)
	s.wait(t, stopLimit, "the user's event",
		`EXISTS (SELECT FROM sexton.events WHERE kind = 'user_destroyed' AND txid < pg_snapshot_xmin(pg_current_snapshot()))`)

	client := pgtest.Must(pgxpool.New(t.Context(), s.application))(t)
	t.Cleanup(client.Close)
	s.requireWorkDone(t)
	s.deleteAttachments(t)
	blocks := docBlocks(t, "events.md", "sql")
	for range 2 { // The second run finds no new events.
		pgtest.Exec(t, client, blocks[1])
		require.EqualValues(t, 1,
			s.count(t, "SELECT count(*) FROM files_to_remove WHERE bucket = 'uploads' AND storage_key = 'a/7'"))
	}
	s.worker.stop(t)
}

// deleteAttachments deletes rows with files and waits for their event.
func (s sqlSite) deleteAttachments(t *testing.T) {
	s.exec(t, "DELETE FROM projects WHERE id = 2")
	s.wait(t, stopLimit, "the event of the attachments",
		"EXISTS (SELECT FROM sexton.events WHERE kind = 'rows_deleted' AND txid < pg_snapshot_xmin(pg_current_snapshot()))")
}
