package pace

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/pgcatalog"
)

// replicaCheckEvery is the shortest time between two checks of a database's replicas if
// none of them lags too much. All passes of the process share the checks.
const replicaCheckEvery = time.Second

// ServerThrottle makes one pass wait for the replicas and other sessions of the servers
// that it writes to. It logs each reason for waiting once.
type ServerThrottle struct {
	targets []*target
	limits  ReplicaLimits
	log     *slog.Logger
	memory  *ServerMemory
	// blocker is the last logged lock holder.
	blocker string
}

// Target is one database that a pass writes to.
type Target struct {
	DB      database.Database
	Session *batch.Session
}

type target struct {
	Target

	// skipReplicas is set after a query of the replicas failed. The pass then no longer
	// waits for them.
	skipReplicas bool
	// replica is the last logged replica.
	replica string
}

// ServerMemory caches the state of the databases' servers for all passes of one process.
// The zero value is ready to use.
type ServerMemory struct {
	mu sync.Mutex
	// servers holds the state of each server by the name of the database.
	servers map[string]*server
}

// server caches the state of the server of one database. All passes of the process share
// its queries.
type server struct {
	OtherSessions

	mu sync.Mutex
	// nextQuery is the earliest time of the next query of other sessions.
	nextQuery time.Time
	// replicasChecked is the time of the last check in which no replica lagged too much.
	// replicasHidden reports that the role cannot see the state of replicas.
	replicasChecked time.Time
	replicasHidden  bool
}

// NewServerThrottle returns the throttle of a pass. The first target is the pass's own
// database.
func NewServerThrottle(log *slog.Logger, memory *ServerMemory, limits ReplicaLimits,
	targets ...Target,
) *ServerThrottle {
	t := &ServerThrottle{limits: limits, log: log, memory: memory}
	for _, one := range targets {
		t.targets = append(t.targets, &target{Target: one})
	}
	return t
}

// Throttle returns the functions that slow a run down. If duty is 0, the share of its
// time that the run works depends on the load of the servers. Without limits for
// replicas, the run does not wait for replicas.
func (t *ServerThrottle) Throttle(duty float64) Throttle {
	throttle := Throttle{Share: t.Share(duty), Blocker: t.Blocker}
	if t.limits.On() {
		throttle.Hold = t.Hold
	}
	return throttle
}

// Hold returns the lag of a replica that exceeds the limits, or "" if no replica does. If
// the state of the replicas cannot be read, the pass does not wait for them.
func (t *ServerThrottle) Hold(ctx context.Context) string {
	for _, on := range t.targets {
		if reason := t.replicaLag(ctx, on); reason != "" {
			return reason
		}
	}
	return ""
}

// replicaLag returns the largest lag of a database's replicas that exceeds the limits, or
// "".
func (t *ServerThrottle) replicaLag(ctx context.Context, on *target) string {
	known := t.memory.server(on.DB.Name)
	if on.skipReplicas || known.replicasCheckedSince() < replicaCheckEvery {
		return ""
	}
	// Hold is called between batches, so the connection of the pass is idle and no other
	// connection is needed.
	replicas, err := ReadReplicas(ctx, on.Session.Conn)
	if err != nil && ctx.Err() != nil {
		return "" // The pass was stopped, so the error does not concern the replicas.
	}
	if err != nil {
		on.skipReplicas = true
		if !errors.Is(err, ErrReplicasHidden) || known.firstHidden() {
			t.log.WarnContext(ctx, "replicas_not_checked", "of", on.DB.Name, "error", err)
		}
		return ""
	}
	worst, lags := t.limits.Worst(replicas)
	if !lags {
		on.replica = ""
		known.noteReplicasChecked()
		return ""
	}
	reason := t.limits.Describe(worst)
	if worst.Name != on.replica {
		on.replica = worst.Name
		t.log.InfoContext(ctx, "pass_waiting", "reason", reason)
	}
	return reason
}

// replicasCheckedSince returns the time since the last check in which no replica lagged
// too much.
func (s *server) replicasCheckedSince() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.replicasChecked)
}

