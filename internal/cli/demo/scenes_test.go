package demo

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

// loadedStage returns a stage with sample data. No worker runs on it.
func loadedStage(t *testing.T) (*stage, *dbtest.DB) {
	db := dbtest.Reference(t)
	pgtest.Must(exampleapp.Load(t.Context(), db.Pool(), 2000, func(int64, int64) {}))(t)
	defs := pgtest.Must(definitions.Parse(definitions.File{
		Name: "reference.yml",
		Data: []byte(exampleapp.Definitions()),
	}))(t)
	return &stage{Site{Pool: db.Pool(), Definitions: defs, Objects: t.TempDir()}}, db
}

// lost returns the counts of a scene that must be 0 at the end of a demo. The keys are
// their texts.
func lost(t *testing.T, p *scene) map[string]int64 {
	found := map[string]int64{}
	for _, c := range pgtest.Must(p.count(t.Context()))(t) {
		if c.Lost {
			found[c.Text] = c.Count
		}
	}
	return found
}

func waiting(t *testing.T, db *dbtest.DB, p *scene) int64 {
	return pgtest.Scalar[int64](t, db.Database, p.waiting)
}

// playAll performs all actions of a scene.
func playAll(t *testing.T, p *scene) (acted int64) {
	planned := pgtest.Must(p.plan(t.Context()))(t)
	require.Positive(t, planned)
	for acted < planned {
		done, more := pgtest.Must2(p.act(t.Context(), planned-acted))(t)
		if acted += done; !more {
			break
		}
	}
	require.Positive(t, acted)
	require.LessOrEqual(t, acted, planned)
	return acted
}

func TestDeletedParentsLeaveOrphans(t *testing.T) {
	t.Parallel()
	s, _ := loadedStage(t)
	p := s.looseForeignKeys()
	require.Equal(t, map[string]int64{"orphans left": 0}, lost(t, p))
	playAll(t, p)
	require.Positive(t, lost(t, p)["orphans left"])
}

func TestDeletedUsersAreQueued(t *testing.T) {
	t.Parallel()
	s, db := loadedStage(t)
	p := s.ghostUsers()
	before := waiting(t, db, p)
	acted := playAll(t, p)
	require.Equal(t, before+acted, waiting(t, db, p))
	require.Equal(t, map[string]int64{"deleted users left": acted}, lost(t, p))
	// The remaining user is the only owner of a group, and is refused.
	done, more := pgtest.Must2(p.act(t.Context(), 10_000))(t)
	require.True(t, more)
	require.Equal(t, before+acted+done, waiting(t, db, p))
	_, more = pgtest.Must2(p.act(t.Context(), 10_000))(t)
	require.False(t, more)
}

func TestPlaceholdersWithoutGroup(t *testing.T) {
	t.Parallel()
	s, db := loadedStage(t)
	db.Exec(`UPDATE import_placeholder_user_details SET namespace_id = (SELECT min(id) FROM namespaces), last_error = NULL`)
	p := s.placeholderUsers()
	acted := playAll(t, p)
	require.Equal(t, acted, waiting(t, db, p))
	require.Equal(t, map[string]int64{"placeholders neither deleted nor kept": acted}, lost(t, p))
	db.Exec("UPDATE import_placeholder_user_details SET last_error = 'kept'")
	require.Equal(t, map[string]int64{"placeholders neither deleted nor kept": 0}, lost(t, p))
}

func TestGroupsAreScheduledAndRestored(t *testing.T) {
	t.Parallel()
	s, db := loadedStage(t)
	p := s.groups()
	before := waiting(t, db, p)
	acted := playAll(t, p)
	require.GreaterOrEqual(t, acted, int64(2))
	require.Equal(t, before+acted-(acted+1)/3, waiting(t, db, p), "every third group is restored")
	found := lost(t, p)
	require.Zero(t, found["restored groups missing"])
	require.Greater(t, found["groups or projects left"], acted-(acted+1)/3, "projects of these groups are counted in addition")
}

