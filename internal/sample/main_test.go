package sample

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// empty returns a database with the application's tables.
func empty(t *testing.T) *pgtest.Database {
	t.Helper()
	return pgtest.FromTemplate(t, "reference", func(ctx context.Context, url string) (err error) {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, Schema())
		return err
	})
}

// loose returns the application's definitions, read as a worker reads them.
func loose(t *testing.T) []definitions.Definition {
	t.Helper()
	path := filepath.Join(t.TempDir(), "loose_foreign_keys.yml")
	require.NoError(t, os.WriteFile(path, []byte(Definitions()), 0o600))
	return pgtest.Must(definitions.Load([]string{path}))(t)
}

// ordinaryTables lists the tables of the database, a partitioned one as one.
func ordinaryTables(d *pgtest.Database) []string {
	var names []string
	for _, row := range d.Rows(`
		SELECT relname FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
		ORDER BY relname`) {
		names = append(names, row[0])
	}
	return names
}