func (s *server) noteReplicasChecked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicasChecked = time.Now()
}

// firstHidden records that the role cannot see the state of the replicas. It returns true
// on the first call only, so that the warning is logged once per process.
func (s *server) firstHidden() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.replicasHidden
	s.replicasHidden = true
	return first
}

// Blocker returns the session that a batch in the named database waits for, or "". If
// name is empty, it uses the pass's own database.
func (t *ServerThrottle) Blocker(ctx context.Context, name string) string {
	i := slices.IndexFunc(t.targets, func(on *target) bool { return name == "" || on.DB.Name == name })
	if i < 0 {
		return ""
	}
	reason, err := t.targets[i].Session.Blocker(ctx, t.targets[i].DB.Pool)
	// An error is only logged for debugging: the query also fails if the batch has ended,
	// and a problem of the server is returned by the batch too.
	if err != nil {
		t.log.DebugContext(ctx, "lock_holder_unknown", "error", err)
		return ""
	}
	if reason != "" && reason != t.blocker && ctx.Err() == nil {
		t.blocker = reason
		t.log.InfoContext(ctx, "pass_waiting", "reason", reason)
	}
	return reason
}

//go:embed queries/transactions.sql
var transactionsSQL string

const (
	// The time between two queries of other sessions is queryCost times the duration of
	// the last query, but at least queryEvery and at most queryAtLeast.
	queryEvery, queryAtLeast = 50 * time.Millisecond, time.Second
	queryCost                = 20
	// deniedPause is the time until the next query after a query that failed because of a
	// missing privilege. Each such query adds a line to the server's log.
	deniedPause = time.Minute
)

// Share returns a Share that depends on the other sessions of the servers, or nil if the
// duty is fixed. The Share does not query the servers after the first batch of a pass:
// most passes after a wake-up have no second batch, and the query would delay their end.
func (t *ServerThrottle) Share(duty float64) Share {
	if duty != 0 {
		return nil
	}
	begun := false
	return func(ctx context.Context, locked bool) (least float64, reported Duty) {
		mayQuery := begun
		begun = true
		for i, on := range t.targets {
			share, duty := t.memory.server(on.DB.Name).share(ctx, on.Session.Conn, mayQuery, locked)
			if i == 0 || share < least {
				least, reported = share, duty
			}
		}
		return least, reported
	}
}

// server returns the cached state of the server of a database.
func (m *ServerMemory) server(name string) *server {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.servers == nil {
		m.servers = map[string]*server{}
	}
	if m.servers[name] == nil {
		m.servers[name] = &server{}
	}
	return m.servers[name]
}

// share returns the share of its time that a run may work on the server. It first reads
// the transactions of other sessions, if the next query is due.
func (s *server) share(ctx context.Context, conn *pgx.Conn, mayQuery, locked bool) (float64, Duty) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began := time.Now(); mayQuery && !conn.IsClosed() && !began.Before(s.nextQuery) {
		// While this query is running, no other pass begins one.
		s.nextQuery = began.Add(queryAtLeast)
		if s.query(ctx, conn, began) {
			s.nextQuery = began.Add(min(max(queryEvery, queryCost*time.Since(began)), queryAtLeast))
		} else {
			s.nextQuery = began.Add(deniedPause)
		}
	}
	return s.OtherSessions.Share(locked)
}

// query reads the transactions of other sessions. It unlocks s while the query is
// running. It returns false if the role lacks the privilege.
func (s *server) query(ctx context.Context, conn *pgx.Conn, now time.Time) bool {
	s.mu.Unlock()
	rows, _ := conn.Query(ctx, transactionsSQL)
	transactions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.mu.Lock()
	switch {
	case err != nil && ctx.Err() != nil: // The error of a stopped pass does not concern other passes.
		return true
	case err != nil:
		s.SetUnknown(now, err.Error())
	default:
		s.Record(now, transactions)
	}
	return pgcatalog.SQLState(err) != "42501"
}
