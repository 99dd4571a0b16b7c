package migrate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/exampleapp"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

func installTriggers(t *testing.T, d *pgtest.Database, parents ...triggers.Parent) {
	conn := pgtest.Connect(t, d.URL)
	pgtest.Must(triggers.Install(t.Context(), conn, triggers.Config{TrackedSchema: "public"}, parents))(t)
}

func TestDownRemovesEverything(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec("CREATE TABLE parents (id bigint PRIMARY KEY); CREATE TABLE tags (id uuid PRIMARY KEY)")
	before := catalogWithoutWriters(d)
	db := everything(t, d)
	up(t, db)
	installTriggers(t, d, triggers.Parent{Schema: "public", Table: "parents", KeyColumns: []string{"id"}},
		triggers.Parent{Schema: "public", Table: "tags", KeyColumns: []string{"id"}})

	// Down removes all installed components, whether or not they are configured.
	report := down(t, migrate.Database{Name: "main", Conn: db.Conn, TrackedSchema: "public"})
	require.Equal(t, before, catalogWithoutWriters(d))
	require.Len(t, report.Components, 4)
	require.Equal(t, migrate.LooseForeignKeys, report.Components[0].Component)
	for _, c := range report.Components {
		require.Zero(t, c.To, c.Component)
	}
	require.Len(t, report.Triggers.Triggers, 4)

	report = down(t, db)
	require.Empty(t, report.Components, "the second run removes nothing")
	up(t, db)
}

func TestDownAfterAJobHasRunTwice(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	before := catalogWithoutWriters(d)
	db := everything(t, d)
	up(t, db)
	d.Exec(`INSERT INTO sexton.river_job (args, kind, max_attempts, state, finalized_at, unique_key, unique_states)
		SELECT '{}', 'cleanup', 1, 'completed', now(), 'one', B'11110001' FROM generate_series(1, 2)`)
	down(t, db)
	require.Equal(t, before, catalogWithoutWriters(d))
}

// catalogWithoutWriters returns the lines of catalog without transaction ids. CREATE
// TRIGGER writes to the table's row in pg_class, so the ids differ after a change that
// was reverted.
func catalogWithoutWriters(d *pgtest.Database) []string {
	lines := catalog(d)
	for i, line := range lines {
		for line[len(line)-1] != ' ' {
			line = line[:len(line)-1]
		}
		lines[i] = line
	}
	return lines
}

func TestDownRefusesWhileDeletionsArePending(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec("CREATE TABLE parents (id bigint PRIMARY KEY); INSERT INTO parents SELECT generate_series(1, 9)")
	db := everything(t, d)
	up(t, db)
	installTriggers(t, d, triggers.Parent{Schema: "public", Table: "parents", KeyColumns: []string{"id"}})
	d.Exec("DELETE FROM parents WHERE id <= 3")
	before := catalog(d)

	_, err := migrate.Down(t.Context(), pgtest.Logger(t), db, false)
	require.ErrorContains(t, err, "database main still has pending tombstones (3)")
	require.ErrorContains(t, err, "--force")
	require.NotContains(t, err.Error(), "triggers are already removed")
	require.Equal(t, before, catalog(d), "Down changed nothing, including the triggers")

	pgtest.Must(migrate.Down(t.Context(), pgtest.Logger(t), db, true))(t)
	require.False(t, pgtest.Scalar[bool](t, d, "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname ~ 'sexton')"))
}

