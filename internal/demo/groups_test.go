package demo

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// trees are six of them: root n has the groups 10n and 10n+1 below it and, below the former, 100n, each with one project.
const trees = people + `
INSERT INTO application_settings (deletion_adjourned_period) VALUES (30);
INSERT INTO groups (id, parent_id, name, path, traversal_ids) SELECT n, NULL, 'r', 'r' || n, ARRAY[n] FROM generate_series(2, 7) AS n;
INSERT INTO groups (id, parent_id, name, path, traversal_ids)
SELECT 10 * n + k, n, 's', 's' || k, ARRAY[n, 10 * n + k] FROM generate_series(2, 7) AS n, generate_series(0, 1) AS k;
INSERT INTO groups (id, parent_id, name, path, traversal_ids)
SELECT 100 * n, 10 * n, 't', 't', ARRAY[n, 10 * n, 100 * n] FROM generate_series(2, 7) AS n;
INSERT INTO projects (id, group_id, name, path) SELECT id, id, 'p', 'p' FROM groups WHERE id > 1;
DELETE FROM projects WHERE id = 1;
DELETE FROM groups WHERE id = 1;
`

// destruction does by hand what the jobs do.
const destruction = `
CREATE TEMP TABLE gone AS
SELECT id, parent_id, cardinality(traversal_ids) AS depth FROM groups
WHERE traversal_ids[1] IN (SELECT group_id FROM group_deletion_schedules);
INSERT INTO sexton.events (kind, payload)
SELECT 'project_destroyed', jsonb_build_object('project_id', projects.id, 'group_id', group_id) FROM projects JOIN gone ON gone.id = group_id;
INSERT INTO sexton.events (kind, payload)
SELECT 'group_destroyed', jsonb_build_object('group_id', id, 'parent_id', parent_id) FROM gone ORDER BY depth DESC;
DELETE FROM projects USING gone WHERE group_id = gone.id;
DELETE FROM groups USING gone WHERE gone.depth = 3 AND groups.id = gone.id;
DELETE FROM groups USING gone WHERE gone.depth = 2 AND groups.id = gone.id;
DELETE FROM groups USING gone WHERE gone.depth = 1 AND groups.id = gone.id;
`

func TestGroupsAreMarkedAndRestored(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(trees)
	scene := &groups{stage: testStage(db)}
	scene.share = 100
	times := newStopwatch(db.Pool(), dbtest.Names(), scene.Script())
	a := pgtest.Must(newApplication(t.Context(), scene, times, Pace{Length: time.Millisecond}))(t)
	require.EqualValues(t, 8, a.planned, "six marks, of which two are taken back")
	require.NoError(t, a.run(t.Context()))
	require.EqualValues(t, 8, a.acted.Load())
	require.Equal(t, [][]string{{"4", "4", "1"}}, db.Rows(`
		SELECT count(*), count(*) FILTER (WHERE groups.marked_for_deletion_on = schedule.marked_for_deletion_on
			AND groups.marked_for_deletion_on < sexton.group_deletion_cutoff()), max(user_id)
		FROM groups JOIN group_deletion_schedules AS schedule ON group_id = groups.id`), "those that are left are due")
	require.Equal(t, [][]string{{"2"}}, db.Rows("SELECT count(*) FROM sexton.events WHERE kind = 'group_restored'"))
	require.NoError(t, times.look(t.Context()))
	require.Equal(t, 4, times.pending(), "all that are due wait")
	require.Empty(t, times.elapsed, "those that are restored wait for nothing")

	check := func(why string, want ...int64) {
		t.Helper()
		found := pgtest.Must(scene.Check(t.Context()))(t)
		var counts []int64
		for _, f := range found {
			counts = append(counts, f.Count)
		}
		require.Equal(t, want, counts, "%s: %v", why, found)
		for _, at := range []int{2, 3, 4, 5, 7} {
			require.True(t, found[at].Fault, "%v", found[at])
		}
	}
	check("16 projects and four schedules name their groups", 16, 16, 32, 20, 32, 0, 2, 0, 0)
	db.Exec(destruction)
	require.NoError(t, times.look(t.Context()))
	require.Zero(t, times.pending())
	check("all is well", 16, 16, 0, 0, 0, 0, 2, 0, 0)

	db.Exec(`INSERT INTO members (source_type, source_id, access_level)
		SELECT 'Project', (payload ->> 'project_id')::bigint, 50 FROM sexton.events WHERE kind = 'project_destroyed' LIMIT 1`)
	check("a member is left", 16, 16, 0, 1, 0, 0, 2, 0, 0)
	db.Exec(`WITH late AS (DELETE FROM sexton.events WHERE id = (SELECT min(id) FROM sexton.events WHERE kind = 'project_destroyed') RETURNING *)
		INSERT INTO sexton.events (kind, payload) SELECT kind, payload FROM late`)
	check("a project's event comes last", 16, 16, 0, 1, 0, 1, 2, 0, 0)
	project := db.Rows("DELETE FROM sexton.events WHERE id = (SELECT max(id) FROM sexton.events) RETURNING payload ->> 'project_id'")[0][0]
	check("a project has no event", 16, 16, 0, 1, 1, 0, 2, 0, 0)
	id := pgtest.Must(strconv.ParseInt(project, 10, 64))(t)
	scene.ledger.add("projects", []int64{id})
	check("the application has deleted it", 16, 16, 0, 1, 0, 0, 2, 0, 0)

	restored := db.Rows("DELETE FROM projects WHERE id = (SELECT max(id) FROM projects) RETURNING id")[0][0]
	check("a restored group misses a project", 16, 16, 0, 1, 0, 0, 2, 1, 0)
	id = pgtest.Must(strconv.ParseInt(restored, 10, 64))(t)
	scene.ledger.add("projects", []int64{id})
	check("which the application has deleted", 16, 16, 0, 1, 0, 0, 2, 0, 0)
	db.Exec("UPDATE groups SET path = 'x' || path WHERE parent_id IS NULL")
	check("restored groups have other names", 16, 16, 0, 1, 0, 0, 2, 2, 0)
	db.Exec(`INSERT INTO sexton.events (kind, payload) VALUES ('group_restored', '{"group_id": 1, "reason": "user_missing"}')`)
	check("the system has restored one", 16, 16, 0, 1, 0, 0, 2, 2, 1)
}

