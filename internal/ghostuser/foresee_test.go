package ghostuser_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/ghostuser"
)

// What native cascades take along counts as the deletion counts it, rows that go in two ways once, and nothing changes.
func TestForeseesWhatADeletionDoes(t *testing.T) {
	t.Parallel()
	b := setup(t, topics+`
		CREATE TABLE uploads (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, topic_id bigint REFERENCES topics ON DELETE CASCADE);
		CREATE INDEX ON uploads (user_id);
		CREATE INDEX ON uploads (topic_id);
		INSERT INTO uploads VALUES (1, 1, 1), (2, 1, NULL), (3, 2, 1);
		INSERT INTO posts VALUES (1, 1), (2, 2);`, lists())
	p := plan(t, b.DB, lists())
	foresee := func() *ghostuser.Foresight {
		t.Helper()
		seen, err := p.Foresee(t.Context(), b.Pool(), 1, false)
		require.NoError(t, err)
		return seen
	}
	require.Equal(t, &ghostuser.Foresight{
		Moved:   map[string]int64{"posts": 1},
		Deleted: map[string]int64{"topics": 2, "replies": 601, "marks": 601, "uploads": 3}, Nullified: map[string]int64{"pins.topic_id": 1},
		Rows: 1209, Forbidden: []string{},
	}, foresee())
	b.queue(false, 1)
	b.requireDone(t, b.run(t), 1)
	require.Equal(t, [][]string{{"1", "1207", "1"}}, b.Rows("SELECT payload ->> 'moved', payload ->> 'deleted', payload ->> 'nullified' FROM sexton.events"))

	b.Exec(`CREATE TABLE heaps (topic_id bigint);
		INSERT INTO topics VALUES (50, 2);
		INSERT INTO heaps SELECT 50 FROM generate_series(1, 100100);
		CREATE INDEX ON heaps (topic_id);
		ALTER TABLE heaps ADD FOREIGN KEY (topic_id) REFERENCES topics ON DELETE CASCADE;`)
	seen, err := plan(t, b.DB, lists()).Foresee(t.Context(), b.Pool(), 2, false)
	require.NoError(t, err)
	require.True(t, seen.Capped)
	require.GreaterOrEqual(t, seen.Rows, int64(100_000))
}