// Down returns an error while a component has pending work, unless force is set, and
// while other objects depend on the component's objects.
func TestDownRefusesWhileAComponentHasWork(t *testing.T) {
	t.Parallel()
	type example struct {
		components                   []string
		tables, given, work, message string
	}
	pgtest.Each(t, map[string]example{
		"users to be deleted": {
			[]string{migrate.GhostUsers},
			usersTable,
			`INSERT INTO users (username, email, name) VALUES ('ada', 'ada@example.com', 'Ada'), ('ben', 'ben@example.com', 'Ben');
				SELECT sexton.delete_user(id, NULL) FROM users`,
			"users_ghost_user_migrations", "users to be deleted (2)",
		},
		"groups that are being destroyed": {
			[]string{migrate.AdjournedGroups},
			groupsTables, "INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (1, 1), (2, 1)",
			"group_deletion_schedules", "groups that are being destroyed (2)",
		},
		"placeholders without an owner": {
			[]string{migrate.GhostUsers, migrate.PlaceholderUsers},
			usersTable,
			`INSERT INTO users (username, email) VALUES ('p', 'p@example.com'), ('q', 'q@example.com');
				INSERT INTO import_placeholder_user_details (placeholder_user_id, namespace_id) SELECT id, nullif(id, 1) FROM users`,
			"import_placeholder_user_details", "placeholder users without an owner (1)",
		},
		"objects of deleted diffs": {
			[]string{migrate.ExternalDiffs},
			exampleapp.Schema(),
			"INSERT INTO sexton.external_diff_removals (diff_id, key) VALUES (1, 'key'), (2, 'key')",
			"sexton.external_diff_removals",
			"objects of deleted diffs to be removed (2); let `sexton job run schedule_migrate_external_diffs` finish, or pass --force",
		},
	}, func(t *testing.T, _ string, test example) {
		d := pgtest.New(t)
		d.Exec(test.tables)
		const names = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 1"
		before := d.Rows(names)
		db := with(t, d, test.components...)
		up(t, db)
		d.Exec(test.given)
		_, err := migrate.Down(t.Context(), pgtest.Logger(t), db, false)
		require.ErrorContains(t, err, "database main still has "+test.message)
		require.Equal(t, 1, strings.Count(err.Error(), "still has"), err)

		d.Exec("CREATE VIEW waiting AS SELECT * FROM " + test.work)
		_, err = migrate.Down(t.Context(), pgtest.Logger(t), db, true)
		require.ErrorContains(t, err, "database main: public.waiting depend on Sexton's objects; nothing was changed")
		d.Exec("DROP VIEW waiting")
		pgtest.Must(migrate.Down(t.Context(), pgtest.Logger(t), db, true))(t)
		require.Equal(t, before, d.Rows(names))
	})
}

// Down changes nothing if other objects depend on Sexton's objects. Otherwise the removal
// could fail after the triggers are dropped, and deletions would not be recorded.
func TestDownRefusesWhileObjectsDependOnSexton(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec("CREATE TABLE parents (id bigint PRIMARY KEY)")
	db := everything(t, d)
	up(t, db)
	installTriggers(t, d, triggers.Parent{Schema: "public", Table: "parents", KeyColumns: []string{"id"}})
	d.Exec(`CREATE VIEW backlog AS SELECT count(*) FROM loose_foreign_keys_deleted_records;
		CREATE VIEW sexton.holders AS SELECT holder FROM sexton.leases;
		CREATE VIEW seen AS SELECT * FROM sexton.holders;
		CREATE TABLE copies (LIKE sexton.audit); ALTER TABLE copies INHERIT sexton.audit;
		CREATE FUNCTION waiting() RETURNS SETOF sexton.backlog BEGIN ATOMIC SELECT * FROM sexton.backlog; END;
		CREATE TABLE notes (run_id bigint REFERENCES sexton.runs (id))`)
	before := catalogWithoutWriters(d)
	_, err := migrate.Down(t.Context(), pgtest.Logger(t), db, true)
	require.ErrorContains(t, err,
		"database main: public.backlog, public.copies, public.notes, public.seen, public.waiting() depend on Sexton's objects; nothing was changed")
	require.Equal(t, before, catalogWithoutWriters(d))
}

func TestDownAfterPartialRemoval(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"objects dropped by hand": `DROP TABLE sexton.leases, sexton.clients, sexton.events, loose_foreign_keys_deleted_records;
			DROP FUNCTION sexton.begin_batch, sexton.session_name, sexton.job_args`,
		"the schema dropped by hand":  "DROP SCHEMA sexton CASCADE",
		"another table in the schema": "CREATE TABLE sexton.mine (id int)",
		"missing versions":            "COMMENT ON SCHEMA sexton IS NULL",
		"missing versions of River":   "TRUNCATE sexton.river_migration",
	}, func(t *testing.T, _, damage string) {
		d := pgtest.New(t)
		before := catalog(d)
		db := everything(t, d)
		up(t, db)
		d.Exec(damage)
		down(t, db)
		require.Equal(t, before, catalog(d))
	})
}

