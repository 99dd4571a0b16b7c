package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// rehearsal is an application that plays a scene, with the scene's stopwatch.
func rehearsal(t *testing.T, db *dbtest.DB, scene Scene) (*application, *stopwatch) {
	a := pgtest.Must(newApplication(t.Context(), testStage(db), scene, Pace{Length: time.Millisecond}))(t)
	return a, a.times
}

// counting returns what expects the counts that a scene's check finds. Some of them are faults.
func counting(t *testing.T, scene Scene, faults ...int) func(why string, want ...int64) {
	return func(why string, want ...int64) {
		found := pgtest.Must(scene.Check(t.Context()))(t)
		var counts []int64
		for _, f := range found {
			counts = append(counts, f.Count)
		}
		require.Equal(t, want, counts, "%s: %v", why, found)
		for _, at := range faults {
			require.True(t, found[at].Fault, "%v", found[at])
		}
	}
}

func TestGroupsAreMarkedAndRestored(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(trees)
	scene := &groups{stage: testStage(db)}
	scene.share = 100
	a, times := rehearsal(t, db, scene)
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

	check := counting(t, scene, 2, 3, 4, 5, 7)
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
		ids = append(ids, step.group)
	}
	require.ElementsMatch(t, []int64{31, 200, ids[2]}, ids, "groups with projects and without sub-groups, neither marked nor below a marked one")
	require.True(t, scene.steps[2].restore)

	db.Exec("UPDATE groups SET marked_for_deletion_on = current_date")
	scene = &groups{stage: testStage(db)}
	require.Zero(t, pgtest.Must(scene.Plan(t.Context()))(t), "all are marked")
	counting(t, scene)("nothing is marked by it", 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

func TestGroupsCountTheRunsOfBothJobs(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec(`INSERT INTO sexton.runs (kind, database, holder, stats, ended_at, outcome) VALUES
		('adjourned_group_deletion', 'main', 'test', '{"groups_enqueued": 2, "groups_restored": 1}', now(), 'done'),
		('group_destroy', 'main', 'test', '{"groups": 4, "projects": 3, "deleted": {"groups": 4, "projects": 3}, "nullified": {"todos.x": 5}}', now(), 'done'),
		('loose_foreign_keys_cleanup', 'main', 'test', '{"groups": 100}', now(), 'done')`)
	total := pgtest.Must(testStage(db).tallies(t.Context(), 0, []Script{(*groups)(nil).Script()}))(t)[0]
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
	require.Empty(t, db.Rows("SELECT FROM demo.marked"))
}

// requests are ten merge requests, each with a diff of one file; those of the last two are empty.
const requests = people + `
INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) SELECT n, 1, 'm', 's', 't' FROM generate_series(1, 10) AS n;
INSERT INTO merge_request_diffs (id, merge_request_id, project_id, state, files_count)
SELECT n, n, 1, 'collected', CASE WHEN n < 9 THEN 1 ELSE 0 END FROM generate_series(1, 10) AS n;
ALTER TABLE merge_request_diffs ALTER COLUMN id RESTART WITH 11;
INSERT INTO merge_request_diff_files (
	merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, diff
)
SELECT n, 0, 1, false, false, false, false, '1', '1', 'a', 'ä' || n FROM generate_series(1, 8) AS n;
`

// moveDiffs does by hand what the job does, to all diffs that are in the database.
func moveDiffs(t *testing.T, db *dbtest.DB, folder string) {
	for _, row := range db.Rows(`
		SELECT diff.merge_request_id, diff.id, string_agg(file.diff, '' ORDER BY relative_order)
		FROM merge_request_diffs AS diff JOIN merge_request_diff_files AS file ON merge_request_diff_id = diff.id
		WHERE stored_externally IS NOT TRUE GROUP BY diff.id`) {
		at := filepath.Join(folder, "merge_request_diffs", "mr-"+row[0])
		require.NoError(t, os.MkdirAll(at, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(at, "diff-"+row[1]), []byte(row[2]), 0o600))
	}
	db.Exec(`
		UPDATE merge_request_diff_files AS file
		SET diff = NULL, external_diff_size = layout.size, external_diff_offset = layout.at, new_path = nullif(file.new_path, file.old_path)
		FROM (
			SELECT merge_request_diff_id, relative_order, octet_length(diff) AS size,
				sum(octet_length(diff)) OVER (PARTITION BY merge_request_diff_id ORDER BY relative_order) - octet_length(diff) AS at
			FROM merge_request_diff_files
		) AS layout
		WHERE file.diff IS NOT NULL AND layout.merge_request_diff_id = file.merge_request_diff_id AND layout.relative_order = file.relative_order;
		UPDATE merge_request_diffs SET stored_externally = true, external_diff = 'diff-' || id WHERE files_count > 0`)
}

func TestDiffsAreAddedAndReadBack(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(requests)
	on := testStage(db)
	on.objects = t.TempDir()
	scene := &diffs{stage: on}
	scene.share = 50
	a, times := rehearsal(t, db, scene)
	require.EqualValues(t, 5, a.planned)
	scene.first, scene.last = 7, 8
	require.NoError(t, a.run(t.Context()))
	require.EqualValues(t, 5, a.acted.Load())
	require.Equal(t, [][]string{{"5", "15"}}, db.Rows(`
		SELECT count(DISTINCT diff.id), count(*) FROM merge_request_diffs AS diff JOIN merge_request_diff_files ON merge_request_diff_id = id WHERE id > 10`))
	require.NoError(t, times.look(t.Context()))
	require.Equal(t, 5, times.pending(), "all wait")

	check := counting(t, scene, 2, 4, 5, 7)
	check("all are in the database", 0, 0, 0, 0, 0, 13, 0, 0)
	moveDiffs(t, db, on.objects)
	require.NoError(t, times.look(t.Context()))
	require.Zero(t, times.pending())
	check("all is well", 13, 23, 0, 0, 0, 0, 0, 0)

	object := func(request, diff int) string {
		return filepath.Join(on.objects, "merge_request_diffs", fmt.Sprintf("mr-%d", request), fmt.Sprintf("diff-%d", diff))
	}
	require.NoError(t, os.WriteFile(object(1, 1), []byte("Ä1"), 0o600))
	check("another content", 13, 23, 1, 0, 0, 0, 0, 0)
	require.NoError(t, os.Truncate(object(2, 2), 1))
	check("too short", 13, 23, 2, 0, 0, 0, 0, 0)
	require.NoError(t, os.Remove(object(3, 3)))
	check("no object", 13, 23, 3, 0, 0, 0, 0, 0)
	db.Exec("DELETE FROM merge_request_diff_files WHERE merge_request_diff_id = 4")
	check("no row of a file", 13, 23, 4, 0, 0, 0, 0, 0)
	require.NoError(t, os.WriteFile(object(3, 99), nil, 0o600))
	check("an object of nobody", 13, 23, 4, 0, 0, 0, 0, 1)

	waiting := func() [][]string {
		return db.Rows("SELECT name, number FROM (" + dbtest.Names().Render(scene.Script().Waiting) + ") AS waiting (name, number, since) ORDER BY number")
	}
	db.Exec("DELETE FROM merge_request_diffs WHERE id = 6; DELETE FROM merge_requests WHERE id = 5")
	check("one has gone with its merge request, one without", 11, 21, 4, 1, 1, 0, 0, 3)
	require.Equal(t, [][]string{{"objects", "5"}, {"objects", "6"}}, waiting())
	db.Exec("DELETE FROM sexton.external_diff_removals; UPDATE merge_request_diffs SET stored_externally = false WHERE id = 3")
	check("one has come back", 10, 20, 3, 1, 1, 1, 0, 3)
	require.Equal(t, [][]string{{"diffs", "3"}}, waiting())
	db.Exec("INSERT INTO sexton.external_diffs (diff_id, skip_reason) VALUES (3, 'too_large')")
	check("one cannot be moved", 10, 20, 3, 1, 1, 0, 1, 3)
	require.Empty(t, waiting())
}

func TestDiffsOfADemoWithoutMergeRequests(t *testing.T) {
	t.Parallel()
	on := testStage(dbtest.Reference(t))
	on.objects = filepath.Join(t.TempDir(), "missing")
	scene := &diffs{stage: on}
	require.Zero(t, pgtest.Must(scene.Plan(t.Context()))(t))
	acted, more := pgtest.Must2(scene.Act(t.Context(), 1))(t)
	require.False(t, more)
	require.Empty(t, acted)
	_, err := scene.Check(t.Context())
	require.ErrorContains(t, err, "look for dangling objects: ")
}

// crowd are 20 people beside those who may not be deleted: an administrator, the ghost, a placeholder, and number 100,
// the only owner of a group.
const crowd = people + `
INSERT INTO users (id, username, email, name, user_type)
SELECT n, 'u' || n, 'u' || n, 'n', CASE WHEN n % 9 = 0 THEN 6 ELSE 0 END FROM generate_series(11, 29) AS n;
INSERT INTO users (id, username, email, name, user_type) VALUES (100, 'owner', 'o', 'o', 0), (200, 'placeholder', 'p', 'p', 15);
DELETE FROM users WHERE id = 2;
INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (100, 'Namespace', 1, 50);
INSERT INTO notes (id, project_id, noteable_type, noteable_id, author_id, note) SELECT n, 1, 'Issue', 1, n, 'note' FROM generate_series(11, 29) AS n;
`

func TestGhostUsersDeletesUsers(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(crowd)
	scene := &ghostUsers{stage: testStage(db)}
	scene.share = 100
	a, times := rehearsal(t, db, scene)
	require.EqualValues(t, 20, a.planned)
	require.NoError(t, a.run(t.Context()))
	require.EqualValues(t, 19, a.acted.Load(), "the owner may not go, and then there is nobody left")
	require.Equal(t, []int64{100}, scene.refused)
	require.Equal(t, [][]string{{"19", "11", "29", "3", "1"}}, db.Rows(`
		SELECT count(*), min(user_id), max(user_id), count(*) FILTER (WHERE hard_delete), max(initiator_user_id) FROM users_ghost_user_migrations`),
		"every fifth goes with all that it wrote")
	require.Equal(t, [][]string{{"19"}}, db.Rows("SELECT count(*) FROM users WHERE state = 'blocked'"))
	require.Equal(t, [][]string{{"16"}}, db.Rows("SELECT count(*) FROM demo.contributions"), "what those deleted softly wrote")
	require.NoError(t, times.look(t.Context()))
	require.Equal(t, 19, times.pending(), "all wait")

	check := counting(t, scene, 0, 4)
	check("queued", 19, 16, 0, 0, 16)
	db.Exec(`
		DELETE FROM notes USING users_ghost_user_migrations AS job WHERE author_id = user_id AND hard_delete;
		UPDATE notes SET author_id = 3;
		DELETE FROM users USING users_ghost_user_migrations AS job WHERE users.id = user_id`)
	check("gone", 0, 16, 16, 0, 0)
	require.NoError(t, times.look(t.Context()))
	require.Zero(t, times.pending())
}

func TestGhostUsersPlansAShareOfTheUsers(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(crowd + `INSERT INTO users_ghost_user_migrations (user_id) VALUES (11), (12)`)
	scene := &ghostUsers{stage: testStage(db)}
	scene.share = 50
	planned := pgtest.Must(scene.Plan(t.Context()))(t)
	require.EqualValues(t, 9, planned, "but for those that an earlier demo has left in the queue")

	scene.share = 1
	acted, more := pgtest.Must2(scene.Act(t.Context(), 4))(t)
	require.True(t, more)
	require.LessOrEqual(t, len(acted), 4)
	for _, item := range acted {
		require.Equal(t, "users", item.Name)
		require.True(t, slices.Contains(scene.deleted, item.Number))
	}

	queued := db.Rows("SELECT count(*) FROM users_ghost_user_migrations")
	scene = &ghostUsers{stage: testStage(db)}
	pgtest.Must(scene.Plan(t.Context()))(t)
	scene.last = scene.first // From the first one on.
	db.Exec("DROP TABLE reviews CASCADE")
	_, _, err := scene.Act(t.Context(), 20)
	require.ErrorContains(t, err, "delete user ")
	require.Empty(t, scene.deleted)
	require.Equal(t, queued, db.Rows("SELECT count(*) FROM users_ghost_user_migrations"), "the transaction is undone as a whole")
	_, err = scene.Check(t.Context())
	require.ErrorContains(t, err, "count contributions in reviews: ")
}

// imported are four placeholders of a group, of whom the first has written a note.
const imported = people + `
INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o') ON CONFLICT DO NOTHING;
INSERT INTO users (id, username, email, name, user_type) SELECT n, 'p' || n, 'p' || n, 'n', 15 FROM generate_series(301, 304) AS n;
INSERT INTO notes (id, project_id, noteable_type, noteable_id, author_id, note) VALUES (9, 1, 'Issue', 1, 301, 'imported');
INSERT INTO import_placeholder_user_details (id, placeholder_user_id, namespace_id, organization_id) SELECT n, n, 1, 1 FROM generate_series(301, 304) AS n;
`

func TestPlaceholderUsersAreLeft(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(imported)
	scene := &placeholderUsers{stage: testStage(db)}
	a, times := rehearsal(t, db, scene)
	require.EqualValues(t, 4, a.planned)
	require.NoError(t, a.run(t.Context()))
	require.EqualValues(t, 4, a.acted.Load())
	require.Empty(t, db.Rows("SELECT FROM import_placeholder_user_details WHERE namespace_id IS NOT NULL"))
	require.NoError(t, times.look(t.Context()))
	require.Equal(t, 4, times.pending(), "all wait")

	check := counting(t, scene, 3, 4)
	check("left", 0, 0, 0, 4, 0)
	db.Exec("SELECT sexton.delete_user(302, 302); UPDATE import_placeholder_user_details SET last_error = 'kept' WHERE id = 301")
	require.NoError(t, times.look(t.Context()))
	require.Equal(t, 2, times.pending(), "those that nobody has decided about")
	check("one waits in the queue of the users", 0, 1, 1, 2, 0)
	db.Exec("DELETE FROM users WHERE id IN (302, 303, 304)")
	check("decided", 3, 0, 1, 0, 0)
	db.Exec("UPDATE notes SET author_id = 1 WHERE id = 9")
	check("an author is lost", 3, 0, 1, 0, 1)
}
