package heartbeat

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/pace"
)

// DefaultSilence is the time without a heartbeat after which other workers declare a
// worker dead.
const DefaultSilence = 15 * time.Second

const (
	// maxInterval is the default pause between heartbeats and the maximum timeout of a
	// heartbeat. A short silence lowers both.
	maxInterval = 5 * time.Second
	// leaveTimeout limits the last step of Run, the removal of its own row.
	leaveTimeout = 2 * time.Second
	// ReclaimInterval is the pause between two searches for dead workers.
	ReclaimInterval = 2 * time.Second
	// retryInterval is the maximum pause after a failure.
	retryInterval = time.Second
)

// Heart is the heartbeat of one worker, or of one pass in the foreground. Its methods are
// safe for concurrent use.
type Heart struct {
	// DB is the database with the tables of River and Sexton.
	DB database.Database
	// ClientID is the ID of the worker's River client and the holder of its leases.
	ClientID string
	// Interval is the pause between heartbeats. 0 means 5 s, or a third of Silence if
	// that is shorter.
	Interval time.Duration
	// Silence is the time without a heartbeat after which a client is declared dead. 0
	// means DefaultSilence.
	Silence time.Duration
	// Polling returns the jobs for which the worker polls because notifications do not
	// reach it, each as "kind/database". Status shows them. Nil means none.
	Polling func() []string
	// Held returns the jobs that the worker does not start because they do not fit the
	// database, each as "kind/database: reason". Nil means none.
	Held func() []string
	// ReloadError returns the reason for which the worker refused a change of its files,
	// or "". Nil means "".
	ReloadError func() string
	// Digests maps lease keys to the generations of the worker's definitions. Status
	// compares the generations of all workers.
	Digests map[string]string
	// Schedules are the schedules for which the worker inserts jobs while it is the
	// leader, each as "kind/database".
	Schedules []string
	Logger    *slog.Logger
	// Foreground is true for a pass that runs without a worker. Status and doctor do not
	// list such a client as a worker.
	Foreground bool

	mu sync.Mutex
	// lastBeat is the time at which the last successful heartbeat was sent, on the
	// monotonic clock.
	lastBeat time.Time
	// working is the number of goroutines that work on a job, by job ID. idle contains
	// the jobs on which no goroutine worked at the last check.
	working map[int64]int
	idle    map[int64]bool
	// noReclaimBefore is the time until which this client reclaims nothing, because the
	// cause of its own silence may have silenced other clients, too.
	noReclaimBefore time.Time
}

// Run sends a heartbeat immediately and at every interval, and reclaims from dead clients
// in between, until ctx ends. It then removes its own row and gives back its remaining
// jobs and leases, so ctx must outlive the worker's jobs. Run logs errors once per outage
// and retries.
func (h *Heart) Run(ctx context.Context) {
	failing := &outage{log: h.Logger.With("client_id", h.ClientID), parts: map[string]bool{}}
	var parts sync.WaitGroup
	for _, part := range []struct {
		name  string
		every time.Duration
		do    func(context.Context) error
	}{
		{"beat", h.interval(), h.Beat},
		{"own jobs", h.interval(), h.GiveBackLost},
		{"dead workers", min(ReclaimInterval, h.interval()), func(ctx context.Context) error {
			_, err := h.Reclaim(ctx)
			return err
		}},
	} {
		parts.Go(func() {
			for ctx.Err() == nil {
				err, pause := part.do(ctx), part.every
				if err != nil {
					pause = min(pause, retryInterval)
				}
				failing.record(ctx, part.name, err)
				_ = pace.Sleep(ctx, pause)
			}
		})
	}
	parts.Wait()
	h.leave(context.WithoutCancel(ctx))
}

// outage logs the first failure of any part of a heart, and the moment at which all parts
// succeed again.
type outage struct {
	log   *slog.Logger
	mu    sync.Mutex
	parts map[string]bool
	since time.Time
}

func (o *outage) record(ctx context.Context, part string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if len(o.parts) == 0 {
			o.since = time.Now()
			o.log.ErrorContext(ctx, "heartbeat_failed", "error", err)
		}
		o.parts[part] = true
	case o.parts[part]:
		delete(o.parts, part)
		if len(o.parts) == 0 {
			o.log.InfoContext(ctx, "heartbeat_restored", "outage_ms", time.Since(o.since).Milliseconds())
		}
	}
}

