package retention_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/internal/retention"
	"sexton/internal/undo"
)

// If undo is on for a table, the rows that a rule deletes are saved, and undo restores
// them.
func TestUndoRestoresDueRows(t *testing.T) {
	t.Parallel()
	db := dbtest.TrackedWithUndo(t, sessions, "sessions")
	conn := pgtest.Must(pgx.ParseConfig(db.URL))(t)
	pgtest.Must(migrate.Up(t.Context(), slog.New(slog.DiscardHandler), migrate.Database{
		Name: "main", Conn: conn, TrackedSchema: "public", Jobs: true,
		Components: []string{migrate.LooseForeignKeys, migrate.Undo, "retention"},
	}))(t)
	const all = "SELECT s::text FROM sessions AS s ORDER BY id"
	before := db.Rows(all)
	e := engine(t, db, keep(90))
	e.Session.Kept = true
	stats := run(t, e)
	require.Empty(t, stats.Errors)
	require.Equal(t, map[string]int64{"sessions": 10}, stats.Deleted)
	require.Len(t, db.Rows(all), 90)

	undoing := &undo.Engine{
		Databases: []database.Database{db.Connected}, Keep: 72 * time.Hour,
		Leases:           &lease.Manager{Jobs: db.Connected, Holder: undo.Holder + "first"},
		Key:              func(string) string { return "undone" },
		StatementTimeout: 20 * time.Second, LockTimeout: 20 * time.Second,
	}
	units := pgtest.Must(undoing.List(t.Context(), 20))(t)
	require.NotEmpty(t, units)
	for _, unit := range units {
		require.Equal(t, "public.sessions", unit.Table)
		pgtest.Must(undoing.Restore(t.Context(), unit.ID, false))(t)
	}
	require.Equal(t, before, db.Rows(all))
}

// A row security policy that hides rows is reported by MissingPrivileges and by the pass,
// and no row is deleted.
func TestRowSecurityIsReported(t *testing.T) {
	t.Parallel()
	db := setup(t,
		sessions+"ALTER TABLE sessions ENABLE ROW LEVEL SECURITY; CREATE POLICY done ON sessions USING (id > 95)")
	e := engine(t, db, keep(90))
	role := db.CreateRole()
	db.Exec("GRANT USAGE ON SCHEMA public, sexton TO " + role +
		"; GRANT ALL ON ALL TABLES IN SCHEMA public, sexton TO " + role +
		"; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO " + role)
	e.Session.Conn = pgtest.ConnectAs(t, pgtest.Must(pgx.ParseConfig(db.AsRole(role)))(t))
	lacking := pgtest.Must(retention.MissingPrivileges(t.Context(), e.Session.Conn, e.Plan))(t)
	require.ErrorContains(t, lacking.Err(), "row-level security hides rows of")
	const policy = `query would be affected by row-level security policy for table "sessions"`
	stats := run(t, e)
	require.Len(t, stats.Errors, 1)
	require.Contains(t, stats.Errors[0].Message, policy)
	require.Contains(t, db.Rows("SELECT last_error FROM sexton.retention_rules")[0][0], policy)
	require.Len(t, db.Rows("SELECT FROM sessions"), 100)
}
