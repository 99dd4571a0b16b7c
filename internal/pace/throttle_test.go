package pace

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// fixture holds a server with only the sessions of the test, and the Share of a pass
// whose role has no privileges.
type fixture struct {
	db     *pgtest.Database
	memory ServerMemory
	share  Share
	role   string
}

func newFixture(t *testing.T) *fixture {
	s := &fixture{db: pgtest.NewOn(t, pgtest.Server(t))}
	s.role = s.db.CreateRole()
	conn := s.session(t, "sexton")
	throttle := NewServerThrottle(pgtest.Logger(t), &s.memory, ReplicaLimits{},
		Target{DB: database.Database{Name: "main"}, Session: &batch.Session{Conn: conn}})
	require.Nil(t, throttle.Share(0.7), "a fixed duty needs no query")
	s.share = throttle.Share(0)
	_, duty := s.share(t.Context(), false)
	require.Equal(t, idle, duty)
	require.Zero(t, s.memory.server("main").latest, "the servers are not queried after the first batch of a pass")
	return s
}

// session connects as the role without privileges, with the application_name program.
func (s *fixture) session(t *testing.T, program string) *pgx.Conn {
	conn := pgtest.Connect(t, s.db.AsRole(s.role))
	pgtest.Exec(t, conn, "SELECT set_config('application_name', $1, false)", program)
	return conn
}

// idle is the duty on a server without other sessions.
var idle = Duty{Percent: 100, Why: "no other sessions"}

// query makes the next query due immediately, and returns the duty after it.
func (s *fixture) query(t *testing.T) Duty {
	s.memory.server("main").nextQuery = time.Time{}
	_, duty := s.share(t.Context(), false)
	return duty
}

func (s *fixture) waitFor(t *testing.T, what string, holds func(Duty) bool) Duty {
	var duty Duty
	pgtest.WaitFor(t, what, func(context.Context) (bool, error) {
		duty = s.query(t)
		return holds(duty), nil
	})
	return duty
}

func isFull(duty Duty) bool { return duty.Percent == 100 }

func isHalf(duty Duty) bool { return duty.Percent <= 55 }

// runTransactions runs short transactions on another session until the returned function
// is called.
func (s *fixture) runTransactions(t *testing.T, program, sql string) (end func()) {
	conn := s.session(t, program)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = conn.Exec(context.WithoutCancel(ctx), sql)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// brief is a statement that runs long enough for most queries to find its transaction.
const brief = "SELECT pg_sleep(0.02)"

func TestShortTransactionsOfOtherSessionsReduceTheShare(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	require.Equal(t, idle, s.query(t))
	end := s.runTransactions(t, "app", brief)
	require.Regexp(t, `^other sessions: \d\.\d transactions$`, s.waitFor(t, "the share to fall", isHalf).Why)
	end()
	s.waitFor(t, "the share to rise", isFull)
}

func TestOldTransactionsAndSextonsOwnDoNotCount(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	report := s.session(t, "psql")
	pgtest.Exec(t, report, "BEGIN; SELECT 1")
	for _, name := range []string{"sexton ci", "sexton loose_foreign_keys/clean 1234#5"} {
		t.Cleanup(s.runTransactions(t, name, brief))
	}
	for range 100 {
		require.Equal(t, idle, s.query(t))
	}
	pgtest.Exec(t, report, "COMMIT; BEGIN; SELECT 1")
	s.waitFor(t, "the new transaction to count", func(duty Duty) bool { return !isFull(duty) })
	s.waitFor(t, "the transaction to be too old to count", isFull)
	end := s.runTransactions(t, "app", brief)
	defer end()
	s.waitFor(t, "short transactions to count", isHalf)
}

// If the role lacks the privilege, for example because a hosting provider has revoked it
// from PUBLIC, the duty has the error as its reason, and the next query is delayed.
func TestTheDutyReportsAMissingPrivilege(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.db.Exec("REVOKE ALL ON pg_catalog.pg_locks FROM PUBLIC")
	duty := s.query(t)
	require.Equal(t, 50, duty.Percent)
	require.Contains(t, duty.Why, "other sessions are unknown: ERROR: permission denied for")
	require.Greater(t, time.Until(s.memory.server("main").nextQuery), deniedPause/2)

	s.db.Exec("GRANT SELECT ON pg_catalog.pg_locks TO PUBLIC")
	require.Equal(t, idle, s.query(t))
}

// The error of a query that fails because its pass was stopped is neither recorded nor
// logged.
func TestAStoppedPassRecordsNoError(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.query(t)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	s.memory.server("main").nextQuery = time.Time{}
	_, duty := s.share(stopped, false)
	require.Equal(t, idle, duty)
	var log bytes.Buffer
	throttle := NewServerThrottle(slog.New(slog.NewTextHandler(&log, nil)), &s.memory, ReplicaLimits{Bytes: 1},
		Target{Session: &batch.Session{Conn: s.session(t, "sexton")}})
	require.Empty(t, throttle.Hold(stopped))
	require.Empty(t, log.String())
}

// The time between two queries has a lower limit, which all passes of the process share.
func TestQueriesAreLimited(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.query(t)
	state := s.memory.server("main")
	queried := state.latest
	state.nextQuery = time.Now().Add(time.Hour)
	for range 10 {
		s.share(t.Context(), false)
	}
	require.Equal(t, queried, state.latest)
	state.nextQuery = time.Now()
	s.share(t.Context(), false)
	require.Greater(t, state.latest, queried)
	require.GreaterOrEqual(t, state.nextQuery.Sub(state.latest), queryEvery)
	require.LessOrEqual(t, state.nextQuery.Sub(state.latest), queryAtLeast)
}