func TestDownKeepsTablesWithoutSextonsComment(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec("CREATE TABLE theirs (id bigint, note text); CREATE INDEX theirs_idx ON theirs (id); COMMENT ON COLUMN theirs.note IS 'Sexton: not ours'; " +
		"COMMENT ON TABLE theirs IS 'Sexton: not ours'")
	before := catalog(d)
	db := everything(t, d)
	up(t, db)
	d.Exec("COMMENT ON TABLE loose_foreign_keys_deleted_records IS 'kept'")
	down(t, db)
	d.Exec("DROP TABLE loose_foreign_keys_deleted_records")
	require.Equal(t, before, catalog(d))
}

func TestDownRefusesWhileDeletionsAreKept(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := with(t, d, migrate.Undo)
	up(t, db)
	d.Exec(`INSERT INTO sexton.undo (id, number, layout, rows) VALUES (1, 2, 3, 4), (5, 6, 3, 4);
		INSERT INTO sexton.undo (id, number, layout, rows, origins) VALUES (7, 8, 3, 4, '{1}')`)
	_, err := migrate.Down(t.Context(), pgtest.Logger(t), db, false)
	require.ErrorContains(t, err, "database main still has deletions that `sexton undo` can restore (2)")
	require.ErrorContains(t, err, "--force")
	pgtest.Must(migrate.Down(t.Context(), pgtest.Logger(t), db, true))(t)
}

func TestCheckDownRefusesWhatDownRefuses(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)
	require.NoError(t, migrate.CheckDown(t.Context(), pgtest.Logger(t), db, false), "nothing is installed")
	up(t, db)
	before := catalog(d)
	check := func(force bool) error { return migrate.CheckDown(t.Context(), pgtest.Logger(t), db, force) }
	require.NoError(t, check(false))
	d.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.gone', 1)")
	require.ErrorContains(t, check(false), "still has pending tombstones (1)")
	require.NoError(t, check(true))
	d.Exec("CREATE VIEW theirs AS SELECT FROM sexton.runs")
	require.ErrorContains(t, check(true), "public.theirs depend on Sexton's objects")
	d.Exec("DROP VIEW theirs; COMMENT ON SCHEMA sexton IS 'Sexton: base 99'")
	var newer *migrate.SchemaError
	require.ErrorAs(t, check(true), &newer)
	require.Equal(t, before, catalog(d))
}

// Down and CheckDown check all installed components, whether or not they are enabled.
func TestCheckDownChecksEveryComponent(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]func(*migrate.Database){
		"loose foreign keys": func(db *migrate.Database) {
			db.Components = append(db.Components,
				migrate.LooseForeignKeys)
		},
		"ghost users": func(db *migrate.Database) { db.Components = append(db.Components, migrate.GhostUsers) },
		"adjourned groups": func(db *migrate.Database) {
			db.Components = append(db.Components,
				migrate.AdjournedGroups)
		},
	}, func(t *testing.T, _ string, enable func(*migrate.Database)) {
		d := pgtest.New(t)
		d.Exec(usersTable +
			"CREATE TABLE groups (id bigint PRIMARY KEY, parent_id bigint, name text, path text, marked_for_deletion_on date); CREATE TABLE projects (id bigint, group_id bigint); CREATE SCHEMA app")
		db := migrate.Database{Name: "main", Conn: connConfig(t, d.URL), TrackedSchema: "public", Jobs: true}
		installed := db
		enable(&installed)
		up(t, installed)
		// The deletion tables are in another schema, so Down would not find them.
		db.TrackedSchema = "app"
		var misplaced *migrate.SchemaError
		_, err := migrate.Down(t.Context(), pgtest.Logger(t), db, false)
		require.ErrorAs(t, err, &misplaced)
		require.ErrorAs(t, migrate.CheckDown(t.Context(), pgtest.Logger(t), db, false), &misplaced)
	})
}
