package dbtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestFamilyCreatesTheGivenNumberOfChildren(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	db.Exec(dbtest.Family(3, dbtest.Children{Each: 2, Columns: "kind int DEFAULT 7"},
		dbtest.Children{Table: "notes", Each: 1, Partitions: 2, Bare: true}) +
		dbtest.Parents("authors", 2) + dbtest.Children{Table: "books", Of: "authors"}.SQL())
	require.Equal(t, [][]string{
		{"2", "1", "7"},
		{"3", "1", "7"},
		{"4", "2", "7"},
		{"5", "2", "7"},
		{"6", "3", "7"},
		{"7", "3", "7"},
	}, db.Rows("SELECT * FROM children"))
	require.Equal(t, [][]string{{"1", "1"}, {"2", "2"}, {"3", "3"}}, db.Rows("SELECT * FROM notes ORDER BY id"))
	require.Empty(t, db.Rows("SELECT author_id FROM books"))
	require.Equal(t, [][]string{{"books"}, {"children"}},
		db.Rows("SELECT tablename FROM pg_indexes WHERE indexdef ~ '(parent|author)_id' ORDER BY 1"))
}

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
