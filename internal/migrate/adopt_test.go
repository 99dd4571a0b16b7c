package migrate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/exampleapp"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// emptied is SQL that deletes all rows of the schema sexton and restarts its sequences,
// as after the restore of a schema dump.
const emptied = `DO $$ DECLARE one record; BEGIN
	FOR one IN SELECT oid::regclass AS name FROM pg_class WHERE relnamespace = 'sexton'::regnamespace AND relkind IN ('r', 'p') LOOP
		EXECUTE format('TRUNCATE %s RESTART IDENTITY CASCADE', one.name);
	END LOOP;
	FOR one IN SELECT oid::regclass AS name FROM pg_class WHERE relnamespace = 'sexton'::regnamespace AND relkind = 'S' LOOP
		EXECUTE format('ALTER SEQUENCE %s RESTART', one.name);
	END LOOP;
END $$`

// Up installs missing objects, and recognizes the existing objects by their comments.
func TestUpRestoresMissingObjects(t *testing.T) {
	t.Parallel()
	// Without these tables of the application, Up creates Sexton's own queues.
	application := exampleapp.Schema() + "; DROP TABLE group_deletion_schedules, import_placeholder_user_details"
	fresh := pgtest.New(t)
	fresh.Exec(application)
	every := []string{
		migrate.GhostUsers, migrate.PlaceholderUsers, migrate.AdjournedGroups, migrate.ExternalDiffs,
		migrate.Undo,
	}
	up(t, with(t, fresh, every...))
	want := describe(fresh, nothing)
	pgtest.Each(t, map[string]string{
		"a schema dump":                    emptied,
		"a schema dump without comments":   emptied + "; COMMENT ON SCHEMA sexton IS NULL",
		"a dump without the schema":        "DROP SCHEMA sexton CASCADE",
		"dropped tables":                   "DROP TABLE sexton.leases, sexton.runs, sexton.undo_state",
		"a dropped view":                   "DROP VIEW sexton.backlog",
		"a dropped function":               "DROP FUNCTION sexton.begin_batch",
		"a dropped queue":                  "DROP TABLE loose_foreign_keys_deleted_records",
		"all dropped queues":               "DROP TABLE loose_foreign_keys_deleted_records, group_deletion_schedules, users_ghost_user_migrations, import_placeholder_user_details",
		"a dropped trigger and its schema": "DROP SCHEMA sexton CASCADE; DROP TABLE group_deletion_schedules",
		"a dropped table of River's":       "DROP TABLE sexton.river_queue",
		"missing versions of River":        "TRUNCATE sexton.river_migration",
		"dropped tables of River's":        "DROP TABLE sexton.river_job, sexton.river_migration",
	}, func(t *testing.T, _, damage string) {
		d := pgtest.New(t)
		d.Exec(application)
		db := with(t, d, every...)
		up(t, db)
		d.Exec(damage)
		up(t, db)
		require.NoError(t, migrate.Check(t.Context(), db))
		require.Equal(t, want, describe(d, nothing))
		require.Len(t,
			d.Rows("SELECT FROM sexton.undo_state, sexton.placeholder_rules, sexton.external_diff_installation"), 1)
		require.True(t, pgtest.Scalar[bool](t, d, "SELECT nextval('sexton.undo_ids') >= 1000000000"))
		down(t, db)
	})
}

// After the restore of a dump without comments, Up adopts tables that have the columns of
// Sexton's tables. It refuses tables with other columns.
func TestUpAdoptsTablesWithoutComments(t *testing.T) {
	t.Parallel()
	d, db := installed(t)
	want := describe(d, nothing)
	const uncommented = "DELETE FROM pg_description WHERE objoid >= 16384"
	d.Exec(emptied + ";" + uncommented)
	require.Error(t, migrate.Check(t.Context(), db))
	up(t, db)
	require.NoError(t, migrate.Check(t.Context(), db))
	require.Equal(t, want, describe(d, nothing))

	for table, change := range map[string]string{
		`"sexton".leases`: "ALTER TABLE sexton.leases RENAME holder TO other",
		`"public".loose_foreign_keys_deleted_records`: "ALTER TABLE loose_foreign_keys_deleted_records RENAME status TO other",
	} {
		d.Exec(uncommented + ";" + change)
		_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
		require.ErrorContains(t, err, "database main has "+table+", which Sexton did not create; nothing was changed: ")
		d.Exec(strings.NewReplacer("RENAME holder TO other", "RENAME other TO holder", "RENAME status TO other",
			"RENAME other TO status").Replace(change))
	}
}

func TestUpKeepsJobsIfRiversTablesAreIncomplete(t *testing.T) {
	t.Parallel()
	d, db := installed(t)
	d.Exec("INSERT INTO sexton.river_job (args, kind, max_attempts, state) VALUES ('{}', 'cleanup', 1, 'available'); DROP TABLE sexton.river_queue")
	_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
	require.ErrorContains(t, err, `lacks River's "sexton".river_queue, and there are jobs (1)`)
	d.Exec("TRUNCATE sexton.river_job")
	up(t, db)
	require.NoError(t, migrate.Check(t.Context(), db))
}
