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
	"sexton/internal/pulse"
)

// DefaultSilence is how long a worker may be silent before it is taken for dead.
const DefaultSilence = 15 * time.Second

const (
	// longest is the pause between beats, and the time for each, where the silence does not ask for less.
	longest = 5 * time.Second
	// leaveTimeout bounds what the end of Run waits for.
	leaveTimeout = 2 * time.Second
)

// Heart is the heartbeat of one worker. Its methods may be called at the same time.
type Heart struct {
	// DB is the database with River's and Sexton's own tables.
	DB database.Database
	// ClientID is the ID of the worker's River client and the holder of its leases.
	ClientID string
	// Interval is the pause between beats, 0 means 5 s, or a third of a shorter silence.
	Interval time.Duration
	// Silence is how long a client may be silent before it is taken for dead, 0 means DefaultSilence.
	Silence time.Duration
	// Deaf tells what the worker polls for because notifications do not reach it, as kind/database, for
	// status to show. Nil means nothing.
	Deaf func() []string
	// Held tells what the worker holds because it does not fit the database, as kind/database: reason. Nil means nothing.
	Held func() []string
	// Digests are the generations of definitions that the worker has, by the keys of leases, for status to compare.
	Digests map[string]string
	// Schedules are the ones that the worker follows as the leader, as kind/database.
	Schedules []string
	Logger    *slog.Logger
	// Foreground is for a pass that no worker runs, which is none of the workers that status and doctor show.
	Foreground bool
	// Also are questions of other parts of the worker to the same database, asked in the round trip of the beat.
	Also []pulse.Question

	mu sync.Mutex
	// lastBeat is when the last beat that got through was sent, on the monotonic clock.
	lastBeat time.Time
	// ahead is whether something may be dated later than the server's clock, which was set back, and is to be dated anew by the next beat.
	ahead bool
	// working counts the goroutines that work on a job, by its ID; missed are the jobs that none worked on at the last beat.
	working map[int64]int
	missed  map[int64]bool
	// noReclaimBefore is the end of the time in which the others' silence proves nothing.
	noReclaimBefore time.Time
}

// Run beats at once and at every interval, and reclaims in between, until ctx ends. Then it removes its
// own row and gives back the jobs and leases that it still has, so ctx must outlive the worker's jobs.
// Failures of the database are logged once per outage and retried.
func (h *Heart) Run(ctx context.Context) {
	var failing time.Time
	h.Pulse().Run(ctx, func(err error) {
		switch {
		case err != nil && failing.IsZero():
			failing = time.Now()
			h.Logger.ErrorContext(ctx, "heartbeat fails", "client_id", h.ClientID, "error", err)
		case err == nil && !failing.IsZero():
			h.Logger.InfoContext(ctx, "heartbeat is back", "client_id", h.ClientID, "outage_ms", time.Since(failing).Milliseconds())
			failing = time.Time{}
		}
	})
	h.leave(context.WithoutCancel(ctx))
}

// Pulse asks everything that the worker asks of the jobs database. It looks for dead workers each time, and beats at every interval: that writes.
func (h *Heart) Pulse() *pulse.Pulse {
	p := &pulse.Pulse{On: h.DB.Async(), Period: min(pulse.Usual, h.interval()), Answer: h.operationTimeout()}
	if len(h.Also) == 0 {
		p.Period = h.interval()
	}
	p.Add(
		pulse.Question{Every: h.interval(), Ask: h.beat},
		pulse.Question{Every: h.interval(), Ask: h.lookForLost},
		pulse.Question{Ask: func(ctx context.Context, on dbsqlc.DBTX) (pulse.Then, error) {
			return h.lookForDead(ctx, on, new(Reclaimed))
		}},
	)
	p.Add(h.Also...)
	return p
}

func (h *Heart) interval() time.Duration { return cmp.Or(h.Interval, min(longest, h.silence()/3)) }

// operationTimeout bounds a beat and a reclaim. Two beats that hang and the pause between them still fit into the silence.
func (h *Heart) operationTimeout() time.Duration {
	return min(longest, max(h.silence()/3, time.Second/2))
}

func (h *Heart) silence() time.Duration { return cmp.Or(h.Silence, DefaultSilence) }

// Beat writes the time into the client's row, which the first beat inserts. A worker beats before it fetches
// its first job.
func (h *Heart) Beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.operationTimeout())
	defer cancel()
	then, err := h.beat(ctx, h.DB.Async())
	if err != nil {
		return err
	}
	return then(ctx)
}

func (h *Heart) beat(ctx context.Context, on dbsqlc.DBTX) (pulse.Then, error) {
	// Taken before the statement is sent, so that Alive can only end early.
	sent := time.Now()
	deaf, held := said(h.Deaf), said(h.Held)
	seen, err := h.DB.Names.Queries(on).ClientBeat(ctx, deaf, held, h.ClientID)
	if err != nil {
		return nil, fmt.Errorf("update client %s: %w", h.ClientID, err)
	}
	return func(ctx context.Context) error {
		if len(seen) == 0 {
			if err := h.enter(ctx, deaf, held); err != nil {
				return err
			}
		}
		if h.beaten(sent, len(seen) == 0 || seen[0]) {
			return h.redate(ctx)
		}
		return nil
	}, nil
}

// beaten notes a beat that got through, and whether it found the server's clock set back. It reports whether something may lie ahead of that.
func (h *Heart) beaten(sent time.Time, setBack bool) (ahead bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lastBeat.IsZero() && sent.Sub(h.lastBeat) > h.silence() {
		// Whatever silenced this client, such as a restart of the server, may have silenced all of them.
		h.noReclaimBefore = time.Now().Add(h.interval())
	}
	h.lastBeat = sent
	h.ahead = h.ahead || setBack
	return h.ahead
}

func (h *Heart) setAhead(ahead bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ahead = ahead
}

func (h *Heart) enter(ctx context.Context, deaf, held []string) error {
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
		ClientID: h.ClientID, Host: host, Pid: int32(os.Getpid()), Deaf: deaf, Held: held, Digests: digests,
		Schedules: append([]string{}, h.Schedules...), Foreground: h.Foreground, // Never null.
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

// Alive reports whether the last beat that got through is recent enough for the others to see this worker
// alive. It is false before the first one.
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