func (h *Heart) interval() time.Duration { return cmp.Or(h.Interval, min(maxInterval, h.silence()/3)) }

// operationTimeout returns the timeout of a heartbeat or a reclaim. Two heartbeats that
// time out and the pause between them are shorter than the silence.
func (h *Heart) operationTimeout() time.Duration {
	return min(maxInterval, max(h.silence()/3, time.Second/2))
}

func (h *Heart) silence() time.Duration { return cmp.Or(h.Silence, DefaultSilence) }

// Beat writes the current time into the client's row, and inserts the row if it does not
// exist. A worker sends a heartbeat before it fetches its first job.
func (h *Heart) Beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	// The time is read before the statement is sent, so that Alive becomes false too
	// early rather than too late.
	sent := time.Now()
	now := dbsqlc.ClientBeatParams{ClientID: h.ClientID, Deaf: callList(h.Polling), Held: callList(h.Held)}
	if h.ReloadError != nil {
		now.ReloadError = h.ReloadError()
	}
	updated, err := h.DB.AsyncQueries().ClientBeat(ctx, now)
	if err != nil {
		return fmt.Errorf("update client %s: %w", h.ClientID, err)
	}
	if updated == 0 {
		if err := h.insertClient(ctx, now); err != nil {
			return err
		}
	}
	h.recordBeat(sent)
	return nil
}

// recordBeat stores the time of a successful heartbeat. After a silence of this client it
// also postpones Reclaim.
func (h *Heart) recordBeat(sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lastBeat.IsZero() && sent.Sub(h.lastBeat) > h.silence() {
		// The cause of this client's silence, such as a restart of the server, may have
		// silenced all clients.
		h.noReclaimBefore = time.Now().Add(h.interval())
	}
	h.lastBeat = sent
}

func (h *Heart) insertClient(ctx context.Context, now dbsqlc.ClientBeatParams) error {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	host, err := os.Hostname()
	if err != nil {
		// The host name is only shown to operators. The ID identifies the client.
		host = "unknown"
	}
	// maps.Collect never returns nil, so the JSON value is never null.
	digests, err := json.Marshal(maps.Collect(maps.All(h.Digests)))
	if err != nil {
		return fmt.Errorf("encode digests: %w", err)
	}
	entry := dbsqlc.ClientInsertParams{
		ClientID: h.ClientID, Host: host, Pid: int32(os.Getpid()), Deaf: now.Deaf, Held: now.Held, Digests: digests,
		ReloadError: now.ReloadError,
		Schedules:   append([]string{}, h.Schedules...), Foreground: h.Foreground, // A nil slice would be NULL in SQL.
	}
	if err := h.DB.AsyncQueries().ClientInsert(ctx, entry); err != nil {
		return fmt.Errorf("insert client %s: %w", h.ClientID, err)
	}
	if h.hasBeaten() {
		h.Logger.WarnContext(ctx, "worker_was_declared_dead", "client_id", h.ClientID)
	}
	return nil
}

// hasBeaten reports whether any heartbeat has succeeded.
func (h *Heart) hasBeaten() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.lastBeat.IsZero()
}

// Alive reports whether the last successful heartbeat is recent enough that other workers
// do not declare this worker dead. It returns false before the first heartbeat.
func (h *Heart) Alive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.lastBeat.IsZero() && time.Since(h.lastBeat) <= h.silence()
}

// leave removes the client's row and gives back its jobs and leases. If that fails, other
// workers do so after the silence.
func (h *Heart) leave(ctx context.Context) {
	if !h.hasBeaten() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	_, err := h.removeClients(ctx, func(queries *dbsqlc.Queries) ([]string, error) {
		return []string{h.ClientID}, queries.ClientRemove(ctx, h.ClientID)
	})
	if err != nil {
		h.Logger.WarnContext(ctx, "client_row_not_removed", "client_id", h.ClientID, "error", err)
	}
}

// callList returns the result of list, or an empty slice instead of nil.
func callList(list func() []string) []string {
	if list == nil {
		return []string{}
	}
	return append([]string{}, list()...)
}
