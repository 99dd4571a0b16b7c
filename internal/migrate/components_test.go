package migrate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/exampleapp"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// with returns the settings of everything with additional components.
func with(t *testing.T, d *pgtest.Database, components ...string) migrate.Database {
	db := everything(t, d)
	db.Components = append(db.Components, components...)
	return db
}

// requireMissing requires that Check reports a missing object.
func requireMissing(t *testing.T, db migrate.Database, object string) {
	var schema *migrate.SchemaError
	require.ErrorAs(t, migrate.Check(t.Context(), db), &schema)
	require.ErrorContains(t, schema, " lacks "+object)
}

// testInstallAndRemoval installs a component twice, calls check, removes Sexton, and
// requires that the state is the same as before.
func testInstallAndRemoval(t *testing.T, db migrate.Database, name string, state func() any, check func()) {
	before := state()
	up(t, db)
	require.NoError(t, migrate.Check(t.Context(), db))
	check()
	require.Empty(t, component(t, up(t, db), name).Applied, "the second run applies nothing")
	down(t, migrate.Database{Name: "main", Conn: db.Conn, TrackedSchema: "public"})
	require.Equal(t, before, state())
	up(t, db)
}

// columnsOf returns the columns of a table, in order.
func columnsOf(d *pgtest.Database, table string) [][]string {
	return d.Rows("SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum", table)
}

const groupsTables = `
CREATE TABLE users (id bigint PRIMARY KEY, state text, admin boolean);
CREATE TABLE groups (id bigint PRIMARY KEY, parent_id bigint, name text, path text, marked_for_deletion_on date);
CREATE TABLE projects (id bigint PRIMARY KEY, group_id bigint);`

// groupSchedules creates a schedule table of the application, as in GitLab.
const groupSchedules = `CREATE TABLE group_deletion_schedules (
	group_id bigint PRIMARY KEY REFERENCES groups ON DELETE CASCADE, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE,
	marked_for_deletion_on date NOT NULL, remark text);`

func TestAdjournedGroupsAreInstalledAndRemoved(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"with Sexton's table":          groupsTables,
		"with the application's table": groupsTables + groupSchedules,
		"on the reference schema":      exampleapp.Schema(),
	}, func(t *testing.T, _, tables string) {
		d := pgtest.New(t)
		d.Exec(tables)
		testInstallAndRemoval(t, with(t, d, migrate.AdjournedGroups), migrate.AdjournedGroups,
			func() any { return catalogWithoutWriters(d) }, func() {
				require.Empty(t, publicFunctions(d))
			})
	})
}

// publicFunctions returns the functions in Sexton's schema that PUBLIC may call.
func publicFunctions(d *pgtest.Database) [][]string {
	return d.Rows(`
		SELECT p.oid::regprocedure FROM pg_proc AS p
		WHERE p.pronamespace = 'sexton'::regnamespace AND p.proname !~ '^river_'
			AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0)`)
}

func TestPublicMayCallNoFunction(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(exampleapp.Schema())
	components := []string{
		migrate.GhostUsers, migrate.PlaceholderUsers, migrate.AdjournedGroups, migrate.ExternalDiffs,
		migrate.Undo,
	}
	db := with(t, d, components...)
	before := catalogWithoutToast(d)
	up(t, db)
	require.Empty(t, publicFunctions(d))
	down(t, db)
	require.Equal(t, before, catalogWithoutToast(d), "nothing is left")
}

// Migrations keep an application's own rule, whether it was created before or after the
// first migration. Down drops it with the schema.
func TestUpKeepsTheApplicationsRule(t *testing.T) {
	t.Parallel()
	const rule = `CREATE OR REPLACE FUNCTION sexton.may_remove_group(user_id bigint, group_id bigint) RETURNS boolean LANGUAGE sql AS 'SELECT user_id = 7'`
	allowed := func(d *pgtest.Database) bool {
		return pgtest.Scalar[bool](t, d, "SELECT sexton.may_remove_group(7, 1) AND NOT sexton.may_remove_group(1, 1)")
	}
	for name, first := range map[string]bool{"created before the migration": true, "created after the migration": false} {
		t.Run(name, func(t *testing.T) {
			d := pgtest.New(t)
			d.Exec(groupsTables)
			db := with(t, d, migrate.AdjournedGroups)
			if first {
				d.Exec("CREATE SCHEMA sexton;" + rule)
			}
			up(t, db)
			if !first {
				d.Exec(rule)
			}
			up(t, db)
			require.True(t, allowed(d))
			down(t, db)
			require.Empty(t, d.Rows("SELECT FROM pg_namespace WHERE nspname = 'sexton'"))
		})
	}
}

func TestExternalDiffsAreInstalledAndRemoved(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(exampleapp.Schema())
	db := with(t, d, migrate.ExternalDiffs)
	testInstallAndRemoval(t, db, migrate.ExternalDiffs, func() any { return catalogWithoutWriters(d) }, func() {
		require.Equal(t, [][]string{{"A"}},
			d.Rows("SELECT tgenabled FROM pg_trigger WHERE tgname = 'sexton_external_diffs_removed'"))
	})
	d.Exec("DROP TABLE merge_request_diffs CASCADE")
	down(t, db)
}

