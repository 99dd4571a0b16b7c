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

// DefaultSilence is how long a worker may be silent before other workers declare it dead.
const DefaultSilence = 15 * time.Second

const (
	// maxInterval is the pause between beats, and the timeout of a beat, unless the
	// silence requires less.
	maxInterval = 5 * time.Second
	// leaveTimeout bounds how long Run waits at its end.
	leaveTimeout = 2 * time.Second
	// ReclaimInterval is the pause between two searches for dead workers.
	ReclaimInterval = 2 * time.Second
	// retryInterval is the pause after a failure, unless the interval is shorter.
	retryInterval = time.Second
)

// Heart is the heartbeat of one worker. Its methods are safe for concurrent use.
type Heart struct {
	// DB is the database with River's and Sexton's own tables.
	DB database.Database
	// ClientID is the ID of the worker's River client and the holder of its leases.
	ClientID string
	// Interval is the pause between beats; 0 means 5 s, or a third of a shorter silence.
	Interval time.Duration
	// Silence is how long a client may be silent before it is declared dead; 0 means
	// DefaultSilence.
	Silence time.Duration
	// Polling returns the work that the worker polls for because notifications do not
	// reach it, as kind/database, for status. Nil means none.
	Polling func() []string
	// Held returns the work that the worker does not start because it does not fit the
	// database, as "kind/database: reason". Nil means none.
	Held func() []string
	// ReloadError returns why the worker refused a change of its files, or "". Nil means
	// "".
	ReloadError func() string
	// Digests are the generations of the worker's definitions by lease key, for status
	// to compare.
	Digests map[string]string
	// Schedules are the schedules that the worker follows as the leader, as
	// kind/database.
	Schedules []string
	Logger    *slog.Logger
	// Foreground marks a pass without a worker. Status and doctor do not list it as a
	// worker.
	Foreground bool

	mu sync.Mutex
	// lastBeat is when the last successful beat was sent, on the monotonic clock.
	lastBeat time.Time
	// working counts the goroutines that work on a job, by its ID. idle has the jobs that
	// no goroutine worked on at the last check.
	working map[int64]int
	idle    map[int64]bool
	// noReclaimBefore is the end of the period in which the silence of other clients
	// proves nothing.
	noReclaimBefore time.Time
}

// Run beats immediately and at every interval, and reclaims in between, until ctx ends.
// Then it removes its own row and gives back the jobs and leases that it still has, so
// ctx must outlive the worker's jobs. It logs errors once per outage and retries.
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

// outage logs when the first part of a heart fails, and when all parts succeed again.
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

// operationTimeout bounds a beat and a reclaim. Two beats that time out and the pause
// between them still fit into the silence.
func (h *Heart) operationTimeout() time.Duration {
	return min(maxInterval, max(h.silence()/3, time.Second/2))
}

func (h *Heart) silence() time.Duration { return cmp.Or(h.Silence, DefaultSilence) }

// Beat writes the time into the client's row. The first beat inserts the row. A worker
// beats before it fetches its first job.
func (h *Heart) Beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	// Taken before the statement is sent, so that Alive can only become false early.
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

// recordBeat records a successful beat.
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
		// The name is only shown to operators. The ID identifies the client.
		host = "unknown"
	}
	digests, err := json.Marshal(maps.Collect(maps.All(h.Digests))) // Never null.
	if err != nil {
		return fmt.Errorf("encode digests: %w", err)
	}
	entry := dbsqlc.ClientEnterParams{
		ClientID: h.ClientID, Host: host, Pid: int32(os.Getpid()), Deaf: now.Deaf, Held: now.Held, Digests: digests,
		ReloadError: now.ReloadError,
		Schedules:   append([]string{}, h.Schedules...), Foreground: h.Foreground, // Never null.
	}
	if err := h.DB.AsyncQueries().ClientEnter(ctx, entry); err != nil {
		return fmt.Errorf("insert client %s: %w", h.ClientID, err)
	}
	if h.hasBeaten() {
		h.Logger.WarnContext(ctx, "worker_was_declared_dead", "client_id", h.ClientID)
	}
	return nil
}

// hasBeaten reports whether a beat has succeeded before.
func (h *Heart) hasBeaten() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.lastBeat.IsZero()
}

// Alive reports whether the last successful beat is so recent that other workers do not
// declare this one dead. It is false before the first beat.
func (h *Heart) Alive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.lastBeat.IsZero() && time.Since(h.lastBeat) <= h.silence()
}

// leave removes the client's row and gives back its jobs and leases. If it fails, other
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

// callList returns the list that a function returns, and never nil.
func callList(list func() []string) []string {
	if list == nil {
		return []string{}
	}
	return append([]string{}, list()...)
}
