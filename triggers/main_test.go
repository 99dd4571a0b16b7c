package triggers_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bundle holds a migrated database and the connection of an installer.
type bundle struct {
	*pgtest.Database
	t    *testing.T
	conn *pgx.Conn
	cfg  triggers.Config
}

func setup(t *testing.T, statements ...string) *bundle {
	d := pgtest.FromTemplate(t, "migrated", func(ctx context.Context, url string) error {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			return err
		}
		_, err = migrate.Up(ctx, slog.New(slog.DiscardHandler), migrate.Database{
			Name: "main", Conn: config, TrackedSchema: "public", Components: []string{migrate.LooseForeignKeys},
		})
		return err
	})
	b := &bundle{Database: d, t: t, cfg: triggers.Config{TrackedSchema: "public"}}
	b.conn = b.connect(d.URL)
	for _, statement := range statements {
		d.Exec(statement)
	}
	return b
}

func (b *bundle) connect(url string) *pgx.Conn {
	b.t.Helper()
	return pgtest.Connect(b.t, url)
}

func (b *bundle) install(parents ...triggers.Parent) triggers.Report {
	b.t.Helper()
	return pgtest.Must(triggers.Install(b.t.Context(), b.conn, b.cfg, parents))(b.t)
}

// recreate drops the tables and tombstones of the previous case, creates new tables in
// the same database, and installs the triggers.
func (b *bundle) recreate(tables string, of ...triggers.Parent) triggers.Report {
	b.t.Helper()
	b.Exec("DROP TABLE IF EXISTS parents, events, events_low, owners, p CASCADE; DELETE FROM loose_foreign_keys_deleted_records;" + tables)
	return b.install(of...)
}

func (b *bundle) status(parents ...triggers.Parent) []triggers.Finding {
	b.t.Helper()
	return pgtest.Must(triggers.Status(b.t.Context(), b.conn, b.cfg, parents))(b.t)
}

// tombstones returns the tombstones as "name key", sorted by name and key, with integer
// keys first.
func (b *bundle) tombstones() []string {
	b.t.Helper()
	lines := []string{}
	for _, row := range b.Rows(`
		SELECT fully_qualified_table_name, coalesce(primary_key_value::text, primary_key_text)
		FROM public.loose_foreign_keys_deleted_records
		ORDER BY fully_qualified_table_name, primary_key_value, primary_key_text`) {
		lines = append(lines, strings.Join(row, " "))
	}
	return lines
}

// catalog lists triggers and functions with the id of the transaction that last wrote
// them.
func (b *bundle) catalog() [][]string {
	b.t.Helper()
	return b.Rows(`
		SELECT 'trigger', tgrelid::regclass || '.' || tgname, xmin FROM pg_trigger
		UNION ALL SELECT 'function', oid::regprocedure::text, xmin FROM pg_proc WHERE pronamespace = 'sexton'::regnamespace
		ORDER BY 1, 2`)
}

func id(table string) triggers.Parent {
	return triggers.Parent{Schema: "public", Table: table, KeyColumns: []string{"id"}}
}

func requireState(t *testing.T, err error, state string) *pgconn.PgError {
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, state, pgErr.Code, pgErr.Message)
	return pgErr
}

// withShortLockWaits returns cfg with two attempts of 50 ms to lock a table.
func withShortLockWaits(cfg triggers.Config) triggers.Config {
	cfg.LockTimeout, cfg.LockAttempts = 50*time.Millisecond, 2
	return cfg
}
