package ghostuser_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/drain"
	"sexton/internal/ghostuser"
	"sexton/internal/pgtest"
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
		return pgtest.Must(p.Foresee(t.Context(), b.Pool(), 1, false))(t)
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
	seen := pgtest.Must(plan(t, b.DB, lists()).Foresee(t.Context(), b.Pool(), 2, false))(t)
	require.True(t, seen.Capped)
	require.GreaterOrEqual(t, seen.Rows, int64(100_000))
}

// Rows that loose foreign keys take after the user, or after rows that go with it, count apart, once, and at any depth.
func TestForeseesLooseChildren(t *testing.T) {
	t.Parallel()
	b := setup(t, topics+`
		CREATE TABLE sightings (id bigint PRIMARY KEY, user_id bigint, kind text);
		CREATE TABLE traces (id bigint PRIMARY KEY, sighting_id bigint);
		CREATE TABLE badges (id bigint PRIMARY KEY, topic_id bigint);
		INSERT INTO sightings VALUES (1, 1, 'web'), (2, 1, 'web'), (3, 1, 'api'), (4, 2, 'web');
		INSERT INTO traces VALUES (1, 1), (2, 1), (3, 3), (4, 4);
		INSERT INTO badges SELECT id, id FROM topics WHERE user_id = 1;`, lists())
	p := plan(t, b.DB, lists())
	public := func(table string) [2]string { return [2]string{"public", table} }
	natively := pgtest.Must(p.Foresee(t.Context(), b.Pool(), 1, false))(t)
	require.Nil(t, natively.Loose)
	seen := pgtest.Must(p.Foresee(t.Context(), b.Pool(), 1, false,
		drain.Loose{Child: public("sightings"), Parent: public("users"), Columns: []string{"user_id"}, Action: drain.Remove, Only: [][2]string{{"kind", "web"}}},
		drain.Loose{Child: public("traces"), Parent: public("sightings"), Columns: []string{"sighting_id"}, Action: drain.Remove},
		drain.Loose{Child: public("badges"), Parent: public("topics"), Columns: []string{"topic_id"}, Action: drain.Nullify},
		drain.Loose{Child: public("topics"), Parent: public("users"), Columns: []string{"user_id"}, Action: drain.Remove},
		drain.Loose{Child: public("missing"), Parent: public("users"), Columns: []string{"user_id"}, Action: drain.Remove}))(t)
	require.Equal(t, map[string]int64{"sightings": 2, "traces": 2, "badges.topic_id": natively.Deleted["topics"]}, seen.Loose)
	require.Positive(t, natively.Deleted["topics"])
	natively.Loose = seen.Loose
	require.Equal(t, natively, seen, "all else is as without")
}
