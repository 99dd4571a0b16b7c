package operator

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/components"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/heartbeat"
	"sexton/internal/installation"
	"sexton/internal/pgtest"
	riverjobs "sexton/river_jobs"
)

// Undo from the page restores a deletion, writes an audit record, and lists the rows that
// were not restored.
func TestUndoFromThePage(t *testing.T) {
	t.Parallel()
	db := dbtest.TrackedWithUndo(t,
		"CREATE TABLE projects (id bigint PRIMARY KEY); CREATE TABLE issues (id bigint, project_id bigint)", "projects")
	c := &config.Config{Jobs: config.Jobs{Database: "main", Silence: heartbeat.DefaultSilence}}
	c.Databases = []config.Database{{Name: "main", Schema: "public"}}
	c.LooseForeignKeys.Enabled, c.LooseForeignKeys.Schedule, c.LooseForeignKeys.Undo.Keep = true, "* * * * *",
		72*time.Hour
	connected := db.Connected
	connected.Name = "main"
	file := definitions.File{
		Name: "lfk.yml",
		Data: []byte("issues: [{table: projects, column: project_id, on_delete: async_delete}]"),
	}
	all := &installation.Bound{
		Connections: &installation.Connections{Config: c, Databases: []database.Database{connected}},
		Definitions: pgtest.Must(definitions.Parse(file))(t),
	}
	source := NewPageSource(all, &riverjobs.Bindings{}, slog.New(slog.DiscardHandler))
	kept := pgtest.Must(source.Overview(t.Context()))(t).Kept
	require.Empty(t, kept.Deletions)
	require.Empty(t, kept.Trouble)

	db.Exec("INSERT INTO projects SELECT generate_series(1, 3)")
	db.Exec("DELETE FROM projects")
	db.Exec("INSERT INTO projects VALUES (2)")
	source.kept.Forget()
	listed := pgtest.Must(source.Overview(t.Context()))(t).Kept.Deletions
	require.Len(t, listed, 1)
	require.Equal(t, []string{"1", "2", "3"}, listed[0].Keys)
	require.EqualValues(t, 3, listed[0].Missing())
	id := listed[0].ID
	shown := pgtest.Must(source.Deletion(t.Context(), id))(t)
	require.Nil(t, shown.Undone)
	require.True(t, shown.Waiting)

	require.Equal(t, "2 rows restored, 1 row left", pgtest.Must(source.Undo(t.Context(), ann(), id))(t))
	require.Equal(t, [][]string{{"1"}, {"2"}, {"3"}}, db.Rows("SELECT id::text FROM projects ORDER BY id"))
	require.Equal(t, [][]string{{"2"}}, db.Rows("SELECT primary_key_value FROM loose_foreign_keys_deleted_records"),
		"the other rows exist")
	require.Equal(t, [][]string{{"ann", "10.0.0.7:1234", "undo"}},
		db.Rows("SELECT actor, remote, action FROM sexton.audit"))
	shown = pgtest.Must(source.Deletion(t.Context(), id))(t)
	require.Equal(t, "ann", shown.Undone.By)
	require.Equal(t, "2 rows restored, 1 row left", shown.Undone.Outcome())
	require.Equal(t, "2", shown.Undone.Report.Left[0].Key)
	require.EqualValues(t, 1, shown.Missing())
	require.False(t, shown.Working())
	require.Equal(t, "0 rows restored, 1 row left", pgtest.Must(source.Undo(t.Context(), ann(), id))(t))

	_, err := source.Undo(t.Context(), ann(), id+1_000_000)
	var refused *components.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Nil(t, pgtest.Must(source.Deletion(t.Context(), id+1_000_000))(t))
	source.Stop()
	require.Empty(t, db.Rows("SELECT FROM sexton.leases WHERE expires_at > now()"))
}

// Only one deletion is restored at a time, and a stopping worker cancels the restore.
func TestOneRestoreAtATime(t *testing.T) {
	t.Parallel()
	source := newObservedSite(t, "main").source(t)
	require.Nil(t, source.readKept(t.Context(), 0), "undo is disabled, and no deletion is kept")
	ended := make(chan struct{})
	work := &Undone{id: 7, ended: ended}
	require.NoError(t, source.beginUndo(work, func() { close(ended) }))
	require.True(t, Deletion{Undone: work}.Working())
	var refused *components.RefusedError
	_, err := source.Undo(t.Context(), ann(), 8)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "deletion 7 is being restored; wait until that ends", refused.Reason)
	source.Stop()
	require.NoError(t, source.beginUndo(&Undone{id: 8, ended: make(chan struct{})}, nil))
}
