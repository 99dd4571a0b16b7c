package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// provider hands the component's files to goose as functions: goose's own parser works line by line,
// and a configured schema name may contain line ends.
func (c sqlComponent) provider(s *session) (*goose.Provider, error) {
	var migrations []*goose.Migration
	for _, m := range c.migrations() {
		run := func(direction string) *goose.GoFunc {
			return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
				statements, err := c.statements(s, m, direction)
				if err != nil {
					return err
				}
				if _, err = tx.ExecContext(ctx, statements); err != nil || direction == "up" || m.Version > 1 {
					return err
				}
				return c.remove(ctx, s, tx)
			}}
		}
		migrations = append(migrations, goose.NewGoMigration(m.Version, run("up"), run("down")))
	}
	provider, err := goose.NewProvider(goose.DialectCustom, s.sqlDB, nil,
		goose.WithStore(newStore(s.db, c)),
		goose.WithGoMigrations(migrations...),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(s.log),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare migrations: %w", err)
	}
	return provider, nil
}

func (c sqlComponent) up(ctx context.Context, s *session) ([]Migration, error) {
	provider, err := c.provider(s)
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	return c.applied(results, err)
}

func (c sqlComponent) down(ctx context.Context, s *session) ([]Migration, error) {
	provider, err := c.provider(s)
	if err != nil {
		return nil, err
	}
	results, err := provider.DownTo(ctx, 0)
	return c.applied(results, err)
}

// applied translates goose's results, also those of a run that ended with an error.
func (c sqlComponent) applied(results []*goose.MigrationResult, err error) ([]Migration, error) {
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		results, err = partial.Applied, fmt.Errorf("apply version %d: %w", partial.Failed.Source.Version, partial.Err)
	}
	applied := []Migration{}
	for _, result := range results {
		for _, m := range c.migrations() {
			if m.Version == result.Source.Version {
				applied = append(applied, m)
			}
		}
	}
	return applied, err
}

// store keeps the versions of one component. Goose's own store does not quote the table's name, and the
// jobs schema may be a keyword.
type store struct {
	db               Database
	component, table string
	quoted           string
}

var _ database.StoreExtender = store{}

func newStore(db Database, c sqlComponent) store {
	table := versionTable(c.name())
	return store{db: db, component: c.name(), table: table, quoted: pgx.Identifier{db.JobsSchema, table}.Sanitize()}
}

// Tablename implements database.Store.
func (s store) Tablename() string { return s.quoted }

// TableExists implements database.StoreExtender.
func (s store) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	var exists bool
	err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = $2)", s.db.JobsSchema, s.table).
		Scan(&exists)
	return exists, err
}

// CreateVersionTable implements database.Store. Goose calls it in a transaction, which the table's entry
// in the registry shares.
func (s store) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	create := fmt.Sprintf(`CREATE TABLE %s (
		version bigint PRIMARY KEY,
		applied_at timestamptz NOT NULL DEFAULT pg_catalog.now()
	)`, s.quoted)
	if _, err := db.ExecContext(ctx, create); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, s.db.register(), "table", identity(s.db.JobsSchema, s.table), s.component)
	return err
}

// Insert implements database.Store.
func (s store) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (version) VALUES ($1)", s.quoted), req.Version)
	return err
}

// Delete implements database.Store.
func (s store) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s WHERE version = $1", s.quoted), version)
	return err
}

// GetMigration implements database.Store.
func (s store) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	result := &database.GetMigrationResult{IsApplied: true}
	err := db.QueryRowContext(ctx, fmt.Sprintf("SELECT applied_at FROM %s WHERE version = $1", s.quoted), version).Scan(&result.Timestamp)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, database.ErrVersionNotFound
	}
	return result, err
}

// GetLatestVersion implements database.Store.
func (s store) GetLatestVersion(ctx context.Context, db database.DBTxConn) (int64, error) {
	var version sql.Null[int64]
	err := db.QueryRowContext(ctx, fmt.Sprintf("SELECT pg_catalog.max(version) FROM %s", s.quoted)).Scan(&version)
	if err == nil && !version.Valid {
		return 0, database.ErrVersionNotFound
	}
	return version.V, err
}

// ListMigrations implements database.Store.
func (s store) ListMigrations(ctx context.Context, db database.DBTxConn) (_ []*database.ListMigrationsResult, err error) {
	rows, err := db.QueryContext(ctx, fmt.Sprintf("SELECT version FROM %s ORDER BY version DESC", s.quoted))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var migrations []*database.ListMigrationsResult
	for rows.Next() {
		result := &database.ListMigrationsResult{IsApplied: true}
		if err := rows.Scan(&result.Version); err != nil {
			return nil, err
		}
		migrations = append(migrations, result)
	}
	return migrations, rows.Err()
}
