package integration

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

// grove is a tree of three levels with 50 projects, each with issues, and a group beside it that stays. A trigger stops
// whoever deletes rows of a table while its gate is closed.
const grove = `
INSERT INTO application_settings (deletion_adjourned_period) VALUES (7);
INSERT INTO users (id, username, email, name, admin) VALUES (1, 'ada', 'ada@example.com', 'Ada', true);
INSERT INTO groups (id, parent_id, name, path) VALUES
    (1, NULL, 'One', 'one'), (2, 1, 'Two', 'two'), (3, 2, 'Three', 'three'), (4, 2, 'Four', 'four'), (9, NULL, 'Nine', 'nine');
INSERT INTO projects (id, group_id, name, path) SELECT n, (ARRAY[1, 2, 3, 4])[1 + n % 4], 'Project', 'project-' || n FROM generate_series(1, 50) AS n;
INSERT INTO projects (id, group_id, name, path) VALUES (90, 9, 'Project', 'project');
INSERT INTO issues (project_id, title) SELECT id, 'Issue ' || n FROM projects, generate_series(1, 20) AS n;
INSERT INTO milestones (project_id, title) SELECT id, 'Next' FROM projects;
UPDATE issues SET milestone_id = milestones.id FROM milestones WHERE milestones.project_id = issues.project_id;
CREATE TABLE closed_gate (at_table name);
CREATE FUNCTION stop_at_gate() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = '1min' AS $$
BEGIN
    IF EXISTS (SELECT FROM closed_gate WHERE at_table = TG_TABLE_NAME) THEN
        PERFORM pg_advisory_xact_lock(4711);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER stop_at_gate AFTER DELETE ON issues FOR EACH STATEMENT EXECUTE FUNCTION stop_at_gate();
CREATE TRIGGER stop_at_gate AFTER DELETE ON projects FOR EACH STATEMENT EXECUTE FUNCTION stop_at_gate();
CREATE TRIGGER stop_at_gate AFTER DELETE ON groups FOR EACH STATEMENT EXECUTE FUNCTION stop_at_gate();`

// testGroupDestroy asks for a group's deletion and kills the worker in the tree of a project, while projects go, and as a
// sub-group goes: the last worker leaves exactly what is not below the group, and each end has been told once.
func testGroupDestroy(t *testing.T, p program) {
	t.Helper()
	s := p.site(t, pgtest.New(t).URL, onMain(`
loose_foreign_keys: {enabled: false, target: 1s}
adjourned_groups: {enabled: true}
http: {listen: ""}
`, sample.Schema()+grove, ""))
	pgtest.Exec(t, connect(t, s.url), "SELECT pg_advisory_lock($1)", gate)
	s.exec(t, "SELECT sexton.delete_group_now(1, 1)")
	for _, table := range []string{"issues", "projects", "groups"} {
		s.exec(t, "INSERT INTO closed_gate VALUES ($1)", table)
		w := s.started(t)
		s.wait(t, time.Minute, "the worker to stop while it deletes "+table, stopped)
		w.signal(t, syscall.SIGKILL)
		require.Equal(t, -1, w.exit(t, stopLimit))
		s.exec(t, "UPDATE sexton.clients SET seen_at = '-infinity' WHERE pid = $1", w.cmd.Process.Pid)
		s.exec(t, "DELETE FROM closed_gate")
	}
	require.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM sexton.group_destructions"))
	first, second := s.started(t), s.started(t)
	s.wait(t, time.Minute, "the group to be gone", "NOT EXISTS (SELECT FROM groups WHERE id = 1)")
	first.stop(t)
	second.stop(t)
	require.EqualValues(t, 1, s.count(t, "SELECT sum(id - 8) FROM groups"), "only group 9 is left")
	require.EqualValues(t, 90, s.count(t, "SELECT sum(id) FROM projects"))
	require.EqualValues(t, 20, s.count(t, "SELECT count(*) FROM issues WHERE project_id = 90 AND milestone_id IS NOT NULL"))
	require.EqualValues(t, 20, s.count(t, "SELECT count(*) FROM issues"))
	require.EqualValues(t, 50, s.count(t, "SELECT count(*) FROM sexton.events WHERE kind = 'project_destroyed'"))
	require.EqualValues(t, 50, s.count(t, "SELECT count(DISTINCT payload) FROM sexton.events WHERE kind = 'project_destroyed'"))
	require.EqualValues(t, 4, s.count(t, "SELECT count(DISTINCT payload) FROM sexton.events WHERE kind = 'group_destroyed'"))
	require.EqualValues(t, 4, s.count(t, "SELECT count(*) FROM sexton.events WHERE kind = 'group_destroyed'"))
	require.EqualValues(t, 0, s.count(t, "SELECT count(*) FROM sexton.group_destructions"))
}
