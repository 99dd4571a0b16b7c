package pace_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

func TestWorst(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	both := pace.ReplicaLimits{Lag: 10 * time.Second, Bytes: 100 * mib}
	type example struct {
		limits   pace.ReplicaLimits
		replicas []pace.Replica
		want     string
	}
	pgtest.Each(t, map[string]example{
		"no replica":           {both, nil, ""},
		"idle":                 {both, []pace.Replica{{Name: "a"}}, ""},
		"at the limits":        {both, []pace.Replica{{"a", 10 * time.Second, 100 * mib}}, ""},
		"time limit exceeded":  {both, []pace.Replica{{"a", 12600 * time.Millisecond, 0}}, "replica a 12 s behind"},
		"byte limit exceeded":  {both, []pace.Replica{{"a", time.Second, 300*mib + 7}}, "replica a 300 MiB behind"},
		"both limits exceeded": {both, []pace.Replica{{"a", 11 * time.Second, 300 * mib}}, "replica a 11 s behind"},
		"largest lag": {both, []pace.Replica{
			{"a", 11 * time.Second, 900 * mib},
			{"b", 13 * time.Second, 0},
			{"c", 12 * time.Second, 0},
		}, "replica b 13 s behind"},
		"most bytes": {both, []pace.Replica{
			{"a", 0, 200 * mib},
			{"b", 0, 400 * mib},
			{"c", 9 * time.Second, 300 * mib},
		}, "replica b 400 MiB behind"},
		"time before bytes": {both, []pace.Replica{
			{"a", 0, 900 * mib},
			{"b", 11 * time.Second, 0},
			{"c", 0, 950 * mib},
		}, "replica b 11 s behind"},
		"time limit only": {pace.ReplicaLimits{Lag: time.Second}, []pace.Replica{{"a", 0, 900 * mib}}, ""},
		"byte limit only": {
			pace.ReplicaLimits{Bytes: mib},
			[]pace.Replica{{"a", time.Hour, 2 * mib}},
			"replica a 2 MiB behind",
		},
		"no limits": {pace.ReplicaLimits{}, []pace.Replica{{"a", time.Hour, 900 * mib}}, ""},
		"less than a second": {
			pace.ReplicaLimits{Lag: time.Millisecond},
			[]pace.Replica{{"a", 200 * time.Millisecond, 0}},
			"replica a 200 ms behind",
		},
		"kibibytes":          {pace.ReplicaLimits{Bytes: 1}, []pace.Replica{{"a", 0, 5000}}, "replica a 4 KiB behind"},
		"bytes":              {pace.ReplicaLimits{Bytes: 1}, []pace.Replica{{"a", 0, 2}}, "replica a 2 bytes behind"},
		"more than a minute": {both, []pace.Replica{{"a", 90 * time.Second, 0}}, "replica a 90 s behind"},
	}, func(t *testing.T, _ string, test example) {
		text := ""
		if worst, exceeds := test.limits.Worst(test.replicas); exceeds {
			text = test.limits.Describe(worst)
		}
		require.Equal(t, test.want, text)
	})
	require.True(t, pace.ReplicaLimits{Lag: 1}.On())
	require.True(t, pace.ReplicaLimits{Bytes: 1}.On())
	require.False(t, pace.ReplicaLimits{}.On())
}

// The lag of a standby whose replay is paused grows in bytes and in time. It returns to
// zero when the replay is resumed.
func TestReadReplicasReturnsTheLagOfAStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	primary := pgtest.NewOn(t, server)
	found := pgtest.Must(pace.ReadReplicas(t.Context(), primary.Pool()))(t)
	require.Empty(t, found)

	primary.Exec("CREATE TABLE written (id bigint)")
	standby := pgtest.Connect(t, pgtest.Standby(t, server, "r1").URL("postgres"))
	read := func(what string, holds func(pace.Replica) bool) {
		pgtest.WaitFor(t, what, func(ctx context.Context) (bool, error) {
			found, err := pace.ReadReplicas(ctx, primary.Pool())
			return err == nil && len(found) == 1 && found[0].Name == "r1" && holds(found[0]), err
		})
	}
	read("the standby to have replayed everything", func(r pace.Replica) bool { return r.Bytes == 0 })

	pgtest.Exec(t, standby, "SELECT pg_wal_replay_pause()")
	read("the standby to lag", func(r pace.Replica) bool {
		primary.Exec("INSERT INTO written SELECT generate_series(1, 100)")
		return r.Bytes > 20_000 && r.Lag > 300*time.Millisecond
	})

	role := primary.CreateRole()
	blind := pgtest.Connect(t, primary.AsRole(role))
	_, err := pace.ReadReplicas(t.Context(), blind)
	require.ErrorIs(t, err, pace.ErrReplicasHidden)
	primary.Exec("GRANT pg_monitor TO " + role)
	found = pgtest.Must(pace.ReadReplicas(t.Context(), blind))(t)
	require.Len(t, found, 1)
	require.Equal(t, "r1", found[0].Name)
	require.NotZero(t, found[0].Bytes)

	pgtest.Exec(t, standby, "SELECT pg_wal_replay_resume()")
	read("the standby to have replayed everything again", func(r pace.Replica) bool {
		return r.Bytes == 0 &&
			r.Lag < 300*time.Millisecond
	})
}

// Replication slots without a receiver are left out. A standby that is called walreceiver
// keeps this name if it is connected to a socket and so has no address.
func TestReadReplicasReturnsConnectedStandbysOnly(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	primary := pgtest.NewOn(t, server)
	primary.Exec("SELECT pg_create_physical_replication_slot('unused', true)")
	pgtest.Standby(t, server, "r1")
	pgtest.Standby(t, server, "walreceiver")
	var names []string
	pgtest.WaitFor(t, "both standbys to be connected", func(ctx context.Context) (bool, error) {
		found, err := pace.ReadReplicas(ctx, primary.Pool())
		names = nil
		for _, r := range found {
			names = append(names, r.Name)
		}
		return len(found) == 2, err
	})
	slices.Sort(names)
	require.Equal(t, []string{"r1", "walreceiver"}, names, "a connection over a socket has no address")
}
