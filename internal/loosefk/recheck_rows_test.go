package loosefk_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// The late child's transaction may be what the ALTER TABLE had to wait for.
func TestSecondLooksFollowTheirTable(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string][2]string{
		"renamed":          {"ALTER TABLE parents RENAME TO origins", "origins"},
		"moved":            {"CREATE SCHEMA other; ALTER TABLE parents SET SCHEMA other", "other.parents"},
		"with other types": {"ALTER TABLE parents ALTER id TYPE text; ALTER TABLE children ALTER parent_id TYPE text", "parents"},
	}, func(t *testing.T, _ string, change [2]string) {
		b, older := behind(t, "id = 1")
		older.exec("INSERT INTO children VALUES (1000, 1); COMMIT")
		b.Exec(change[0])
		b.resolve(t, strings.ReplaceAll(deleteChildren, "parents", change[1]))
		require.EqualValues(t, 1, b.rechecked(t).LateChildren)
		require.Empty(t, b.ids("SELECT id FROM children WHERE parent_id::text = '1'"))
	})
}

func TestSecondLooksFollowTheTypeOfTheirKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE parents (id text PRIMARY KEY); CREATE TABLE children (id bigint PRIMARY KEY, parent_id text);"+
		"CREATE INDEX ON children (parent_id); INSERT INTO parents VALUES ('1'), ('2')", deleteChildren, "parents")
	older := b.begun(t)
	b.Exec("DELETE FROM parents")
	b.run(t)
	b.Exec("UPDATE sexton.swept SET text_keys = text_keys || 'no number'::text")
	older.exec("INSERT INTO children VALUES (1000, '1'); COMMIT")
	b.Exec("ALTER TABLE parents ALTER id TYPE bigint USING id::bigint; ALTER TABLE children ALTER parent_id TYPE bigint USING parent_id::bigint")
	b.resolve(t, deleteChildren)
	require.EqualValues(t, 1, b.rechecked(t).LateChildren)
	require.Empty(t, b.ids("SELECT id FROM children"))
}

// A worker that was away for longer than the cap has waited for nothing else.
func TestWhatNoTransactionHeldIsNotConfirmedEarly(t *testing.T) {
	t.Parallel()
	b, older := behind(t, "id = 1")
	older.exec("ROLLBACK")
	b.engine.Confirming.Within = time.Nanosecond
	stats := b.rechecked(t)
	require.EqualValues(t, 1, stats.Confirmed)
	require.Zero(t, stats.ConfirmedEarly)
}

// A server that is short of locks or memory says nothing of the children.
func TestSecondLooksOutlastAServerThatIsShort(t *testing.T) {
	t.Parallel()
	b, older := behind(t, "id = 1")
	older.exec("INSERT INTO children VALUES (1000, 1); COMMIT")
	b.Exec(`UPDATE sexton.swept SET swept_at = now() - interval '1 day';
		CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'out of shared memory' USING ERRCODE = '53200'; END $$;
		CREATE TRIGGER fails BEFORE DELETE ON sexton.swept FOR EACH ROW EXECUTE FUNCTION fails()`)
	stats := b.run(t)
	require.Equal(t, "53200", stats.Errors[0].SQLState)
	require.Zero(t, stats.ConfirmedEarly)
	require.Equal(t, []string{"1"}, b.unchecked())
	b.Exec("DROP TRIGGER fails ON sexton.swept; UPDATE sexton.swept SET not_before = NULL")
	require.EqualValues(t, 1, b.rechecked(t).LateChildren)
}
