package triggers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

// partitioned has two levels: 1 and 2 in a leaf, 11 and 12 in leaves of a partition.
const partitioned = `
CREATE TABLE events (id bigint, note text) PARTITION BY RANGE (id);
CREATE TABLE events_low PARTITION OF events FOR VALUES FROM (0) TO (10);
CREATE TABLE events_high (note text, id bigint) PARTITION BY RANGE (id);
ALTER TABLE events ATTACH PARTITION events_high FOR VALUES FROM (10) TO (20);
CREATE TABLE events_high_11 PARTITION OF events_high FOR VALUES FROM (10) TO (12);
CREATE TABLE events_high_12 PARTITION OF events_high FOR VALUES FROM (12) TO (20);
INSERT INTO events (id) VALUES (1), (2), (11), (12)`

func TestPartitionsRecordTheirRootOnce(t *testing.T) {
	t.Parallel()
	for statement, want := range map[string][]string{
		"DELETE FROM events":                             {"public.events 1", "public.events 2", "public.events 11", "public.events 12"},
		"DELETE FROM events_low WHERE id = 1":            {"public.events 1"},
		"DELETE FROM events_high":                        {"public.events 11", "public.events 12"},
		"DELETE FROM events_high_12":                     {"public.events 12"},
		"UPDATE events SET id = 12 WHERE id = 1":         {},
		"ALTER TABLE events DETACH PARTITION events_low": {},
		"SET session_replication_role = replica; DELETE FROM events_high_11; RESET session_replication_role": {"public.events 11"},
	} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			b := setup(t, partitioned)
			require.Len(t, b.install(id("events")).Triggers, 10, "two on each of the five tables")
			require.Empty(t, b.status(id("events")))
			b.Exec(statement)
			require.Equal(t, want, b.tombstones())
		})
	}
}

func TestEnsurePartitions(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned, parents)
	ensure := func() []string {
		installed, err := triggers.EnsurePartitions(t.Context(), b.conn, b.cfg, []triggers.Parent{id("events"), id("parents"), id("nowhere")})
		require.NoError(t, err)
		return installed
	}
	require.Empty(t, ensure(), "what was never installed stays alone")
	b.install(id("events"))
	before := b.catalogue()
	require.Empty(t, ensure())
	require.Equal(t, before, b.catalogue(), "nothing to do, nothing done")

	b.Exec(`CREATE TABLE events_new (id bigint, note text) PARTITION BY RANGE (id);
		CREATE TABLE events_new_leaf PARTITION OF events_new DEFAULT;
		ALTER TABLE events ATTACH PARTITION events_new FOR VALUES FROM (20) TO (40);
		INSERT INTO events (id) VALUES (21), (22), (23)`)
	require.Len(t, b.status(id("events")), 4)
	require.Equal(t, []string{"public.events_new", "public.events_new_leaf"}, ensure())
	require.Empty(t, b.status(id("events")))
	b.Exec("DELETE FROM events_new_leaf WHERE id = 21; DELETE FROM events_new WHERE id = 22; DELETE FROM events WHERE id = 23")
	require.Equal(t, []string{"public.events 21", "public.events 22", "public.events 23"}, b.tombstones())
}

func TestEnsurePartitionsLeavesTheWorkToAnotherInstaller(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned)
	b.install(id("events"))
	b.Exec("CREATE TABLE events_new PARTITION OF events DEFAULT")
	pgtest.Exec(t, b.connect(b.URL), "SELECT pg_advisory_lock(x'73657874726967'::bigint)")
	installed := pgtest.Must(triggers.EnsurePartitions(t.Context(), b.conn, b.cfg, []triggers.Parent{id("events")}))(t)
	require.Empty(t, installed)
}

func TestEnsurePartitionsGoesOnPastALockedPartition(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned)
	b.install(id("events"))
	b.Exec("CREATE TABLE events_30 PARTITION OF events FOR VALUES FROM (30) TO (31); CREATE TABLE events_40 PARTITION OF events FOR VALUES FROM (40) TO (41)")
	pgtest.Begin(t, b.Pool(), "LOCK TABLE events_30 IN ROW EXCLUSIVE MODE")

	installed, err := triggers.EnsurePartitions(t.Context(), b.conn, short(b.cfg), []triggers.Parent{id("events")})
	var locked *triggers.LockError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, "public.events_30", locked.Table)
	require.Equal(t, []string{"public.events_40"}, installed)
}
