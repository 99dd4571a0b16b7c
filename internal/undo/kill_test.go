package undo_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
	"sexton/internal/undo"
	"sexton/triggers"
)

// levels is the schema and data: issues and labels refer to projects, files and notes
// refer to issues. Only notes has a native foreign key. levelsDefinitions defines the
// loose foreign keys.
const levels = `
CREATE TABLE projects (id bigint PRIMARY KEY, body text);
CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint, body text);
CREATE TABLE files (id bigint PRIMARY KEY, issue_id bigint, body text);
CREATE TABLE notes (id bigint PRIMARY KEY, issue_id bigint REFERENCES issues ON DELETE CASCADE, body text);
CREATE TABLE labels (id bigint PRIMARY KEY, project_id bigint, body text);
CREATE INDEX ON issues (project_id); CREATE INDEX ON files (issue_id); CREATE INDEX ON notes (issue_id); CREATE INDEX ON labels (project_id);
INSERT INTO projects SELECT i, 'p' || i FROM generate_series(1, 4) AS i;
INSERT INTO issues SELECT i, i % 4 + 1, 'i' || i FROM generate_series(1, 24) AS i;
INSERT INTO files SELECT i, i % 24 + 1, 'f' || i FROM generate_series(1, 48) AS i;
INSERT INTO notes SELECT i, i % 24 + 1, 'n' || i FROM generate_series(1, 48) AS i;
INSERT INTO labels SELECT i, i % 4 + 1, 'l' || i FROM generate_series(1, 12) AS i;`

const levelsDefinitions = `
issues: [{table: projects, column: project_id, on_delete: async_delete}]
files: [{table: issues, column: issue_id, on_delete: async_delete}]
labels: [{table: projects, column: project_id, on_delete: async_nullify}]
`

// In turn, a worker and then a restore are killed at each message that they exchange with
// the server. After each kill, a retry deletes or restores all rows, and no row is
// restored twice.
func TestKillAtEachMessage(t *testing.T) {
	t.Parallel()
	tables := []string{"projects", "issues", "files", "notes", "labels"}
	b := setup(t, levels, levelsDefinitions, "projects", "issues")
	b.installNoteTriggers(t)
	before := b.all(tables...)
	deleteProjects := func(v *dbtest.Victim) int64 {
		b.Exec("DELETE FROM projects WHERE id > 2")
		if v != nil {
			b.victim = v
			_, err := b.run(t, 20)
			b.victim = nil
			if !v.Killed() {
				require.NoError(t, err)
			}
		}
		b.drain(t, 0)
		unit := b.last(t)
		require.Equal(t, "complete", unit.State, "%v", unit.Tables)
		return unit.ID
	}
	requireRestored := func(id int64) {
		require.Equal(t, before, b.all(tables...))
		require.Zero(t, b.Pending(t))
		require.Zero(t, b.restore(t, id).Restored, "rows restored a second time")
	}
	kills := b.KillAnywhere(t, 41, func(v *dbtest.Victim) {
		id := deleteProjects(v)
		b.restore(t, id)
		requireRestored(id)
	})
	require.Greater(t, kills, 1, "kills of workers")
	engine := b.engine
	kills = b.KillAnywhere(t, 41, func(v *dbtest.Victim) {
		id, deleted := deleteProjects(nil), b.all(tables...)
		killed := *engine
		killed.Databases = []database.Database{v.Connected(t)}
		killed.Leases = &lease.Manager{Jobs: killed.Databases[0], Holder: undo.Holder + "killed"}
		if _, err := killed.Restore(t.Context(), id, false); err != nil {
			require.True(t, v.Killed(), "%v", err)
			require.Contains(t, [][][][]string{deleted, before}, b.all(tables...), "all rows or none")
		}
		b.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp()")
		b.restore(t, id)
		requireRestored(id)
	})
	require.Greater(t, kills, 1, "kills of restores")
	b.drain(t, 0)
	require.Equal(t, before, b.all(tables...))
}

// installNoteTriggers installs triggers that save the rows of notes, which a native
// foreign key deletes.
func (b *bundle) installNoteTriggers(t *testing.T) {
	t.Helper()
	pgtest.Must(triggers.Install(t.Context(), pgtest.Acquire(t, b.Pool()).Conn(), triggers.Config{
		TrackedSchema: dbtest.Names().Tracked,
		Undo:          triggers.Undo{MaxRow: b.maxRow, Children: []triggers.Table{{Schema: "public", Name: "issues"}}},
	}, []triggers.Parent{
		{Schema: "public", Table: "projects", KeyColumns: []string{"id"}, Undo: triggers.KeepsAll},
		{Schema: "public", Table: "issues", KeyColumns: []string{"id"}, Undo: triggers.KeepsAll},
	}))(t)
}

var errStopped = errors.New("stopped by the test")
