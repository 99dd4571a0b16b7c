package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const tree = `
CREATE TABLE projects (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text);
CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint, title text, upper_title text GENERATED ALWAYS AS (upper(title)) STORED);
CREATE INDEX ON issues (project_id);
CREATE TABLE notes (id bigint PRIMARY KEY, issue_id bigint, body text);
CREATE INDEX ON notes (issue_id);
CREATE TABLE pins (id bigint PRIMARY KEY, project_id int);
CREATE INDEX ON pins (project_id);
CREATE TABLE states (id bigint PRIMARY KEY, project_id bigint, state smallint NOT NULL DEFAULT 1);
CREATE INDEX ON states (project_id);
INSERT INTO projects (name) SELECT 'project ' || i FROM generate_series(1, 5) AS i;
INSERT INTO issues SELECT i, i % 5 + 1, 'issue ' || i FROM generate_series(1, 50) AS i;
INSERT INTO notes SELECT i, i % 50 + 1, 'note ' || i FROM generate_series(1, 200) AS i;
INSERT INTO pins SELECT i, i % 5 + 1 FROM generate_series(1, 20) AS i;
INSERT INTO states SELECT i, i % 5 + 1 FROM generate_series(1, 20) AS i;`

const treeDefinitions = `
issues: [{table: projects, column: project_id, on_delete: async_delete}]
notes: [{table: issues, column: issue_id, on_delete: async_delete}]
pins: [{table: projects, column: project_id, on_delete: async_nullify}]
states: [{table: projects, column: project_id, on_delete: update_column_to, target_column: state, target_value: 4}]
`

var treeTables = []string{"projects", "issues", "notes", "pins", "states"}

// Two deletions are worked off together; the one that is undone leaves the other as it is.
func TestADeletionComesBackWithAllThatWentWithIt(t *testing.T) {
	t.Parallel()
	other := setup(t, tree, treeDefinitions, "projects", "issues")
	other.Exec("DELETE FROM projects WHERE id = 3")
	other.drain(t, 0)
	want := other.all(treeTables...)

	c := setup(t, tree, treeDefinitions, "projects", "issues")
	c.Exec("DELETE FROM projects WHERE id = 3")
	c.Exec("DELETE FROM projects WHERE id IN (1, 2)")
	wrong := c.last(t)
	require.Equal(t, []string{"1", "2"}, wrong.Keys)
	require.True(t, wrong.Waiting)
	c.drain(t, 0)
	report := c.restore(t, wrong.ID)
	require.Empty(t, report.Left)
	require.False(t, report.Triggers)
	require.Equal(t, "restored", report.Unit.State)
	require.Equal(t, want, c.all(treeTables...))
	c.drain(t, 0)
	require.Equal(t, want, c.all(treeTables...), "no tombstone purges them again")
	again := c.restore(t, wrong.ID)
	require.Zero(t, again.Restored)
	require.Equal(t, want, c.all(treeTables...))
}