func TestDiffsWithoutTheirObjects(t *testing.T) {
	t.Parallel()
	s, db := loadedStage(t)
	p := s.diffs()
	before := waiting(t, db, p)
	acted := playAll(t, p)
	require.Equal(t, before+acted, waiting(t, db, p))
	require.Equal(t, map[string]int64{"moved diffs without their object": 0}, lost(t, p))
	db.Exec(`UPDATE merge_request_diff_files SET diff = NULL, external_diff_offset = 0, external_diff_size = 1
		WHERE merge_request_diff_id = (SELECT max(id) FROM merge_request_diffs)`)
	db.Exec("UPDATE merge_request_diffs SET stored_externally = true, external_diff = 'diff-1' WHERE id = (SELECT max(id) FROM merge_request_diffs)")
	require.Equal(t, map[string]int64{"moved diffs without their object": 1}, lost(t, p))
	require.Equal(t, before+acted-1, waiting(t, db, p))
}

// The scene restores the project after all rows below it have been deleted. Rows that are
// missing after the undo count as lost.
func TestUndoScene(t *testing.T) {
	t.Parallel()
	db := dbtest.TrackedWithUndo(t, exampleapp.Schema(), "projects")
	var undone []int64
	s := &stage{Site{Pool: db.Pool(), Undo: func(_ context.Context, deletion int64) (int64, error) {
		undone = append(undone, deletion)
		return 1, nil
	}}}
	p := s.undo()
	require.EqualValues(t, 2, pgtest.Must(p.plan(t.Context()))(t))
	require.Zero(t, waiting(t, db, p))
	act := func(acted int64, more bool) {
		done, moreLeft := pgtest.Must2(p.act(t.Context(), 1))(t)
		require.Equal(t, acted, done)
		require.Equal(t, more, moreLeft)
	}
	act(1, true)
	require.EqualValues(t, 1, waiting(t, db, p))
	act(0, true)
	require.Empty(t, undone)
	db.Exec("DELETE FROM ci_pipelines; DELETE FROM p_ci_builds; DELETE FROM uploads")
	act(1, false)
	require.Equal(t, [][]string{{"t"}},
		db.Rows("SELECT origin = $1 FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public.projects'", undone[0]))
	require.Equal(t, map[string]int64{"rows missing": 5001, "projects changed": 1}, lost(t, p))
}

func TestOrphansAreCountedExactly(t *testing.T) {
	t.Parallel()
	const tables = `DROP TABLE IF EXISTS parents, kids;
		CREATE TABLE parents (id bigint PRIMARY KEY, code bigint UNIQUE);
		CREATE TABLE kids (parent_id bigint, kind text, state integer);
		INSERT INTO parents VALUES (1, 10), (2, 20);`
	db := pgtest.New(t)
	for name, test := range map[string]struct {
		definitions, sql string
		want             int64
	}{
		"delete": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: async_delete}]`,
			sql:         `INSERT INTO kids VALUES (1), (2), (NULL), (NULL), (3), (3), (4)`,
			want:        3,
		},
		"no parents left": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: async_nullify}]`,
			sql:         `DELETE FROM parents; INSERT INTO kids VALUES (1), (2), (NULL)`,
			want:        2,
		},
		"update to a value that is reached, not reached, NULL": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 5}]`,
			sql: `INSERT INTO kids (parent_id, state) VALUES
				(1, 4), (1, 5), (1, NULL), (NULL, 4),
				(3, 5), (3, 5), (3, 5), (3, 4), (3, NULL)`,
			want: 2,
		},
		"two conditions and a target": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: kind, target_value: gone,
				conditions: [{column: kind, value: Issue}, {column: state, value: 1}]}]`,
			sql: `INSERT INTO kids VALUES
				(3, 'Issue', 1), (3, 'Issue', 1), (3, 'Issue', 2), (3, 'Epic', 1), (3, 'gone', 1), (1, 'Issue', 1)`,
			want: 2,
		},
		"parent column": {
			// 1 and 2 are IDs of parents. 10 and 20 are their codes, to which children
			// refer.
			definitions: `kids: [{table: parents, column: parent_id, parent_column: code, on_delete: async_delete}]`,
			sql:         `INSERT INTO kids VALUES (10), (20), (20), (1), (2), (30), (NULL)`,
			want:        3,
		},
	} {
		db.Exec(tables + test.sql)
		defs := pgtest.Must(definitions.Parse(definitions.File{Name: "test.yml", Data: []byte(test.definitions)}))(t)
		s := &stage{Site{Pool: db.Pool(), Definitions: defs}}
		require.Equal(t, test.want, pgtest.Must(s.orphans(t.Context()))(t), name)
	}
}
