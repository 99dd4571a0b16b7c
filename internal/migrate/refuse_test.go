package migrate_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/exampleapp"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

func TestUpRefusesObjectsThatSextonDidNotCreate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		given string
		taken []string
	}{
		"tombstone table": {
			"CREATE TABLE public.loose_foreign_keys_deleted_records (id int)",
			[]string{`"public".loose_foreign_keys_deleted_records`},
		},
		"view of that name": {
			"CREATE VIEW public.loose_foreign_keys_deleted_records AS SELECT 1 AS id",
			[]string{`"public".loose_foreign_keys_deleted_records`},
		},
		"tables in the schema": {
			"CREATE SCHEMA sexton; CREATE TABLE sexton.events (id int); CREATE TABLE sexton.leases (id int); CREATE TABLE sexton.river_job (id int)",
			[]string{`"sexton".events`, `"sexton".leases`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := pgtest.New(t)
			d.Exec(test.given)
			before := catalog(d)

			_, err := migrate.Up(t.Context(), pgtest.Logger(t), everything(t, d))
			require.ErrorContains(t, err, "database main has "+strings.Join(test.taken, ", ")+
				", which Sexton did not create; nothing was changed: ")
			require.Equal(t, before, catalog(d), "nothing changed")
		})
	}
}

func TestUpRefusesAnotherSchemaForTheTombstones(t *testing.T) {
	t.Parallel()
	d, db := installed(t)
	d.Exec("CREATE SCHEMA app")
	db.TrackedSchema = "app"
	before := catalog(d)

	var placement *migrate.SchemaError
	_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
	require.ErrorAs(t, err, &placement)
	require.ErrorAs(t, migrate.Check(t.Context(), db), &placement)
	_, err = migrate.Down(t.Context(), pgtest.Logger(t), db, true)
	require.ErrorAs(t, err, &placement)
	require.Equal(t, `"public".loose_foreign_keys_deleted_records`, placement.Object)
	require.ErrorContains(t, placement,
		`in "public".loose_foreign_keys_deleted_records, but the configuration puts them into "app".loose_foreign_keys_deleted_records; restore the former schema in the configuration`)
	require.Equal(t, before, catalog(d))
}

func TestUpRefusesASchemaNewerThanTheProgram(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		migrate.Base:  "COMMENT ON SCHEMA sexton IS 'Sexton: base 99, jobs 1, loose_foreign_keys 1'",
		migrate.River: "INSERT INTO sexton.river_migration (line, version) VALUES ('main', 99)",
	}, func(t *testing.T, component string, newer string) {
		d, db := installed(t)
		d.Exec(newer)
		before := catalog(d)

		var schema *migrate.SchemaError
		require.ErrorAs(t, migrate.Check(t.Context(), db), &schema)
		require.Equal(t, "component "+component, schema.Object)
		require.Equal(t, "run a newer sexton", schema.Fix)
		require.ErrorContains(t, schema, " is at version 99, ")
		require.ErrorContains(t, schema, "this binary is older than the schema")
		_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
		require.ErrorAs(t, err, &schema)
		_, err = migrate.Down(t.Context(), pgtest.Logger(t), db, true)
		require.ErrorAs(t, err, &schema)
		require.Equal(t, before, catalog(d))
	})
}

func TestUpNamesMissingPrivileges(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	role := d.CreateRole()
	quoted := pgx.Identifier{role}.Sanitize()
	database := pgx.Identifier{pgtest.Scalar[string](t, d, "SELECT current_database()::text")}.Sanitize()
	d.Exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	db := everything(t, d)
	db.Conn, db.Owner = connConfig(t, d.AsRole(role)), d.CreateRole()

	_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
	var privilege *migrate.PrivilegeError
	require.ErrorAs(t, err, &privilege)
	require.ErrorContains(t, err, `GRANT USAGE, CREATE ON SCHEMA "public" TO `+quoted)
	d.Exec(`GRANT USAGE, CREATE ON SCHEMA "public" TO ` + quoted + "; GRANT " + pgx.Identifier{db.Owner}.Sanitize() +
		" TO " + quoted)
	before := catalog(d)
	_, err = migrate.Up(t.Context(), pgtest.Logger(t), db)
	require.ErrorAs(t, err, &privilege)
	require.ErrorContains(t, err, "permission denied for database")
	require.Equal(t, before, catalog(d), "nothing changed")
	d.Exec("GRANT CREATE ON DATABASE " + database + " TO " + quoted)
	up(t, db)

	// If another role runs Down, the error names that role.
	other := d.CreateRole()
	db.Conn = connConfig(t, d.AsRole(other))
	_, err = migrate.Down(t.Context(), pgtest.Logger(t), db, true)
	require.ErrorAs(t, err, &privilege)
	require.Equal(t, other, privilege.Role)

	db.Conn = connConfig(t, d.AsRole(role))
	down(t, db)
}