func TestGroupsWithoutManyTrees(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(trees + `
		DELETE FROM projects WHERE group_id NOT IN (2, 3, 20, 21, 30, 31, 200, 300);
		DELETE FROM groups WHERE cardinality(traversal_ids) = 3 AND id > 300;
		DELETE FROM groups WHERE cardinality(traversal_ids) = 2 AND id > 31;
		DELETE FROM groups WHERE parent_id IS NULL AND id > 3;
		INSERT INTO groups (id, parent_id, name, path, traversal_ids) VALUES (32, 3, 's', 's2', '{3, 32}');
		UPDATE groups SET marked_for_deletion_on = current_date WHERE id IN (21, 30)`)
	scene := &groups{stage: testStage(db)}
	scene.share = 100
	require.EqualValues(t, 3, pgtest.Must(scene.Plan(t.Context()))(t))
	var ids []int64
	for _, step := range scene.steps {
		ids = append(ids, step.group.id)
	}
	require.ElementsMatch(t, []int64{31, 200, ids[2]}, ids, "groups with projects and without sub-groups, neither marked nor below a marked one")
	require.True(t, scene.steps[2].restore)
}

func TestGroupsThatAreAllMarked(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(trees + "UPDATE groups SET marked_for_deletion_on = current_date")
	planned := pgtest.Must((&groups{stage: testStage(db)}).Plan(t.Context()))(t)
	require.Zero(t, planned)
}

func TestGroupsCountTheRunsOfBothJobs(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(trees + `INSERT INTO sexton.runs (kind, database, holder, stats, ended_at, outcome) VALUES
		('adjourned_group_deletion', 'main', 'test', '{"groups_enqueued": 2, "groups_restored": 1}', now(), 'done'),
		('group_destroy', 'main', 'test', '{"groups": 4, "projects": 3, "deleted": {"groups": 4, "projects": 3}, "nullified": {"todos.x": 5}}', now(), 'done'),
		('loose_foreign_keys_cleanup', 'main', 'test', '{"groups": 100}', now(), 'done')`)
	scene := pgtest.Must(newPlayed(t.Context(), testSite(t, db), &groups{stage: testStage(db)}, 0, false))(t)
	total := pgtest.Must(scene.runs.total(t.Context()))(t)
	require.Equal(t, map[string]int64{"groups": 4, "projects": 3, "groups_enqueued": 2, "groups_restored": 1}, total.Numbers)
	require.EqualValues(t, 2, total.Runs)
	require.EqualValues(t, 12, total.Rows())
}

func TestGroupsReportWhatTheyCannotDo(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(trees)
	scene := &groups{stage: testStage(db)}
	planned := pgtest.Must(scene.Plan(t.Context()))(t)
	db.Exec("UPDATE users SET state = 'blocked'")
	_, _, err := scene.Act(t.Context(), 20)
	require.ErrorContains(t, err, "mark group ")
	require.ErrorContains(t, err, "user 1 may not remove it")
	require.Len(t, scene.steps, int(planned), "nothing is done")
	require.Empty(t, scene.marked)
}
