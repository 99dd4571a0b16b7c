package loosefk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
)

// Beside the heavy parent's children stand those of others, block by block. A block has fewer of them than the smallest
// statement takes, so that a slow machine walks as well.
const scattered = `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint, note text) WITH (autovacuum_enabled = off);
CREATE INDEX ON children (parent_id);
INSERT INTO parents SELECT generate_series(1, 10);
INSERT INTO children SELECT n, CASE WHEN n % 4 = 0 THEN 2 + n / 4 % 9 ELSE 1 END, repeat('x', 80) FROM generate_series(1, 120000) AS n;`

// Most of the heavy parent's children go by a walk through the table. An older transaction keeps second looks away, so
// whatever others do on the way has to be found before the tombstone goes.
func TestWalkLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		meanwhile     []string
		deleted, stay int64
	}{
		"undisturbed":             {[]string{"SELECT 1"}, 90_000, 30_000},
		"changed":                 {[]string{"UPDATE children SET note = repeat('x', 100) WHERE id > 119000"}, 90_000, 30_000},
		"moved to where it began": {[]string{"VACUUM (TRUNCATE false) children", "UPDATE children SET note = 'moved' WHERE id > 119000"}, 90_000, 30_000},
		"moved away":              {[]string{"UPDATE children SET parent_id = 2 WHERE id > 119000"}, 90_000 - 750, 30_750},
		"moved in":                {[]string{"UPDATE children SET parent_id = 1 WHERE parent_id = 3"}, 93_333, 26_667},
		"added":                   {[]string{"INSERT INTO children SELECT 200000 + n, 1 FROM generate_series(1, 500) AS n"}, 90_500, 30_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupAdaptive(t, scattered+overloadQuietly, deleteChildren, "parents")
			b.Exec(innocent)
			b.begun(t)
			b.Exec("DELETE FROM parents WHERE id = 1")
			b.onProgress(func(s *loosefk.Stats) bool { return s.DeleteCount > 20_000 }, func() {
				for _, statement := range test.meanwhile {
					b.Exec(statement)
				}
			})
			stats := b.run(t)
			require.Empty(t, stats.Errors)
			require.Zero(t, b.count(t, "children WHERE parent_id = 1"))
			require.InDelta(t, test.deleted, stats.DeleteCount, 1)
			require.InDelta(t, test.stay, b.count(t, "children"), 1)
			require.EqualValues(t, 1, stats.Processed)
			require.Zero(t, stats.LateChildren)
			require.Equal(t, []string{"1"}, b.swept())

			var stretches int64
			require.NoError(t, b.engine.Session.Conn.QueryRow(t.Context(),
				"SELECT coalesce(sum(generic_plans), 0)::bigint FROM pg_prepared_statements WHERE statement LIKE '%child.ctid >= %'").Scan(&stretches))
			require.Positive(t, stretches, "statements of the walk")
		})
	}
}

// overloadQuietly makes statements for more than 5,000 children run into their timeout, as overload does, without a
// count of them.
const overloadQuietly = `
CREATE FUNCTION overload() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF (SELECT count(*) FROM gone) > 5000 THEN
		PERFORM pg_sleep(600);
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER overload AFTER DELETE ON children REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION overload();`
