package heartbeat_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/heartbeat"
	"sexton/internal/pgtest"
)

func TestReclaimJobs(t *testing.T) {
	t.Parallel()

	const untouched, once = `{}`, `{"sexton:reclaim_count": 1}`
	for _, c := range []struct {
		name  string
		job   job
		state []string
	}{
		{"dead client", job{clients: []string{"dead"}, attempt: 1}, []string{"available", "0", once}},
		{
			"dead client, later attempt",
			job{clients: []string{"live", "dead"}, attempt: 3},
			[]string{"available", "2", once},
		},
		{"dead client, again", job{
			clients: []string{"dead"}, attempt: 1,
			metadata: `{"sexton:reclaim_count": 4, "a": 1}`,
		}, []string{"available", "0", `{"a": 1, "sexton:reclaim_count": 5}`}},
		{"dead client, for the 20th time", job{
			clients: []string{"dead"}, attempt: 1,
			metadata: `{"sexton:reclaim_count": 19}`,
		}, []string{"available", "0", `{"sexton:reclaim_count": 20}`}},
		{"dead client, for the 21st time", job{
			clients: []string{"dead"}, attempt: 1,
			metadata: `{"sexton:reclaim_count": 20}`,
		}, []string{"scheduled", "0", `{"sexton:reclaim_count": 21}`}},
		{"dead client, count out of range", job{
			clients: []string{"dead"}, attempt: 1,
			metadata: `{"sexton:reclaim_count": 1.5e30}`,
		}, []string{"scheduled", "0", `{"sexton:reclaim_count": 1000001}`}},
		{"dead client, negative count out of range", job{
			clients: []string{"dead"}, attempt: 1,
			metadata: `{"sexton:reclaim_count": -1.5e30}`,
		}, []string{"available", "0", once}},
		{"dead client, count is not a number", job{
			clients: []string{"dead"}, attempt: 0,
			metadata: `{"sexton:reclaim_count": "x"}`,
		}, []string{"available", "0", once}},
		{"dead client, cancellation requested", job{
			clients: []string{"dead"}, attempt: 1,
			metadata: `{"cancel_attempted_at": "2026-01-01T00:00:00Z"}`,
		}, []string{"cancelled", "1", `{"cancel_attempted_at": "2026-01-01T00:00:00Z", "sexton:reclaim_count": 1}`}},
		{
			"dead client, not running",
			job{state: "retryable", clients: []string{"dead"}, attempt: 1},
			[]string{"retryable", "1", untouched},
		},
		{
			"dead client, completed",
			job{state: "completed", clients: []string{"dead"}, attempt: 1, finalized: true},
			[]string{"completed", "1", untouched},
		},
		{
			"live client",
			job{clients: []string{"dead", "live"}, attempt: 2, seconds: 3600},
			[]string{"running", "2", untouched},
		},
		{
			"unknown client, old job",
			job{clients: []string{"unknown"}, attempt: 1, seconds: 60},
			[]string{"available", "0", once},
		},
		{"unknown client, new job", job{clients: []string{"unknown"}, attempt: 1}, []string{"running", "1", untouched}},
		{"no client, old job", job{attempt: 1, seconds: 60}, []string{"available", "0", once}},
		{"own old job", job{clients: []string{"self"}, attempt: 1, seconds: 60}, []string{"running", "1", untouched}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			db := dbtest.New(t)
			insertClient(db, "dead", 60)
			insertClient(db, "live", 5)
			id := insert(t, db, c.job)
			taken := pgtest.Must(newHeart(t, db, "self").Reclaim(t.Context()))(t)
			require.Equal(t, [][]string{c.state}, states(db))
			require.Equal(t, []string{"dead"}, taken.Clients)
			require.Equal(t, [][]string{{"live"}}, clients(db))
			changed := c.state[2] != untouched
			require.Equal(t, changed, slices.Contains(taken.Jobs, id), "reported jobs: %v", taken.Jobs)
			ready := db.Rows("SELECT FROM sexton.river_job WHERE state = 'available' AND scheduled_at > attempted_at AND scheduled_at <= clock_timestamp()")
			require.Equal(t, c.state[0] == "available", len(ready) == 1, "ready now: %v", ready)
			const deferred = "SELECT FROM sexton.river_job WHERE state = 'scheduled' AND scheduled_at BETWEEN clock_timestamp() + interval '50 s' AND clock_timestamp() + interval '1 h'"
			require.Equal(t, c.state[0] == "scheduled", len(db.Rows(deferred)) == 1)

			require.Equal(t, heartbeat.Reclaimed{}, pgtest.Must(newHeart(t, db, "self").Reclaim(t.Context()))(t))
			require.Equal(t, [][]string{c.state}, states(db))
		})
	}
}

// Reclaim ends the leases of dead clients, but not the lease of a holder without a row.
func TestReclaimLeases(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	insertClient(db, "dead", 60)
	insertClient(db, "live", 5)
	holdLease(db, "a", "dead")
	holdLease(db, "b", "live")
	holdLease(db, "c", "foreground")
	holdLease(db, "d", "dead")
	taken := pgtest.Must(newHeart(t, db, "self").Reclaim(t.Context()))(t)
	slices.Sort(taken.Leases)
	require.Equal(t, heartbeat.Reclaimed{Leases: []string{"a", "d"}, Clients: []string{"dead"}}, taken)
	require.Equal(t, [][]string{{"b", "7"}, {"c", "7"}}, heldLeases(db))
}

func TestReclaimIgnoresItsOwnClient(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	insertClient(db, "self", 60)
	holdLease(db, "a", "self")
	require.Equal(t, heartbeat.Reclaimed{}, pgtest.Must(newHeart(t, db, "self").Reclaim(t.Context()))(t))
	require.Equal(t, [][]string{{"self"}}, clients(db))
	require.Equal(t, [][]string{{"a", "7"}}, heldLeases(db))
}