func TestUpNeedsTheTrackedSchema(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)
	db.TrackedSchema = "nowhere"
	before := catalog(d)
	_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
	require.EqualError(t, err,
		`migrate database main up: schema "nowhere" of the tracked tables does not exist; correct databases.main.schema`)
	require.Equal(t, before, catalog(d))
}

func TestStatusAndCheckChangeNothing(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)
	before := catalog(d)

	status := pgtest.Must(migrate.Status(t.Context(), db))(t)
	require.Len(t, status, 4)
	for _, c := range status {
		require.True(t, c.Enabled)
		require.Zero(t, c.Current)
		require.Len(t, c.Pending, int(c.Latest), c.Component)
	}
	var schema *migrate.SchemaError
	require.ErrorAs(t, migrate.Check(t.Context(), db), &schema)
	require.EqualError(t, schema, "schema of database main: component base is not installed; run `sexton migrate up`")
	require.Equal(t, before, catalog(d))

	up(t, db)
	status = pgtest.Must(migrate.Status(t.Context(), db))(t)
	for _, c := range status {
		require.Equal(t, c.Latest, c.Current, c.Component)
		require.Empty(t, c.Pending, c.Component)
	}

	db.Components = without(db.Components, migrate.LooseForeignKeys)
	status = pgtest.Must(migrate.Status(t.Context(), db))(t)
	require.Equal(t, migrate.ComponentStatus{
		Component: migrate.LooseForeignKeys, Current: 1, Latest: 1,
		Pending: []migrate.Migration{},
	}, status[3])
}

func TestCheckFindsOldVersionsAndMissingTables(t *testing.T) {
	t.Parallel()
	d, db := installed(t)

	d.Exec("DROP TABLE loose_foreign_keys_deleted_records")
	require.ErrorContains(t, migrate.Check(t.Context(), db),
		`component loose_foreign_keys lacks "public".loose_foreign_keys_deleted_records`)
	d.Exec("DELETE FROM sexton.river_migration WHERE version > 5")
	require.ErrorContains(t, migrate.Check(t.Context(), db),
		"component river is at version 5, this binary needs version")
}

func TestDownWithoutInstallation(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	before := catalog(d)
	require.Empty(t, down(t, everything(t, d)).Components)
	require.Equal(t, before, catalog(d))
}

// Up returns an error that names the application's tables and columns that do not fit a
// component, and changes nothing.
func TestUpRefusesTablesThatDoNotFit(t *testing.T) {
	t.Parallel()
	type example struct {
		components      []string
		tables, message string
	}
	pgtest.Each(t, map[string]example{
		"no users": {
			[]string{migrate.GhostUsers},
			"",
			"ghost_users: there is no table users in schema public (create it, disable the component, or set databases.main.schema to its schema)",
		},
		"users without required columns": {
			[]string{migrate.GhostUsers},
			"CREATE TABLE users (id bigint PRIMARY KEY, name text, state text, admin boolean)",
			"ghost_users: table users has no column user_type (add it)\nghost_users: table users has no column username (add it)\nghost_users: table users has no column email (add it)",
		},
		"users with uuid keys": {
			[]string{migrate.GhostUsers},
			"CREATE TABLE users (id uuid PRIMARY KEY, username text, email text, name text, state text, user_type int, admin boolean)",
			"users.id is of type uuid instead of integer",
		},
		"a view as the queue": {[]string{migrate.GhostUsers}, usersTable + usersQueue + `ALTER TABLE users_ghost_user_migrations RENAME TO queue;
			CREATE VIEW users_ghost_user_migrations AS SELECT * FROM queue`, "is not an ordinary table (rename it)"},
		"groups without required columns": {
			[]string{migrate.AdjournedGroups},
			"CREATE TABLE groups (id bigint, name text, path text)",
			"adjourned_groups: table groups has no column parent_id (add it)\nadjourned_groups: table groups has no column marked_for_deletion_on (add it)\n" +
				"adjourned_groups: there is no table projects in schema public",
		},
		"details that lack columns": {
			[]string{migrate.GhostUsers, migrate.PlaceholderUsers},
			usersTable + "CREATE TABLE import_placeholder_user_details (id bigint, namespace_id bigint)",
			"table import_placeholder_user_details has no column placeholder_user_id (add it)\nplaceholder_users: table import_placeholder_user_details has no column deletion_attempts",
		},
		"no files": {
			[]string{migrate.ExternalDiffs},
			exampleapp.Schema() + "DROP TABLE merge_request_diff_files",
			"external_diffs: there is no table merge_request_diff_files in schema public",
		},
	}, func(t *testing.T, _ string, test example) {
		d := pgtest.New(t)
		d.Exec(test.tables)
		before := catalog(d)
		_, err := migrate.Up(t.Context(), pgtest.Logger(t), with(t, d, test.components...))
		require.ErrorContains(t, err, test.message)
		require.Equal(t, before, catalog(d), "nothing changed")
	})
}
