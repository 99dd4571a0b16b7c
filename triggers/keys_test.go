package triggers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/triggers"
)

func TestOtherKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, `CREATE TABLE plain (id int PRIMARY KEY, code text UNIQUE); CREATE TABLE two (a int, b int, PRIMARY KEY (a, b));
		CREATE TABLE bare (id int PRIMARY KEY);`+partitioned)
	b.install(id("plain"), pair("two", "a", "b"), id("events"))
	parents := []triggers.Parent{id("bare"), id("plain"), pair("two", "a", "b"), id("events"), id("absent")}
	other := func(parents ...triggers.Parent) map[int]triggers.OtherKey {
		t.Helper()
		found, err := triggers.OtherKeys(t.Context(), b.conn, b.cfg, parents)
		require.NoError(t, err)
		return found
	}
	require.Empty(t, other(parents...))

	parents[1].KeyColumns, parents[2].KeyColumns = []string{"code"}, []string{"b", "a"}
	require.Equal(t, map[int]triggers.OtherKey{1: {Table: "public.plain"}, 2: {Table: "public.two"}}, other(parents...), "another column, and another order")

	// A partition that was left out of a change of the key.
	function := b.Rows("SELECT tgfoid::regproc FROM pg_trigger WHERE tgrelid = 'two'::regclass AND tgname = 'sexton_track'")[0][0]
	b.Exec("CREATE OR REPLACE TRIGGER sexton_track AFTER DELETE ON events_low REFERENCING OLD TABLE AS sexton_deleted " +
		"FOR EACH STATEMENT EXECUTE FUNCTION " + function + "('public.events')")
	require.Equal(t, map[int]triggers.OtherKey{0: {Table: "public.events_low"}}, other(id("events")))
}

// Tombstones that wait carry the key that the trigger records, and would be read as the new one.
func TestKeyStaysWhileTombstonesWait(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE plain (id int PRIMARY KEY, code int UNIQUE); INSERT INTO plain VALUES (1, 2), (2, 1)")
	b.install(id("plain"))
	b.Exec("DELETE FROM plain WHERE id = 1")
	other := id("plain")
	other.KeyColumns = []string{"code"}
	_, err := triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{other})
	require.ErrorContains(t, err, "create trigger sexton_track on public.plain: tombstones with another key than \"code\" wait")
	b.install(id("plain"))
	b.Exec("DELETE FROM loose_foreign_keys_deleted_records")
	b.install(other)
	b.Exec("DELETE FROM plain")
	require.Equal(t, []string{"public.plain 1"}, b.tombstones(), "the code of the second row")
}
