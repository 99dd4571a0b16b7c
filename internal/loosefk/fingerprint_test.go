package loosefk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

func TestFingerprintFollowsDefinitionsAndNotData(t *testing.T) {
	t.Parallel()

	b := setup(t, `
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (id bigint, parent_id bigint) PARTITION BY LIST (id);
		CREATE TABLE children_1 PARTITION OF children FOR VALUES IN (1);`, deleteChildren, "parents")
	take := func() string {
		return pgtest.Must(loosefk.Fingerprint(t.Context(), b.Pool(), "main", b.engine.Parents))(t)
	}
	first := take()
	b.Exec("INSERT INTO parents VALUES (1); INSERT INTO children VALUES (1, 1); ANALYZE parents, children_1")
	require.Equal(t, first, take(), "data and statistics change nothing")
	for _, change := range []string{
		"CREATE TABLE children_2 PARTITION OF children FOR VALUES IN (2)",
		"ALTER TABLE children DETACH PARTITION children_2",
		"CREATE INDEX ours ON children (parent_id)",
		"DROP INDEX ours",
		"ALTER TABLE children ADD COLUMN note text",
		"ALTER TABLE parents RENAME id TO key",
		"ALTER TABLE parents RENAME TO elders",
		"DROP TABLE children_1",
	} {
		before := take()
		b.Exec(change)
		require.NotEqual(t, before, take(), change)
	}
}

// The run itself compares it, and has changed nothing where the tables are others by now.
func TestRunEndsWhereTablesHaveChanged(t *testing.T) {
	t.Parallel()

	b := setup(t, `
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
		CREATE INDEX ON children (parent_id);
		INSERT INTO parents VALUES (1);
		INSERT INTO children VALUES (1, 1)`, deleteChildren, "parents")
	var err error
	b.engine.Fingerprint = pgtest.Must(loosefk.Fingerprint(t.Context(), b.Pool(), "main", b.engine.Parents))(t)
	b.Exec("DELETE FROM parents; ALTER TABLE children ADD note text")
	_, err = b.engine.Run(t.Context())
	require.ErrorIs(t, err, loosefk.ErrChanged)
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, b.Database, "SELECT count(*) FROM children"))

	b.engine.Fingerprint = pgtest.Must(loosefk.Fingerprint(t.Context(), b.Pool(), "main", b.engine.Parents))(t)
	pgtest.Must(b.engine.Run(t.Context()))(t)
	require.Zero(t, pgtest.Scalar[int64](t, b.Database, "SELECT count(*) FROM children"))
}
