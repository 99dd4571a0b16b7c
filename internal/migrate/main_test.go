package migrate_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// everything returns the settings of a jobs database with loose foreign keys, with the
// usual names.
func everything(t *testing.T, d *pgtest.Database) migrate.Database {
	return migrate.Database{
		Name: "main", Conn: connConfig(t, d.URL), TrackedSchema: "public", Jobs: true,
		Components: []string{migrate.LooseForeignKeys},
	}
}

// installed returns a database in which everything is installed.
func installed(t *testing.T) (*pgtest.Database, migrate.Database) {
	d := pgtest.FromTemplate(t, "everything", func(ctx context.Context, url string) error {
		_, err := migrate.Up(ctx, slog.New(slog.DiscardHandler), everything(t, &pgtest.Database{URL: url}))
		return err
	})
	return d, everything(t, d)
}

func connConfig(t *testing.T, url string) *pgx.ConnConfig {
	return pgtest.Must(pgx.ParseConfig(url))(t)
}

func up(t *testing.T, db migrate.Database) migrate.Report {
	return pgtest.Must(migrate.Up(t.Context(), pgtest.Logger(t), db))(t)
}

func down(t *testing.T, db migrate.Database) migrate.Report {
	return pgtest.Must(migrate.Down(t.Context(), pgtest.Logger(t), db, false))(t)
}

// catalog lists all objects that a removal could leave behind, with the id of the
// transaction that last wrote them. Schemas are listed with their owner instead, because
// a GRANT and its REVOKE also write to a schema's row.
func catalog(d *pgtest.Database) []string {
	var lines []string
	for _, row := range d.Rows(`
		SELECT 'namespace', nspname, nspowner::text FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp'
		UNION ALL SELECT 'class', relnamespace::regnamespace || '.' || relname, xmin::text FROM pg_class
			WHERE relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
		UNION ALL SELECT 'proc', oid::regprocedure::text, xmin::text FROM pg_proc WHERE pronamespace <> 'pg_catalog'::regnamespace
		UNION ALL SELECT 'type', typnamespace::regnamespace || '.' || typname, xmin::text FROM pg_type
			WHERE typnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
		UNION ALL SELECT 'trigger', tgrelid::regclass || '.' || tgname, xmin::text FROM pg_trigger
		UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, xmin::text FROM pg_constraint
			WHERE connamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
		ORDER BY 1, 2, 3`) {
		lines = append(lines, strings.Join(row, " "))
	}
	return lines
}

func component(t *testing.T, report migrate.Report, name string) migrate.ComponentReport {
	for _, c := range report.Components {
		if c.Component == name {
			return c
		}
	}
	require.Failf(t, "no such component", "%s in %+v", name, report)
	return migrate.ComponentReport{}
}

func without(components []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(components), func(one string) bool { return one == name })
}
