package undo_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// configure sets settings of the database for new sessions.
func (b *bundle) configure(settings ...string) {
	for _, setting := range settings {
		b.Exec("ALTER DATABASE " + pgx.Identifier{b.Name}.Sanitize() + " SET " + setting)
	}
	b.Pool().Reset()
}

// The value that a definition sets is stored independently of session settings. A restore
// recognizes it, and a later restore sets it again.
func TestWrittenValueIsIndependentOfSettings(t *testing.T) {
	t.Parallel()
	for kind, value := range map[string]string{
		"timestamptz": "2021-01-01", "date": "2021-02-01", "timestamp": "2021-02-01", "interval": "1 day 2:03:04",
		"float8": "0.1", "int4": "1",
		"timestamptz[]": "{2021-01-01,NULL}", "text[]": `{"a,b",""}`, "tstzrange": "[2021-01-01,2021-01-02)",
		"text": `a,"b"`, "boolean": "yes", "char(3)": "a",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			sets := "on_delete: update_column_to, target_column: v, target_value: '" + value + "'}"
			b := setup(t, threeParents+"ALTER TABLE c ADD v "+kind,
				"c: [{table: p, column: p, "+sets+", {table: q, column: q, "+sets+"]", "p", "q")
			b.configure("TimeZone = 'Europe/Berlin'", "DateStyle = 'SQL, DMY'", "IntervalStyle = 'sql_standard'",
				"extra_float_digits = '-9'")
			before := b.all("c")
			first := b.delete(t, "p WHERE id = 1")
			set := b.Rows("SELECT v::text FROM c WHERE id = 1")[0][0]
			require.NotEqual(t, "NULL", set)
			second := b.delete(t, "q WHERE id = 1")
			require.Empty(t, b.restore(t, first).Left)
			want := [][]string{{"1", "NULL"}, {"2", "NULL"}, {"3", set}, {"4", "NULL"}, {"5", "NULL"}, {"6", "NULL"}}
			require.Equal(t, want, b.Rows("SELECT id::text, v::text FROM c ORDER BY id"))
			require.Empty(t, b.restore(t, second).Left)
			b.drain(t, 0)
			require.Equal(t, before, b.all("c"))
		})
	}
}

// A restore does not mistake a NULL that the application has written for the empty text
// that the definition set.
func TestNullDiffersFromWrittenEmptyText(t *testing.T) {
	t.Parallel()
	const sets = "{table: %s, column: %[1]s, on_delete: update_column_to, target_column: v, target_value: '%s'}"
	b := setup(t, threeParents+"ALTER TABLE c ADD v text DEFAULT 'former'",
		"c: ["+fmt.Sprintf(sets, "p", "")+", "+fmt.Sprintf(sets, "r", "last")+"]", "p", "r")
	first := b.delete(t, "p WHERE id = 1")
	b.Exec("UPDATE c SET v = NULL WHERE id IN (1, 4)")
	second := b.delete(t, "r WHERE id = 1")
	require.Len(t, b.restore(t, first).Left, 3)
	require.Empty(t, b.restore(t, second).Left)
	for range 2 {
		left := b.restore(t, first).Left
		require.Len(t, left, 2)
		require.Equal(t, "the row was deleted or changed since", left[0].Reason)
	}
	require.Equal(t, [][]string{{"1", "NULL"}, {"2", "former"}, {"4", "NULL"}, {"5", "former"}},
		b.Rows("SELECT id::text, v FROM c WHERE p = 1 ORDER BY id"))
}

// A restore recognizes the default value that a native foreign key set, independent of
// the date format of the deleting session.
func TestWrittenDefaultIsIndependentOfSettings(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TABLE folders (id date PRIMARY KEY, moment timestamptz UNIQUE, tags text[] UNIQUE, UNIQUE (id, moment));
CREATE TABLE files (id bigint PRIMARY KEY, folder_id date); CREATE INDEX ON files (folder_id);
CREATE TABLE days (id bigint PRIMARY KEY, day date DEFAULT '2021-02-01' REFERENCES folders ON DELETE SET DEFAULT);
CREATE TABLE moments (id bigint PRIMARY KEY, moment timestamptz DEFAULT '2021-02-01 00:00+00' REFERENCES folders (moment) ON DELETE SET DEFAULT);
CREATE TABLE tags (id bigint PRIMARY KEY, tags text[] DEFAULT '{"a,b"}' REFERENCES folders (tags) ON DELETE SET DEFAULT);
CREATE TABLE pairs (id bigint PRIMARY KEY, day date DEFAULT '2021-02-01', moment timestamptz DEFAULT '2021-02-01 00:00+00',
	FOREIGN KEY (day, moment) REFERENCES folders (id, moment) ON DELETE SET DEFAULT);
INSERT INTO folders VALUES ('2021-02-01', '2021-02-01 00:00+00', '{"a,b"}'), ('2021-03-13', '2021-03-13 00:00+00', '{c}');
INSERT INTO days VALUES (1, '2021-03-13'); INSERT INTO moments VALUES (1, '2021-03-13 00:00+00'); INSERT INTO tags VALUES (1, '{c}');
INSERT INTO pairs VALUES (1, '2021-03-13', '2021-03-13 00:00+00')`, foldersDefinitions, "folders")
	b.installCascadeTriggers(t)
	b.configure("TimeZone = 'Europe/Berlin'", "DateStyle = 'SQL, DMY'")
	tables := []string{"folders", "days", "moments", "tags", "pairs"}
	before := b.all(tables...)
	b.delete(t, "folders WHERE id = '2021-03-13'::date")
	require.NotEqual(t, before, b.all(tables...))
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
	require.Equal(t, before, b.all(tables...))
}
