package dbtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/exampleapp"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

// Names returns the schema names that every test database uses.
func Names() pgcatalog.Names { return pgcatalog.Names{Tracked: "public"} }

// DB is a database with Sexton's tables. It is dropped when the test ends.
type DB struct {
	*pgtest.Database

	Connected database.Database
}

// New returns a copy of a template with all components that need no tables of the
// application.
func New(tb testing.TB) *DB {
	return newDB(pgtest.FromTemplate(tb, "migrated", install))
}

// Trackable returns a database like New in which the objects that all tracking triggers
// share already exist. The first installation of triggers then takes less time.
func Trackable(tb testing.TB) *DB {
	return newDB(pgtest.Copy(tb, tracking(tb, "trackable", byID([]string{"first"}), install)))
}

// tracking returns the name of a template on which a table had tracking triggers before
// it was dropped. The shared objects of the triggers remain.
func tracking(tb testing.TB, key string, parents []triggers.Parent,
	install func(ctx context.Context, url string) error,
) string {
	return pgtest.Template(tb, key, "template0", func(ctx context.Context, url string) error {
		if err := install(ctx, url); err != nil {
			return err
		}
		return withConn(ctx, url, func(conn *pgx.Conn) error {
			err := createTables(ctx, conn, "CREATE TABLE first (id bigint PRIMARY KEY)", parents)
			if err == nil {
				_, err = conn.Exec(ctx, "DROP TABLE first")
			}
			return err
		})
	})
}

// Tracked returns a database with the given tables and with tracking triggers on the
// parents, whose key column must be id.
func Tracked(tb testing.TB, tables string, parents ...string) *DB {
	return withTables(tb, tracking(tb, "trackable", byID([]string{"first"}), install), tables, byID(parents))
}

// TrackedWithUndo returns a database like Tracked whose triggers also save deleted rows
// for undo.
func TrackedWithUndo(tb testing.TB, tables string, parents ...string) *DB {
	return withTables(tb, tracking(tb, "keeping", undoParents([]string{"first"}), func(ctx context.Context, url string) error {
		if err := migrateUp(ctx, url, []string{migrate.LooseForeignKeys, migrate.Undo}); err != nil {
			return err
		}
		return withConn(ctx, url, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx,
				"SELECT sexton.undo_rotate('undo', '72h', true), sexton.undo_rotate('batches', '72h', true)")
			return err
		})
	}), tables, undoParents(parents))
}

// undoParents returns parents with the key column id whose rows are all saved for undo.
func undoParents(tables []string) []triggers.Parent {
	kept := byID(tables)
	for i := range kept {
		kept[i].Undo = triggers.KeepsAll
	}
	return kept
}

// usedTables holds a key for each combination of tables and triggers with which this
// process has already created a database.
var usedTables sync.Map //nolint:gochecknoglobals // It decides only whether a template is worth its cost.

// withTables returns a copy of a template with tables and triggers added. When a second
// test uses the same tables, withTables creates another template that already has them.
func withTables(tb testing.TB, on, tables string, parents []triggers.Parent) *DB {
	key := fmt.Sprintf("%s with %v on %s", tables, parents, on)
	build := func(ctx context.Context, url string) error {
		return withConn(ctx, url, func(conn *pgx.Conn) error { return createTables(ctx, conn, tables, parents) })
	}
	if _, again := usedTables.LoadOrStore(key, true); again {
		return newDB(pgtest.Copy(tb, pgtest.Template(tb, key, on, build)))
	}
	d := newDB(pgtest.Copy(tb, on))
	d.Exec(tables)
	d.TrackKeys(tb, parents...)
	return d
}

func createTables(ctx context.Context, conn *pgx.Conn, tables string, parents []triggers.Parent) error {
	_, err := conn.Exec(ctx, tables)
	if err == nil {
		err = track(ctx, conn, parents)
	}
	return err
}

// Reference returns a database with the empty tables of the reference application and all
// components, copied from a template.
func Reference(tb testing.TB) *DB {
	d := pgtest.FromTemplate(tb, "reference", func(ctx context.Context, url string) error {
		return installReference(ctx, url, exampleapp.Schema(),
			withUsers(migrate.AdjournedGroups, migrate.ExternalDiffs))
	})
	return newDB(d)
}

// ReferenceIn returns a database like Reference in another encoding.
func ReferenceIn(tb testing.TB, encoding string) *DB {
	d := pgtest.NewEncoded(tb, encoding)
	require.NoError(tb, installReference(tb.Context(), d.URL, exampleapp.Schema(),
		withUsers(migrate.AdjournedGroups, migrate.ExternalDiffs)))
	return newDB(d)
}

// WithUsers returns a database with the given tables, which must include users, and all
// components except those for groups and diffs. Tests with the same tables share a
// template. The statements in later run in the copy only.
func WithUsers(tb testing.TB, tables string, later ...string) *DB {
	d := pgtest.FromTemplate(tb, "users: "+tables, func(ctx context.Context, url string) error {
		return installReference(ctx, url, tables, withUsers())
	})
	for _, sql := range later {
		d.Exec(sql)
	}
	return newDB(d)
}

// WithAccounts returns a database with the given tables and the component that deletes
// users of the configured table. The statements in later run in the copy only.
func WithAccounts(tb testing.TB, tables string, users migrate.Users, later ...string) *DB {
	return withConfigured(tb, tables, migrate.Database{Components: accounts(users), Users: users}, later...)
}

