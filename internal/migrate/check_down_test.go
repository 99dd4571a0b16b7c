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
	require.EqualValues(t, 1, pending.Count)
	require.NoError(t, check(true))
	d.Exec("CREATE VIEW theirs AS SELECT FROM sexton.runs")
	var dependent *migrate.DependentError
	require.ErrorAs(t, check(true), &dependent)
	d.Exec("DROP VIEW theirs; INSERT INTO sexton.migrations_base (version) VALUES (99)")
	var newer *migrate.SchemaError
	require.ErrorAs(t, check(true), &newer)
	require.Equal(t, before, catalogue(d))
}
