package dbtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestTrackRecordsDeletions(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	require.Zero(t, db.Pending(t))
	db.Exec("CREATE TABLE parents (id bigint PRIMARY KEY)")
	db.Exec("INSERT INTO parents VALUES (1), (2)")
	db.Track(t, "parents")
	db.Exec("DELETE FROM parents WHERE id = 2")
	require.EqualValues(t, 1, db.Pending(t))
	require.Equal(t, [][]string{{"public.parents", "2"}},
		db.Rows("SELECT fully_qualified_table_name, primary_key_value FROM loose_foreign_keys_deleted_records"))
}
