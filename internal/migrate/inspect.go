package migrate

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed queries/schemas.sql
var schemasSQL string

//go:embed queries/tracked_tables.sql
var trackedTablesSQL string

//go:embed queries/registry_columns.sql
var registryColumnsSQL string

// tombstones is the name of the tombstone table in the tracked schema.
const tombstones = "loose_foreign_keys_deleted_records"

// ghostQueue is the name of the table of users to be deleted, placeholders that of the details of placeholder users, users
// that of the application's users, all in the tracked schema.
const (
	ghostQueue   = "users_ghost_user_migrations"
	placeholders = "import_placeholder_user_details"
	users        = "users"
)

// groupSchedules is the name of the table of groups to be deleted, groups that of the application's groups, both in the
// tracked schema; destructions is that of the groups whose destruction has begun, in Sexton's.
const (
	groupSchedules = "group_deletion_schedules"
	groups         = "groups"
	destructions   = "group_destructions"
)

// relation is a table of the tracked schema.
type relation struct {
	// kind is pg_class.relkind; empty where there is none.
	kind    string
	columns []string
	// integers are those of the columns that are of one of Postgres's own integer types.
	integers []string
}

func (r relation) there() bool { return r.kind != "" }

// lacks returns those of the columns that the relation does not have.
func (r relation) lacks(columns ...string) []string {
	return slices.DeleteFunc(columns, func(c string) bool { return slices.Contains(r.columns, c) })
}

// object is an entry of the registry.
type object struct {
	kind, identity string
}

// identity is the name of an object in the registry, as the SQL files write it.
func identity(schema, name string) string { return pgx.Identifier{schema}.Sanitize() + "." + name }

// inspection is one consistent look at the content of a database; it changes nothing.
type inspection struct {
	role     string
	database string

	hasSchema, mayCreateSchema, mayCreateInSchema bool
	hasTracked, mayCreateInTracked                bool

	// relations are the names taken in Sexton's schema; hasTombstones tells about the tracked schema.
	relations     []string
	hasTombstones bool
	// These are tables of the tracked schema.
	ghostQueue, placeholders, users, groupSchedules, groups relation
	// diffs are the tables of the tracked schema that external_diffs works with, by name.
	diffs map[string]relation
	// registry tells that Sexton's registry is there; objects maps its entries to their component.
	registry bool
	objects  map[object]string
	// versions has the installed version per component; absent is 0.
	versions map[string]int64
}

func (s *session) inspect(ctx context.Context) (inspection, error) {
	var look inspection
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var err error
		look, err = s.db.inspect(ctx, tx)
		return err
	})
	return look, err
}

func (db Database) inspect(ctx context.Context, tx pgx.Tx) (inspection, error) {
	look := inspection{objects: map[object]string{}, versions: map[string]int64{}, diffs: map[string]relation{}}
	err := tx.QueryRow(ctx, schemasSQL,
		db.JobsSchema, db.TrackedSchema, tombstones,
	).Scan(&look.role, &look.database, &look.hasSchema, &look.mayCreateSchema, &look.mayCreateInSchema,
		&look.hasTracked, &look.mayCreateInTracked, &look.hasTombstones, &look.relations)
	if err != nil {
		return look, fmt.Errorf("look up schemas: %w", err)
	}
	if err := db.readTracked(ctx, tx, &look); err != nil {
		return look, err
	}
	if err := db.readRegistry(ctx, tx, &look); err != nil {
		return look, db.explain(look, err)
	}
	if err := db.readVersions(ctx, tx, &look); err != nil {
		return look, db.explain(look, err)
	}
	return look, nil
}

// readTracked reads the tables of the tracked schema that components share with the application.
func (db Database) readTracked(ctx context.Context, tx pgx.Tx, look *inspection) error {
	rows, err := tx.Query(ctx, trackedTablesSQL, db.TrackedSchema,
		slices.Concat([]string{ghostQueue, placeholders, users, groupSchedules, groups}, diffTables()))
	if err != nil {
		return fmt.Errorf("look up tables of the application: %w", err)
	}
	var name string
	var found relation
	_, err = pgx.ForEachRow(rows, []any{&name, &found.kind, &found.columns, &found.integers}, func() error {
		switch name {
		case users:
			look.users = found
		case placeholders:
			look.placeholders = found
		case groups:
			look.groups = found
		case groupSchedules:
			look.groupSchedules = found
		case ghostQueue:
			look.ghostQueue = found
		default:
			look.diffs[name] = found
		}
		found = relation{}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look up tables of the application: %w", err)
	}
	return nil
}

// readRegistry reads the list of Sexton's objects. A table of that name that does not list itself is
// somebody else's.
func (db Database) readRegistry(ctx context.Context, tx pgx.Tx, look *inspection) error {
	if !slices.Contains(look.relations, "objects") {
		return nil
	}
	var columns int
	err := tx.QueryRow(ctx, registryColumnsSQL, db.JobsSchema).Scan(&columns)
	if err != nil || columns != 3 {
		return err
	}
	rows, err := tx.Query(ctx, fmt.Sprintf("SELECT kind, identity, component FROM %s", pgx.Identifier{db.JobsSchema, "objects"}.Sanitize()))
	if err != nil {
		return fmt.Errorf("read list of objects: %w", err)
	}
	objects := map[object]string{}
	var o object
	var component string
	_, err = pgx.ForEachRow(rows, []any{&o.kind, &o.identity, &component}, func() error {
		objects[o] = component
		return nil
	})
	if err != nil {
		return fmt.Errorf("read list of objects: %w", err)
	}
	if _, listsItself := objects[object{"table", identity(db.JobsSchema, "objects")}]; listsItself {
		look.registry, look.objects = true, objects
	}
	return nil
}

func (db Database) readVersions(ctx context.Context, tx pgx.Tx, look *inspection) error {
	for _, c := range allComponents() {
		table, query := versionTable(c.name()), "SELECT coalesce(pg_catalog.max(version), 0) FROM %s"
		if c.name() == River {
			// Before its version 5 River's table has no column line.
			table = "river_migration"
			query = "SELECT coalesce(pg_catalog.max(version), 0) FROM %s AS m WHERE coalesce(pg_catalog.to_jsonb(m) ->> 'line', 'main') = 'main'"
		}
		if !slices.Contains(look.relations, table) || !look.installed(db, c) {
			continue
		}
		var version int64
		if err := tx.QueryRow(ctx, fmt.Sprintf(query, pgx.Identifier{db.JobsSchema, table}.Sanitize())).Scan(&version); err != nil {
			return fmt.Errorf("read version of %s: %w", c.name(), err)
		}
		look.versions[c.name()] = version
	}
	return nil
}

func (i inspection) owns(kind, identity string) bool {
	_, ours := i.objects[object{kind, identity}]
	return ours
}

// ownsRelation reports whether a table or view is Sexton's.
func (i inspection) ownsRelation(identity string) bool {
	return i.owns("table", identity) || i.owns("view", identity)
}

// installed reports whether Sexton began to install the component here.
func (i inspection) installed(db Database, c component) bool {
	if c.name() == River {
		return i.owns("river", db.JobsSchema)
	}
	return i.owns("table", identity(db.JobsSchema, versionTable(c.name())))
}

// explain turns a missing privilege into the statement that grants it.
func (db Database) explain(look inspection, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != "42501" {
		return err
	}
	return &PrivilegeError{
		Database: db.Name, Role: look.role, Missing: pgErr.Message,
		Grant: "the statements that `sexton migrate up --print-grants` prints",
	}
}