func TestInstallationsHaveDifferentIdentities(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 2 {
		d := pgtest.New(t)
		d.Exec(exampleapp.Schema())
		up(t, with(t, d, migrate.ExternalDiffs))
		rows := d.Rows("SELECT id, sexton.external_diff_place() FROM sexton.external_diff_installation")
		require.Len(t, rows, 1)
		require.Regexp(t, `^[0-9]+/[0-9]+$`, rows[0][1], "the server's identifier and the database's OID")
		require.False(t, seen[rows[0][0]] || seen[rows[0][1]])
		seen[rows[0][0]], seen[rows[0][1]] = true, true
	}
}

// If the role may not read the server's identifier, as in some hosted services, the
// identity contains "unknown" instead.
func TestIdentityWithoutTheServersIdentifier(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(exampleapp.Schema())
	up(t, with(t, d, migrate.ExternalDiffs))
	owner := pgx.Identifier{d.CreateRole()}.Sanitize()
	d.Exec("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
	d.Exec("GRANT USAGE, CREATE ON SCHEMA sexton TO " + owner)
	d.Exec("ALTER FUNCTION sexton.external_diff_place() OWNER TO " + owner)
	require.Regexp(t, `^unknown/[0-9]+$`, d.Rows("SELECT sexton.external_diff_place()")[0][0])
}

const usersTable = `CREATE TABLE users (
	id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, username text NOT NULL UNIQUE, email text NOT NULL UNIQUE,
	name text, state text, user_type smallint, admin boolean);`

// usersQueue creates a queue of users that belongs to the application, as in GitLab.
const usersQueue = `CREATE TABLE users_ghost_user_migrations (
	id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, user_id bigint NOT NULL UNIQUE REFERENCES users ON DELETE CASCADE,
	initiator_user_id bigint, hard_delete boolean NOT NULL DEFAULT false, consume_after timestamptz NOT NULL DEFAULT now(),
	created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL, last_error text, user_type smallint);`

func TestGhostUsersAreInstalledAndRemoved(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"with Sexton's queue":          exampleapp.Schema(),
		"with the application's queue": usersTable + usersQueue,
	}, func(t *testing.T, _, tables string) {
		d := pgtest.New(t)
		d.Exec(tables)
		// Down keeps the application's column last_error and drops the columns that Up
		// has added.
		state := func() any { return []any{catalogWithoutWriters(d), columnsOf(d, "users_ghost_user_migrations")} }
		testInstallAndRemoval(t, with(t, d, migrate.GhostUsers), migrate.GhostUsers, state, func() {
			d.Exec(`INSERT INTO users (username, email, name) VALUES ('ada', 'ada@example.com', 'Ada')`)
			require.True(t, pgtest.Scalar[bool](t, d, "SELECT sexton.delete_user(id, NULL) FROM users"))
			require.Equal(t, [][]string{{"0", "NULL", "0", "0", "0", "NULL"}}, d.Rows(`
				SELECT attempts, last_error, moved_rows, deleted_rows, nullified_rows, remaining_rows FROM users_ghost_user_migrations`))
			d.Exec("DELETE FROM users_ghost_user_migrations; DELETE FROM users")
		})
	})
}

const groupsTable = `CREATE TABLE groups (id bigint PRIMARY KEY);`

// detailsTable creates a table of details that belongs to the application, as in GitLab.
const detailsTable = `CREATE TABLE import_placeholder_user_details (
	id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, placeholder_user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE,
	namespace_id bigint, deletion_attempts integer NOT NULL DEFAULT 0, organization_id bigint NOT NULL, last_deletion_attempt_at timestamptz,
	created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL);`

// catalogWithoutToast returns the lines of catalogWithoutWriters without TOAST tables.
// Postgres creates a TOAST table for a text column and keeps it if the column is dropped.
func catalogWithoutToast(d *pgtest.Database) []string {
	return slices.DeleteFunc(catalogWithoutWriters(d),
		func(line string) bool { return strings.HasPrefix(line, "class pg_toast.") })
}

