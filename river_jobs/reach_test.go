package riverjobs

import (
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	"sexton/internal/pgschema"
	"sexton/internal/pgtest"
)

// setupTwo adds the database ci to a bundle, with builds of main's parents and with artifacts of builds. The jobs are in main.
func setupTwo(t *testing.T) (b bundle, ci *dbtest.DB) {
	t.Helper()
	b = setup(t)
	ci = dbtest.New(t)
	ci.Connected.Name = "ci"
	ci.Exec(`
		CREATE TABLE builds (id bigint PRIMARY KEY, parent_id bigint);
		CREATE TABLE artifacts (id bigint PRIMARY KEY, build_id bigint);
		CREATE INDEX ON builds (parent_id);
		CREATE INDEX ON artifacts (build_id);
		INSERT INTO builds SELECT n, n FROM generate_series(1, 3) AS n;
		INSERT INTO artifacts SELECT n, n FROM generate_series(1, 3) AS n;`)
	ci.Track(t, "builds")
	defs := pgtest.Must(definitions.Parse(definitions.File{Name: "definitions.yml", Data: []byte(definitionsFile + `
builds:
  - {table: parents, column: parent_id, on_delete: async_delete}
artifacts:
  - {table: builds, column: build_id, on_delete: async_delete}
`)}))(t)
	b.deps.Definitions = defs
	b.deps.Databases = []database.Database{b.db.Connected, ci.Connected}
	ciSettings := b.deps.Config.Databases[0]
	ciSettings.Name = "ci"
	b.deps.Config.Databases = append(b.deps.Config.Databases, ciSettings)
	return b, ci
}

func TestWorkersOfTwoDatabases(t *testing.T) {
	t.Parallel()
	b, ci := setupTwo(t)
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	require.Equal(t, river.EventKindJobCompleted, b.worked(t, "main").Kind)
	require.Zero(t, b.db.Pending(t))
	require.Equal(t, [][]string{{"2"}, {"3"}}, ci.Rows("SELECT id FROM builds ORDER BY id"))
	require.EqualValues(t, 1, ci.Pending(t), "the build's own children are the other lane's work")
	due := pgtest.Must(looseForeignKeysDue(t.Context(), b.deps, ci.Pool(), ci.Connected, false))(t)
	require.Equal(t, listen.Due{}, due, "nobody has told yet what parents there are")

	b.deps.Bindings.Note("ci", []*loosefk.Parent{{Recorded: "public.builds"}})
	due = pgtest.Must(looseForeignKeysDue(t.Context(), b.deps, ci.Pool(), ci.Connected, false))(t)
	require.True(t, due.Now)
	b.db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ($1, now(), now()) ON CONFLICT (name) DO UPDATE SET paused_at = now()", LooseForeignKeys)
	due = pgtest.Must(looseForeignKeysDue(t.Context(), b.deps, ci.Pool(), ci.Connected, false))(t)
	require.False(t, due.Now, "the pause is kept in the jobs database")
	b.db.Exec("UPDATE sexton.river_queue SET paused_at = NULL")

	b.worked(t, "ci")
	require.Zero(t, ci.Pending(t))
	require.Equal(t, [][]string{{"2"}, {"3"}}, ci.Rows("SELECT id FROM artifacts ORDER BY id"))
	require.Equal(t, [][]string{{"ci", "1"}, {"main", "1"}},
		b.db.Rows("SELECT database, stats ->> 'processed' FROM sexton.runs WHERE changed ORDER BY database"))
	require.Equal(t, [][]string{{looseForeignKeysLease("ci")}, {looseForeignKeysLease("main")}},
		ci.Rows("SELECT key FROM sexton.fences ORDER BY key"), "both lanes write here, each behind a fence")
	require.Equal(t, [][]string{{looseForeignKeysLease("main")}}, b.db.Rows("SELECT key FROM sexton.fences"))
}

// nowhere is a database that refuses connections.
func nowhere(t *testing.T) database.Database {
	t.Helper()
	db, err := database.Open(t.Context(), "ci", "postgres:///ci?host="+t.TempDir(), "", pgschema.Names{Jobs: "sexton", Tracked: "public"}, 2)
	require.True(t, database.Lost(err))
	t.Cleanup(db.Pool.Close)
	return db
}

func TestPassWithoutTheOtherDatabase(t *testing.T) {
	t.Parallel()
	b, ci := setupTwo(t)
	b.deps.Databases[1] = nowhere(t)
	// Where its tables cannot be looked up, the patterns say what lives there.
	b.deps.Config.Databases[1].Tables = []string{"builds", "artifacts"}
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.worked(t, "main")
	require.Empty(t, b.db.Rows("SELECT FROM children WHERE parent_id = 1"), "what does not depend on it is done")
	rows := b.db.Rows("SELECT cleanup_attempts, consume_after > now(), last_error FROM loose_foreign_keys_deleted_records")
	require.Len(t, rows, 1)
	require.Equal(t, []string{"0", "t"}, rows[0][:2])
	require.Contains(t, rows[0][2], "builds: database ci cannot be reached")
	require.Contains(t, b.log.String(), "database cannot be reached: what depends on it waits")

	b.deps.Databases[1] = ci.Connected
	b.deps.Bindings.tombstones.ForgetOutages() // As after the pause between two tries.
	b.db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.worked(t, "main")
	require.Zero(t, b.db.Pending(t))
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
}

func TestTicksTakeTurns(t *testing.T) {
	t.Parallel()
	deps := Deps{Config: configuration(t), Databases: []database.Database{{Name: "main"}, {Name: "ci"}}}
	deps.Config.Databases = append(deps.Config.Databases, config.Database{Name: "ci"})
	ticks := pgtest.Must(Ticks(deps))(t)
	epoch := time.Unix(0, 0).UTC()
	for i, tick := range ticks {
		require.Equal(t, deps.Databases[i].Name, tick.Database)
		require.Equal(t, epoch.Add(time.Duration(i+2)*time.Minute), tick.Schedule.Next(epoch.Add(time.Duration(i)*time.Minute)))
	}
	require.Len(t, ticks, 2)
}
