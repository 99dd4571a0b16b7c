package heartbeat_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/heartbeat"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func newHeart(t *testing.T, db *dbtest.DB, client string) *heartbeat.Heart {
	return &heartbeat.Heart{DB: db.Connected, ClientID: client, Logger: pgtest.Logger(t)}
}

// insertClient inserts the row of a client whose last heartbeat was the given number of
// seconds ago.
func insertClient(db *dbtest.DB, client string, seconds int) {
	db.Exec(`INSERT INTO sexton.clients (client_id, host, pid, started_at, seen_at)
		SELECT $1, 'host', 1, t, t FROM (SELECT clock_timestamp() - make_interval(secs => $2) AS t) AS moment`, client, seconds)
}

// job describes a row of river_job that was attempted the given number of seconds ago.
type job struct {
	state     string // "" means running.
	clients   []string
	seconds   int
	attempt   int
	metadata  string // "" means {}.
	queue     string // "" means q.
	finalized bool
}

func insert(t *testing.T, db *dbtest.DB, j job) int64 {
	or := func(value, otherwise string) string {
		if value == "" {
			return otherwise
		}
		return value
	}
	return pgtest.Scalar[int64](t, db.Database, `
		INSERT INTO sexton.river_job (args, kind, queue, state, attempt, max_attempts, attempted_by, metadata, attempted_at, scheduled_at, finalized_at)
		SELECT '{}', 'k', $1, $2::text::sexton.river_job_state, $3, 1, $4::text[], $5::text::jsonb, t, t - interval '1 second', CASE WHEN $6 THEN t END
		FROM (SELECT clock_timestamp() - make_interval(secs => $7) AS t) AS moment
		RETURNING id`,
		or(j.queue, "q"), or(j.state, "running"), j.attempt, j.clients, or(j.metadata, "{}"), j.finalized, j.seconds)
}

// states returns the state, attempt and metadata of each job, ordered by ID.
func states(db *dbtest.DB) [][]string {
	return db.Rows("SELECT state, attempt, metadata FROM sexton.river_job ORDER BY id")
}

func clients(db *dbtest.DB) [][]string {
	return db.Rows("SELECT client_id FROM sexton.clients ORDER BY client_id")
}

// holdLease inserts a lease that expires in one hour.
func holdLease(db *dbtest.DB, key, holder string) {
	db.Exec(`INSERT INTO sexton.leases (key, token, holder, acquired_at, expires_at)
		VALUES ($1, 7, $2, clock_timestamp(), clock_timestamp() + interval '1 hour')`, key, holder)
}

func heldLeases(db *dbtest.DB) [][]string {
	return db.Rows("SELECT key, token FROM sexton.leases WHERE expires_at > clock_timestamp() ORDER BY key")
}

// recordLog replaces the heart's logger with a journal and returns the journal.
func recordLog(h *heartbeat.Heart) *pgtest.Journal {
	journal := &pgtest.Journal{}
	h.Logger = journal.Logger()
	return journal
}

// run starts the heart. The returned function stops the heart and waits until Run
// returns.
func run(t *testing.T, h *heartbeat.Heart) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(2 * time.Minute):
			require.Fail(t, "Run does not return")
		}
	})
	t.Cleanup(stop)
	return stop
}
