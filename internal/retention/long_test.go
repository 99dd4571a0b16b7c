package retention_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/lease"
	"sexton/internal/pgtest"
	"sexton/internal/retention"
)

// Two replicas delete due rows of three partitions in bounded statements. One replica is
// delayed and the other is killed. Newer rows are kept.
func TestReplicasDeleteManyRows(t *testing.T) {
	t.Parallel()
	rows := 60_000
	if pgtest.Long {
		rows = 1_000_000
	}
	db := setup(t, `
		CREATE TABLE events (id bigint, at timestamptz NOT NULL, note text) PARTITION BY RANGE (at);
		CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (MINVALUE) TO (now() - interval '80 days');
		CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (now() - interval '80 days') TO (now() - interval '60 days');
		CREATE TABLE events_3 PARTITION OF events FOR VALUES FROM (now() - interval '60 days') TO (MAXVALUE);
		CREATE INDEX ON events (at);
		CREATE TABLE statements (rows bigint);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO statements SELECT count(*) FROM gone; RETURN NULL; END $$;
		CREATE TRIGGER note AFTER DELETE ON events_1 REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note();
		CREATE TRIGGER note AFTER DELETE ON events_2 REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note();
		CREATE TRIGGER note AFTER DELETE ON events_3 REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note();`)
	db.Exec("INSERT INTO events SELECT n, now() - interval '90 days' + n * interval '59 days' / $1, 'old' FROM generate_series(1, $1::int) AS n", rows)
	db.Exec("INSERT INTO events SELECT n, now() - interval '29 days' + n * interval '1 minute', 'new' FROM generate_series(1, 10000) AS n")
	rule := retention.Rule{Table: "events", Column: "at", Keep: 30 * day}

	first, second := engine(t, db, rule), (*retention.Engine)(nil)
	first.Runtime = 4 * time.Minute
	afterFirstBatch(first, func() {
		// Delay the first replica until the second one gets the lease.
		db.Exec("UPDATE sexton.leases SET expires_at = now()")
		second = engine(t, db, rule)
		left, kill := 5, db.KillOnce(second.Session.Conn)
		second.Progress = func(context.Context, *retention.Stats) {
			if left--; left < 0 {
				kill()
			}
		}
		_, err := second.Run(t.Context())
		require.Error(t, err, "the second replica is killed")
	})
	_, err := first.Run(t.Context())
	require.ErrorIs(t, err, lease.ErrLost)
	require.NotEqual(t, [][]string{{"0"}}, db.Rows("SELECT count(*) FROM events WHERE note = 'old'"))

	db.Exec("UPDATE sexton.leases SET expires_at = now()")
	third := engine(t, db, rule)
	third.Runtime = 4 * time.Minute
	stats := run(t, third)
	require.Empty(t, stats.Errors)
	require.False(t, stats.OverLimit)
	require.Equal(t, [][]string{{"0", "10000"}},
		db.Rows("SELECT count(*) FILTER (WHERE note = 'old'), count(*) FILTER (WHERE note = 'new') FROM events"))
	require.Equal(t, [][]string{{"t", "t"}}, db.Rows("SELECT max(rows) <= 50000, sum(rows) = $1 FROM statements", rows))
}
