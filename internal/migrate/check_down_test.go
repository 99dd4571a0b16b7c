package migrate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

func TestCheckDownRefusesWhatDownRefuses(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)
	require.NoError(t, migrate.CheckDown(t.Context(), pgtest.Logger(t), db, false), "nothing is installed")
	up(t, db)
	before := catalogue(d)
	check := func(force bool) error { return migrate.CheckDown(t.Context(), pgtest.Logger(t), db, force) }
	require.NoError(t, check(false))
	d.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.gone', 1)")
	var pending *migrate.PendingError
	require.ErrorAs(t, check(false), &pending)
	require.EqualValues(t, 1, pending.Work[migrate.LooseForeignKeys])
	require.NoError(t, check(true))
	d.Exec("CREATE VIEW theirs AS SELECT FROM sexton.runs")
	var dependent *migrate.DependentError
	require.ErrorAs(t, check(true), &dependent)
	d.Exec("DROP VIEW theirs; INSERT INTO sexton.migrations_base (version) VALUES (99)")
	var newer *migrate.SchemaError
	require.ErrorAs(t, check(true), &newer)
	require.Equal(t, before, catalogue(d))
}

// The components of either are the same, whatever is enabled.
func TestCheckDownLooksAtEveryComponent(t *testing.T) {
	t.Parallel()
	for name, enable := range map[string]func(*migrate.Database){
		"loose foreign keys": func(db *migrate.Database) { db.Components = append(db.Components, migrate.LooseForeignKeys) },
		"ghost users":        func(db *migrate.Database) { db.Components = append(db.Components, migrate.GhostUsers) },
		"adjourned groups":   func(db *migrate.Database) { db.Components = append(db.Components, migrate.AdjournedGroups) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := pgtest.New(t)
			d.Exec(usersTable + "CREATE TABLE groups (id bigint PRIMARY KEY, parent_id bigint, name text, path text, marked_for_deletion_on date); CREATE SCHEMA app")
			db := migrate.Database{Name: "main", Conn: connConfig(t, d.URL), JobsSchema: "sexton", TrackedSchema: "public", Jobs: true}
			installed := db
			enable(&installed)
			up(t, installed)
			// Down would not find them there.
			db.TrackedSchema = "app"
			var misplaced *migrate.PlacementError
			_, err := migrate.Down(t.Context(), pgtest.Logger(t), db, false)
			require.ErrorAs(t, err, &misplaced)
			require.ErrorAs(t, migrate.CheckDown(t.Context(), pgtest.Logger(t), db, false), &misplaced)
		})
	}
}
