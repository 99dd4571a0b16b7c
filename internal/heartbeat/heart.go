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

// DefaultSilence is how long a worker may be silent before it is taken for dead.
const DefaultSilence = 15 * time.Second

const (
	// longest is the pause between beats, and the time for each, where the silence does
	// not ask for less.
	longest = 5 * time.Second
	// leaveTimeout bounds what the end of Run waits for.
	leaveTimeout = 2 * time.Second
	// Look is how often a worker looks for dead workers.
	Look = 2 * time.Second
	// retry is the pause after a failure, where the interval is not shorter.
	retry = time.Second
)

// Heart is the heartbeat of one worker. Its methods may be called at the same time.
type Heart struct {
	// DB is the database with River's and Sexton's own tables.
	DB database.Database
	// ClientID is the ID of the worker's River client and the holder of its leases.
	ClientID string
	// Interval is the pause between beats, 0 means 5 s, or a third of a shorter silence.
	Interval time.Duration
	// Silence is how long a client may be silent before it is taken for dead, 0 means
	// DefaultSilence.
	Silence time.Duration
	// Deaf tells what the worker polls for because notifications do not reach it, as
	// kind/database, for status to show. Nil means nothing.
	Deaf func() []string
	// Held tells what the worker holds because it does not fit the database, as
	// kind/database: reason. Nil means nothing.
	Held func() []string
	// ReloadError returns why the worker refused a change of its files, or "". Nil means
	// "".
	ReloadError func() string
	// Digests are the generations of definitions that the worker has, by the keys of
	// leases, for status to compare.
	Digests map[string]string
	// Schedules are the ones that the worker follows as the leader, as kind/database.
	Schedules []string
	Logger    *slog.Logger
	// Foreground is for a pass that no worker runs, which is none of the workers that
	// status and doctor show.
	Foreground bool

	mu sync.Mutex
	// lastBeat is when the last beat that got through was sent, on the monotonic clock.
	lastBeat time.Time
	// working counts the goroutines that work on a job, by its ID; missed are the jobs
	// that none worked on at the last beat.
	working map[int64]int
	missed  map[int64]bool
	// noReclaimBefore is the end of the time in which the others' silence proves nothing.
	noReclaimBefore time.Time
}

// Run beats immediately and at every interval, and reclaims in between, until ctx ends.
// Then it removes its own row and gives back the jobs and leases that it still has, so
// ctx must outlive the worker's jobs. Failures of the database are logged once per outage
// and retried.
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
		{"dead workers", min(Look, h.interval()), func(ctx context.Context) error {
			_, err := h.Reclaim(ctx)
			return err
		}},
	} {
		parts.Go(func() {
			for ctx.Err() == nil {
				err, pause := part.do(ctx), part.every
				if err != nil {
					pause = min(pause, retry)
				}
				failing.note(ctx, part.name, err)
				_ = pace.Sleep(ctx, pause)
			}
		})
	}
	parts.Wait()
	h.leave(context.WithoutCancel(ctx))
}

// outage logs when the first part of a heart fails, and when none fails any more.
type outage struct {
	log   *slog.Logger
	mu    sync.Mutex
	parts map[string]bool
	since time.Time
}

func (o *outage) note(ctx context.Context, part string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if len(o.parts) == 0 {
			o.since = time.Now()
			o.log.ErrorContext(ctx, "heartbeat fails", "error", err)
		}
		o.parts[part] = true
	case o.parts[part]:
		delete(o.parts, part)
		if len(o.parts) == 0 {
			o.log.InfoContext(ctx, "heartbeat is back", "outage_ms", time.Since(o.since).Milliseconds())
		}
	}
}

func (h *Heart) interval() time.Duration { return cmp.Or(h.Interval, min(longest, h.silence()/3)) }

// operationTimeout bounds a beat and a reclaim. Two beats that hang and the pause between
// them still fit into the silence.
func (h *Heart) operationTimeout() time.Duration {
	return min(longest, max(h.silence()/3, time.Second/2))
}

func (h *Heart) silence() time.Duration { return cmp.Or(h.Silence, DefaultSilence) }

// Beat writes the time into the client's row, which the first beat inserts. A worker
// beats before it fetches its first job.
func (h *Heart) Beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	// Taken before the statement is sent, so that Alive can only end early.
	sent := time.Now()
	now := dbsqlc.ClientBeatParams{ClientID: h.ClientID, Deaf: said(h.Deaf), Held: said(h.Held)}
	if h.ReloadError != nil {
		now.ReloadError = h.ReloadError()
	}
	beaten, err := h.DB.AsyncQueries().ClientBeat(ctx, now)
	if err != nil {
		return fmt.Errorf("update client %s: %w", h.ClientID, err)
	}
	if beaten == 0 {
		if err := h.enter(ctx, now); err != nil {
			return err
		}
	}
	h.beaten(sent)
	return nil
}

// beaten notes a beat that got through.
func (h *Heart) beaten(sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lastBeat.IsZero() && sent.Sub(h.lastBeat) > h.silence() {
		// Whatever silenced this client, such as a restart of the server, may have
		// silenced all of them.
		h.noReclaimBefore = time.Now().Add(h.interval())
	}
	h.lastBeat = sent
}

func (h *Heart) enter(ctx context.Context, now dbsqlc.ClientBeatParams) error {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	host, err := os.Hostname()
	if err != nil {
		// The name is for operators to read; the ID identifies.
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
	if h.entered() {
		h.Logger.WarnContext(ctx, "this worker was taken for dead", "client_id", h.ClientID)
	}
	return nil
}

// entered reports whether a beat got through before.
func (h *Heart) entered() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.lastBeat.IsZero()
}

// Alive reports whether the last beat that got through is recent enough for the others to
// see this worker alive. It is false before the first one.
func (h *Heart) Alive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.lastBeat.IsZero() && time.Since(h.lastBeat) <= h.silence()
}

// leave is the orderly end. Where it fails, the others wait for the silence instead.
func (h *Heart) leave(ctx context.Context) {
	if !h.entered() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	_, err := h.bury(ctx, func(queries *dbsqlc.Queries) ([]string, error) {
		return []string{h.ClientID}, queries.ClientRemove(ctx, h.ClientID)
	})
	if err != nil {
		h.Logger.WarnContext(ctx, "row of this client stays behind", "client_id", h.ClientID, "error", err)
	}
}

func said(tell func() []string) []string {
	if tell == nil {
		return []string{}
	}
	return append([]string{}, tell()...)
}