func TestPlaceholderUsersAreInstalledAndRemoved(t *testing.T) {
	t.Parallel()
	type example struct {
		tables string
		// ours holds the columns and indexes with Sexton's comment.
		ours [][]string
	}
	columns, index := [][]string{{"blocked_by"}, {"last_error"}},
		[]string{"sexton_placeholder_user_details_eligible_idx"}
	pgtest.Each(t, map[string]example{
		"Sexton's details":          {usersTable + groupsTable, append(slices.Clone(columns), index)},
		"the application's details": {usersTable + detailsTable, append(slices.Clone(columns), index)},
		"with an index and a column of its own": {
			usersTable + detailsTable + `ALTER TABLE import_placeholder_user_details ADD last_error text;
				CREATE INDEX ON import_placeholder_user_details (deletion_attempts, last_deletion_attempt_at, id) WHERE namespace_id IS NULL;`, columns[:1],
		},
		"the reference application": {exampleapp.Schema(), columns},
	}, func(t *testing.T, _ string, test example) {
		d := pgtest.New(t)
		d.Exec(test.tables)
		state := func() any { return []any{catalogWithoutToast(d), columnsOf(d, "import_placeholder_user_details")} }
		testInstallAndRemoval(t, with(t, d, migrate.GhostUsers, migrate.PlaceholderUsers), migrate.PlaceholderUsers, state,
			func() {
				require.Equal(t, test.ours, d.Rows(`
				SELECT attname::text FROM pg_attribute WHERE attrelid = 'import_placeholder_user_details'::regclass AND col_description(attrelid, attnum) LIKE 'Sexton:%'
				UNION ALL SELECT indexrelid::regclass::text FROM pg_index
				WHERE indrelid = 'import_placeholder_user_details'::regclass AND obj_description(indexrelid, 'pg_class') LIKE 'Sexton:%'
				ORDER BY 1`))
				require.Equal(t, [][]string{{"1"}}, d.Rows(`SELECT count(*) FROM pg_index
				WHERE indrelid = 'import_placeholder_user_details'::regclass AND pg_get_expr(indpred, indrelid) = '(namespace_id IS NULL)'`))
			})
	})
}

// If the table groups has a suitable key, the details refer to it, and the deletion of a
// group sets namespace_id to NULL.
func TestDetailsReferToGroups(t *testing.T) {
	t.Parallel()
	type example struct {
		groups string
		refers bool
	}
	pgtest.Each(t, map[string]example{
		"groups":                      {groupsTable + "INSERT INTO groups VALUES (7);", true},
		"no groups":                   {"", false},
		"groups without a key":        {"CREATE TABLE groups (id bigint);", false},
		"groups with a composite key": {"CREATE TABLE groups (id bigint, part int, PRIMARY KEY (id, part));", false},
		"a view of groups":            {"CREATE VIEW groups AS SELECT 7::bigint AS id;", false},
		"groups with text keys":       {"CREATE TABLE groups (id text PRIMARY KEY);", false},
	}, func(t *testing.T, _ string, test example) {
		d := pgtest.New(t)
		d.Exec(usersTable + test.groups)
		up(t, with(t, d, migrate.GhostUsers, migrate.PlaceholderUsers))
		d.Exec("INSERT INTO users (username, email) VALUES ('p', 'p@example.com')")
		d.Exec("INSERT INTO import_placeholder_user_details (placeholder_user_id, namespace_id) SELECT id, 7 FROM users")
		if test.refers {
			d.Exec("DELETE FROM groups")
			require.Equal(t, [][]string{{"NULL"}}, d.Rows("SELECT namespace_id FROM import_placeholder_user_details"))
		}
		d.Exec("DELETE FROM users")
		require.Empty(t, d.Rows("SELECT FROM import_placeholder_user_details"), "details are deleted with their user")
	})
}

// Check returns an error if a deletion table is in another schema than configured, or if
// it is missing.
func TestCheckFindsDeletionTablesInAnotherSchema(t *testing.T) {
	t.Parallel()
	type example struct {
		tables string
		// moved is run before another schema is configured, and back before the first
		// schema is configured again.
		moved, back  string
		holds, queue string
		components   []string
	}
	const toApp, toPublic = "CREATE SCHEMA app; ALTER TABLE users SET SCHEMA app",
		"ALTER TABLE app.users SET SCHEMA public"
	ghosts := []string{migrate.GhostUsers}
	pgtest.Each(t, map[string]example{
		"groups": {
			groupsTables, "", "", "groups to be deleted", "group_deletion_schedules",
			[]string{migrate.AdjournedGroups},
		},
		"users": {usersTable, toApp, toPublic, "users to be deleted", "users_ghost_user_migrations", ghosts},
		"placeholders": {
			usersTable, toApp + "; ALTER TABLE users_ghost_user_migrations SET SCHEMA app",
			toPublic + "; ALTER TABLE app.users_ghost_user_migrations SET SCHEMA public",
			"details of placeholder users",
			"import_placeholder_user_details",
			[]string{migrate.GhostUsers, migrate.PlaceholderUsers},
		},
	}, func(t *testing.T, _ string, test example) {
		d := pgtest.New(t)
		d.Exec(test.tables)
		db := with(t, d, test.components...)
		db.Components = without(db.Components, migrate.LooseForeignKeys)
		up(t, db)
		d.Exec(test.moved)
		moved := db
		moved.TrackedSchema = "app"
		var placement *migrate.SchemaError
		require.ErrorAs(t, migrate.Check(t.Context(), moved), &placement)
		require.ErrorContains(t, placement, `has its `+test.holds+` in "public".`+test.queue)

		d.Exec(test.back)
		d.Exec("DROP TABLE " + test.queue)
		requireMissing(t, db, `"public".`+test.queue)
		up(t, db)
		down(t, db)
	})
}