// WithOrganizations returns a database with the given tables and the component that
// deletes groups of the configured table. The statements in later run in the copy only.
func WithOrganizations(tb testing.TB, tables string, groups migrate.Groups, later ...string) *DB {
	d := withConfigured(tb, tables, organizations(groups), later...)
	d.Connected.Names.GroupViews = true
	return d
}

func organizations(groups migrate.Groups) migrate.Database {
	return migrate.Database{Components: []string{migrate.LooseForeignKeys, migrate.AdjournedGroups}, Groups: groups}
}

func withConfigured(tb testing.TB, tables string, db migrate.Database, later ...string) *DB {
	key := fmt.Sprintf("configured: %v %v %v %s", db.Components, db.Users, db.Groups, tables)
	d := pgtest.FromTemplate(tb, key, func(ctx context.Context, url string) error {
		err := withConn(ctx, url, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, tables)
			return err
		})
		if err == nil {
			err = migrateWith(ctx, url, db)
		}
		return err
	})
	for _, sql := range later {
		d.Exec(sql)
	}
	return newDB(d)
}

// accounts returns the components of WithAccounts. The component for users is included
// only if another table than GitLab's users is configured.
func accounts(users migrate.Users) []string {
	if users.Table == "" {
		return []string{migrate.LooseForeignKeys}
	}
	return []string{migrate.LooseForeignKeys, migrate.GhostUsers}
}

// Migrate installs the component for users of the configured table.
func (d *DB) Migrate(tb testing.TB, users migrate.Users) error {
	return migrateWith(tb.Context(), d.URL, migrate.Database{Components: []string{
		migrate.LooseForeignKeys,
		migrate.GhostUsers,
	}, Users: users})
}

// MigrateGroups installs the component for groups of the configured table.
func (d *DB) MigrateGroups(tb testing.TB, groups migrate.Groups) error {
	return migrateWith(tb.Context(), d.URL, organizations(groups))
}

// WithGroups returns a database with the given tables, which must include users and
// groups, and the components for groups. Tests with the same tables share a template.
func WithGroups(tb testing.TB, tables string) *DB {
	d := pgtest.FromTemplate(tb, "groups: "+tables, func(ctx context.Context, url string) error {
		return installReference(ctx, url, tables, []string{migrate.LooseForeignKeys, migrate.AdjournedGroups})
	})
	return newDB(d)
}

// withUsers returns the components for users plus the given components.
func withUsers(more ...string) []string {
	return append([]string{migrate.LooseForeignKeys, migrate.GhostUsers, migrate.PlaceholderUsers}, more...)
}

func installReference(ctx context.Context, url, tables string, components []string) error {
	err := withConn(ctx, url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, tables)
		return err
	})
	if err != nil {
		return err
	}
	return migrateUp(ctx, url, components)
}

func withConn(ctx context.Context, url string, do func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

// InstallOn installs the components of New in an empty database.
func InstallOn(tb testing.TB, d *pgtest.Database) *DB {
	require.NoError(tb, install(tb.Context(), d.URL))
	return newDB(d)
}

func install(ctx context.Context, url string) error {
	return migrateUp(ctx, url, []string{migrate.LooseForeignKeys})
}

func migrateUp(ctx context.Context, url string, components []string) error {
	return migrateWith(ctx, url, migrate.Database{Components: components})
}

func migrateWith(ctx context.Context, url string, db migrate.Database) error {
	conn, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	db.Name, db.Conn, db.TrackedSchema, db.Jobs = "main", conn, Names().Tracked, true
	_, err = migrate.Up(ctx, slog.New(slog.DiscardHandler), db)
	return err
}

func newDB(d *pgtest.Database) *DB {
	return &DB{Database: d, Connected: database.Database{
		Name: "main", Pool: d.Pool(), Sessions: d.Pool(),
		Names: Names(),
	}}
}

// Track installs the tracking triggers on tables of the schema public whose key column is
// id.
func (d *DB) Track(tb testing.TB, tables ...string) {
	d.TrackKeys(tb, byID(tables)...)
}

func byID(tables []string) []triggers.Parent {
	parents := make([]triggers.Parent, len(tables))
	for i, table := range tables {
		parents[i] = triggers.Parent{Schema: "public", Table: table, KeyColumns: []string{"id"}}
	}
	return parents
}

// TrackKeys installs the tracking triggers on tables with the given key columns.
func (d *DB) TrackKeys(tb testing.TB, parents ...triggers.Parent) {
	conn := pgtest.Must(d.Pool().Acquire(tb.Context()))(tb)
	defer conn.Release()
	require.NoError(tb, track(tb.Context(), conn.Conn(), parents))
}

func track(ctx context.Context, conn *pgx.Conn, parents []triggers.Parent) error {
	cfg := triggers.Config{TrackedSchema: Names().Tracked, Undo: triggers.Undo{MaxRow: 1 << 20}}
	_, err := triggers.Install(ctx, conn, cfg, parents)
	return err
}

// Pending returns the number of pending tombstones.
func (d *DB) Pending(tb testing.TB) int64 {
	return pgtest.Scalar[int64](tb, d.Database,
		"SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE status = 1")
}

// Begin opens a transaction and runs statements in it. If the transaction is still open
// when the test ends, it is rolled back.
func (d *DB) Begin(tb testing.TB, statements ...string) pgx.Tx {
	return pgtest.Begin(tb, d.Pool(), statements...)
}
