package loosefk_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
)

const marksDefinitions = "children: [{table: parents, column: parent_id, on_delete: async_delete}]"

func withMarks(t *testing.T) (bundle, *loosefk.Marks) {
	t.Helper()
	b := setup(t, `
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
		CREATE INDEX ON children (parent_id);
		INSERT INTO parents SELECT generate_series(1, 9);
		INSERT INTO children SELECT n, n FROM generate_series(1, 9) AS n`, marksDefinitions, "parents")
	b.engine.Marks = &loosefk.Marks{}
	return b, b.engine.Marks
}

// above counts the pending tombstones that lie above the marks.
func above(t *testing.T, b bundle, m *loosefk.Marks, fresh bool) int64 {
	t.Helper()
	times, ids := m.Places([]string{"public.parents"}, fresh)
	rows, err := b.Pool().Query(t.Context(), "SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE (consume_after, id) > ($1, $2)", times[0], ids[0])
	require.NoError(t, err)
	count, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	return count
}

func (b bundle) pass(t *testing.T) *loosefk.Stats {
	t.Helper()
	stats, err := b.engine.Run(t.Context())
	require.NoError(t, err)
	return stats
}

// A late tombstone comes from a transaction that began before others and commits after them.
const lateTombstone = `INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, consume_after)
	VALUES ('public.parents', 9, now() - interval '1 hour')`

func TestMarksFollowTheQueue(t *testing.T) {
	t.Parallel()
	b, marks := withMarks(t)
	b.Exec("DELETE FROM parents WHERE id <= 3")
	require.EqualValues(t, 3, above(t, b, marks, false), "they know nothing at first")
	require.EqualValues(t, 3, b.pass(t).Processed)
	b.Exec("DELETE FROM parents WHERE id = 9; UPDATE loose_foreign_keys_deleted_records SET consume_after = now() - interval '1 hour'")
	require.Zero(t, above(t, b, marks, false), "a late tombstone is below")
	require.EqualValues(t, 1, above(t, b, marks, true))

	b.Exec("DELETE FROM parents WHERE id = 4")
	require.EqualValues(t, 1, above(t, b, marks, false))
	require.EqualValues(t, 1, b.pass(t).Processed, "the run begins at the marks")
	require.EqualValues(t, 1, b.pass(t).Processed, "a run that finds nothing above them looks below")
	require.Zero(t, b.Pending(t))
}

func TestForgottenMarksBeginAtTheBeginning(t *testing.T) {
	t.Parallel()
	b, marks := withMarks(t)
	b.Exec("DELETE FROM parents WHERE id <= 3")
	b.pass(t)
	b.Exec(lateTombstone)
	b.Exec("DELETE FROM parents WHERE id = 4")
	marks.Forget()
	stats := b.pass(t)
	require.EqualValues(t, 1, stats.Processed)
	require.EqualValues(t, 1, stats.Revived, "parent 9 lives")
}

func TestMarksStayBelowWhatIsLeft(t *testing.T) {
	t.Parallel()
	b, marks := withMarks(t)
	b.Exec(`
		CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'kept'; END $$;
		CREATE TRIGGER keep BEFORE DELETE ON children FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION keep();`)
	b.Exec("DELETE FROM parents WHERE id <= 3")
	require.EqualValues(t, 2, b.pass(t).Processed)
	require.EqualValues(t, 1, above(t, b, marks, false), "one that failed is tried again by the next run")
	b.Exec("DROP TRIGGER keep ON children")
	require.EqualValues(t, 1, b.pass(t).Processed)
}

func TestMarksOfARunThatIsCutShort(t *testing.T) {
	t.Parallel()
	b, marks := withMarks(t)
	b.engine.Limits.Deletes = 2
	b.Exec("DELETE FROM parents WHERE id <= 5")
	require.True(t, b.pass(t).OverLimit)
	require.Equal(t, b.Pending(t), above(t, b, marks, false), "what has been loaded and not been done is above")
	b.engine.Limits.Deletes = 100
	b.pass(t)
	require.Zero(t, b.Pending(t))
}