// Reclaim skips a client whose row is locked by a heartbeat. It neither waits for the
// heartbeat nor removes the client.
func TestReclaimSkipsAClientThatIsBeating(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	insertClient(db, "late", 60)
	tx := pgtest.Begin(t, db.Pool(), "UPDATE sexton.clients SET seen_at = clock_timestamp()")
	taken, err := newHeart(t, db, "self").Reclaim(t.Context())
	require.NoError(t, errors.Join(err, tx.Commit(t.Context())))
	require.Equal(t, heartbeat.Reclaimed{}, taken)
	require.Equal(t, [][]string{{"late"}}, clients(db))
}

func TestReclaimNotifiesRiver(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	listener := pgtest.Connect(t, db.URL)
	pgtest.Exec(t, listener, `LISTEN "sexton.river_insert"; LISTEN last`)

	insertClient(db, "dead", 60)
	for _, queue := range []string{"one", "one", `quo"ted`} {
		insert(t, db, job{clients: []string{"dead"}, attempt: 1, queue: queue})
	}
	insert(t, db, job{
		clients: []string{"dead"}, attempt: 1, queue: "cancelled",
		metadata: `{"cancel_attempted_at": "2026-01-01T00:00:00Z"}`,
	})
	pgtest.Must(newHeart(t, db, "self").Reclaim(t.Context()))(t)
	db.Exec("NOTIFY last")

	queues := []string{}
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		notification, err := listener.WaitForNotification(ctx)
		cancel()
		require.NoError(t, err)
		if notification.Channel == "last" {
			break
		}
		var payload struct{ Queue string }
		require.NoError(t, json.Unmarshal([]byte(notification.Payload), &payload))
		queues = append(queues, payload.Queue)
	}
	slices.Sort(queues)
	require.Equal(t, []string{"one", `quo"ted`}, queues)
}

// Reclaim skips a job whose row is locked, because its client may be completing the job.
// The next call reclaims the job if the lock has been released.
func TestReclaimSkipsLockedRows(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	insertClient(db, "dead", 60)
	locked := insert(t, db, job{clients: []string{"dead"}, attempt: 1, seconds: 60})
	free := insert(t, db, job{clients: []string{"dead"}, attempt: 1, seconds: 60})
	tx := pgtest.Begin(t, db.Pool())
	pgtest.Exec(t, tx, "SELECT FROM sexton.river_job WHERE id = $1 FOR UPDATE", locked)

	h := newHeart(t, db, "self")
	taken := pgtest.Must(h.Reclaim(t.Context()))(t)
	require.Equal(t, heartbeat.Reclaimed{Jobs: []int64{free}, Clients: []string{"dead"}}, taken)

	pgtest.Exec(t, tx, "ROLLBACK AND CHAIN")
	taken = pgtest.Must(h.Reclaim(t.Context()))(t)
	require.Equal(t, heartbeat.Reclaimed{Jobs: []int64{locked}}, taken,
		"the job of a client without a row is reclaimed")
}

// If a lease cannot be ended, Reclaim removes neither the client nor its jobs. Without
// the client's row, no later call could find out that the lease's holder is dead.
func TestReclaimIsAtomic(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	insertClient(db, "dead", 60)
	insert(t, db, job{clients: []string{"dead"}, attempt: 1})
	holdLease(db, "a", "dead")
	tx := pgtest.Begin(t, db.Pool(), "SELECT FROM sexton.leases FOR UPDATE")

	h := newHeart(t, db, "self")
	_, err := h.Reclaim(t.Context())
	require.ErrorContains(t, err, "reclaim from dead clients: end leases of removed clients: ")
	require.Equal(t, [][]string{{"dead"}}, clients(db))
	require.Equal(t, [][]string{{"running", "1", "{}"}}, states(db))

	pgtest.Exec(t, tx, "ROLLBACK AND CHAIN")
	taken := pgtest.Must(h.Reclaim(t.Context()))(t)
	require.Len(t, taken.Jobs, 1)
	require.Equal(t, []string{"a"}, taken.Leases)
	require.Equal(t, []string{"dead"}, taken.Clients)
}

func TestConcurrentReclaimsTakeEachJobAndLeaseOnce(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	want := heartbeat.Reclaimed{}
	for _, client := range []string{"dead1", "dead2", "dead3", "dead4"} {
		insertClient(db, client, 60)
		holdLease(db, "lease of "+client, client)
		want.Clients = append(want.Clients, client)
		want.Leases = append(want.Leases, "lease of "+client)
		for range 25 {
			want.Jobs = append(want.Jobs, insert(t, db, job{clients: []string{client}, attempt: 1, seconds: 60}))
		}
	}
	var (
		wg  sync.WaitGroup
		got [6]heartbeat.Reclaimed
		err [6]error
	)
	for i := range got {
		h := newHeart(t, db, string(rune('a'+i)))
		wg.Go(func() { got[i], err[i] = h.Reclaim(t.Context()) })
	}
	wg.Wait()
	all := heartbeat.Reclaimed{}
	for i := range got {
		require.NoError(t, err[i])
		all.Jobs = append(all.Jobs, got[i].Jobs...)
		all.Leases = append(all.Leases, got[i].Leases...)
		all.Clients = append(all.Clients, got[i].Clients...)
	}
	slices.Sort(all.Jobs)
	slices.Sort(all.Leases)
	slices.Sort(all.Clients)
	require.Equal(t, want, all)
	require.Equal(t, [][]string{{"available", "0", "100"}},
		db.Rows("SELECT state, attempt, count(*) FROM sexton.river_job GROUP BY 1, 2"))
}
