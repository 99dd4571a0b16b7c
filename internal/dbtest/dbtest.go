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

// Names returns the schemas of every test database.
func Names() pgcatalog.Names { return pgcatalog.Names{Tracked: "public"} }

// DB is a migrated database, dropped at the end of the test.
type DB struct {
	*pgtest.Database

	Connected database.Database
}

// New returns a database with all components that need no tables of the application. It is
// a copy of a template.
func New(tb testing.TB) *DB {
	return connected(pgtest.FromTemplate(tb, "migrated", install))
}

// Trackable returns a database like New that also has the objects shared by all tracking
// triggers, so that the first installation of triggers in a test takes less time.
func Trackable(tb testing.TB) *DB {
	return connected(pgtest.Copy(tb, tracking(tb, "trackable", byID([]string{"first"}), install)))
}

// tracking returns a copy of a template on which tables had tracking triggers.
func tracking(tb testing.TB, key string, parents []triggers.Parent,
	install func(ctx context.Context, url string) error,
) string {
	return pgtest.Template(tb, key, "template0", func(ctx context.Context, url string) error {
		if err := install(ctx, url); err != nil {
			return err
		}
		return onServer(ctx, url, func(conn *pgx.Conn) error {
			err := begin(ctx, conn, "CREATE TABLE first (id bigint PRIMARY KEY)", parents)
			if err == nil {
				_, err = conn.Exec(ctx, "DROP TABLE first")
			}
			return err
		})
	})
}

// Tracked returns a database with the given tables, and with tracking triggers on the
// parents, whose key column is id.
func Tracked(tb testing.TB, tables string, parents ...string) *DB {
	return begun(tb, tracking(tb, "trackable", byID([]string{"first"}), install), tables, byID(parents))
}

// Keeping returns a database like Tracked whose triggers keep deleted rows for undo.
func Keeping(tb testing.TB, tables string, parents ...string) *DB {
	return begun(tb, tracking(tb, "keeping", keeping([]string{"first"}), func(ctx context.Context, url string) error {
		if err := migrateUp(ctx, url, []string{migrate.LooseForeignKeys, migrate.Undo}); err != nil {
			return err
		}
		return onServer(ctx, url, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx,
				"SELECT sexton.undo_rotate('undo', '72h', true), sexton.undo_rotate('batches', '72h', true)")
			return err
		})
	}), tables, keeping(parents))
}

func keeping(tables []string) []triggers.Parent {
	kept := byID(tables)
	for i := range kept {
		kept[i].Undo = triggers.KeepsAll
	}
	return kept
}

// beginnings records the tables that tests of this process began with.
var beginnings sync.Map //nolint:gochecknoglobals // No value leads from one test to the next.

// begun returns a copy of a template with tables and triggers added. From the second test
// with the same tables on, the copy is made of a further template that has them.
func begun(tb testing.TB, on, tables string, parents []triggers.Parent) *DB {
	key := fmt.Sprintf("%s with %v on %s", tables, parents, on)
	build := func(ctx context.Context, url string) error {
		return onServer(ctx, url, func(conn *pgx.Conn) error { return begin(ctx, conn, tables, parents) })
	}
	if _, again := beginnings.LoadOrStore(key, true); again {
		return connected(pgtest.Copy(tb, pgtest.Template(tb, key, on, build)))
	}
	d := connected(pgtest.Copy(tb, on))
	d.Exec(tables)
	d.TrackKeys(tb, parents...)
	return d
}

func begin(ctx context.Context, conn *pgx.Conn, tables string, parents []triggers.Parent) error {
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
	return connected(d)
}

// ReferenceIn returns a database like Reference in another encoding.
func ReferenceIn(tb testing.TB, encoding string) *DB {
	d := pgtest.NewEncoded(tb, encoding)
	require.NoError(tb, installReference(tb.Context(), d.URL, exampleapp.Schema(),
		withUsers(migrate.AdjournedGroups, migrate.ExternalDiffs)))
	return connected(d)
}

// WithUsers returns a database with the given tables, which include users, and all
// components except those for groups and diffs. Tests with the same tables share a
// template. The statements in later run in the copy.
func WithUsers(tb testing.TB, tables string, later ...string) *DB {
	d := pgtest.FromTemplate(tb, "users: "+tables, func(ctx context.Context, url string) error {
		return installReference(ctx, url, tables, withUsers())
	})
	for _, sql := range later {
		d.Exec(sql)
	}
	return connected(d)
}

// WithAccounts returns a database with the given tables and the component that deletes
// their users. The statements in later run in the copy.
func WithAccounts(tb testing.TB, tables string, users migrate.Users, later ...string) *DB {
	return withConfigured(tb, tables, migrate.Database{Components: accounts(users), Users: users}, later...)
}

// WithOrganizations returns a database with the given tables and the component that deletes
// their groups. The statements in later run in the copy.
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
		err := onServer(ctx, url, func(conn *pgx.Conn) error {
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
	return connected(d)
}

// accounts returns the components of WithAccounts. GitLab's users need more tables.
func accounts(users migrate.Users) []string {
	if users.Table == "" {
		return []string{migrate.LooseForeignKeys}
	}
	return []string{migrate.LooseForeignKeys, migrate.GhostUsers}
}

// Migrate installs the component for users of another table.
func (d *DB) Migrate(tb testing.TB, users migrate.Users) error {
	return migrateWith(tb.Context(), d.URL, migrate.Database{Components: []string{
		migrate.LooseForeignKeys,
		migrate.GhostUsers,
	}, Users: users})
}

// MigrateGroups installs the component for groups of another table.
func (d *DB) MigrateGroups(tb testing.TB, groups migrate.Groups) error {
	return migrateWith(tb.Context(), d.URL, organizations(groups))
}

// WithGroups returns a database with the given tables, which include users and groups, and
// the components for groups. Tests with the same tables share a template.
func WithGroups(tb testing.TB, tables string) *DB {
	d := pgtest.FromTemplate(tb, "groups: "+tables, func(ctx context.Context, url string) error {
		return installReference(ctx, url, tables, []string{migrate.LooseForeignKeys, migrate.AdjournedGroups})
	})
	return connected(d)
}

// withUsers returns the components that need users, and further ones.
func withUsers(more ...string) []string {
	return append([]string{migrate.LooseForeignKeys, migrate.GhostUsers, migrate.PlaceholderUsers}, more...)
}

func installReference(ctx context.Context, url, tables string, components []string) error {
	err := onServer(ctx, url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, tables)
		return err
	})
	if err != nil {
		return err
	}
	return migrateUp(ctx, url, components)
}

func onServer(ctx context.Context, url string, do func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

// Onto installs the components of New on an empty database.
func Onto(tb testing.TB, d *pgtest.Database) *DB {
	require.NoError(tb, install(tb.Context(), d.URL))
	return connected(d)
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

func connected(d *pgtest.Database) *DB {
	return &DB{Database: d, Connected: database.Database{
		Name: "main", Pool: d.Pool(), Sessions: d.Pool(),
		Names: Names(),
	}}
}

// Track installs the tracking triggers on tables of the public schema whose key column is
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

// TrackKeys installs the tracking triggers on tables with any keys.
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

// Pending returns the number of tombstones.
func (d *DB) Pending(tb testing.TB) int64 {
	return pgtest.Scalar[int64](tb, d.Database,
		"SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE status = 1")
}

// Begin opens a transaction and runs statements in it. The end of the test rolls it back
// if it is still open.
func (d *DB) Begin(tb testing.TB, statements ...string) pgx.Tx {
	return pgtest.Begin(tb, d.Pool(), statements...)
}
