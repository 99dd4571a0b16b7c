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

// street is a server of its own, whose only sessions are those of the test, and a pass
// there of a role without privileges.
type street struct {
	db     *pgtest.Database
	memory OthersMemory
	share  Share
	role   string
}

func newStreet(t *testing.T) *street {
	s := &street{db: pgtest.NewOn(t, pgtest.Server(t))}
	s.role = s.db.CreateRole()
	conn := s.session(t, "sexton")
	held := NewOthers(pgtest.Logger(t), &s.memory, ReplicaLimits{},
		Target{DB: database.Database{Name: "main"}, Session: &batch.Session{Conn: conn}})
	require.Nil(t, held.Share(0.7), "a fixed duty does not look at the server")
	s.share = held.Share(0)
	_, told := s.share(t.Context(), false)
	require.Equal(t, Duty{Percent: 100, Why: "alone"}, told)
	require.Zero(t, s.memory.on("main").looked, "a wake-up does not wait for a look behind its first batch")
	return s
}

// session connects as the role without privileges.
func (s *street) session(t *testing.T, program string) *pgx.Conn {
	conn := pgtest.Connect(t, s.db.AsRole(s.role))
	pgtest.Exec(t, conn, "SELECT set_config('application_name', $1, false)", program)
	return conn
}

// look looks now, whenever the last look was.
func (s *street) look(t *testing.T) Duty {
	s.memory.on("main").due = time.Time{}
	_, told := s.share(t.Context(), false)
	return told
}

func (s *street) until(t *testing.T, what string, holds func(Duty) bool) Duty {
	var told Duty
	pgtest.WaitFor(t, what, func(context.Context) (bool, error) {
		told = s.look(t)
		return holds(told), nil
	})
	return told
}

func alone(told Duty) bool { return told.Percent == 100 }

func half(told Duty) bool { return told.Percent <= 55 }

// beside runs short transactions on a session of its own until the function that it
// returns is called.
func (s *street) beside(t *testing.T, program, sql string) (end func()) {
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

// brief is a reader's transaction that most looks meet.
const brief = "SELECT pg_sleep(0.02)"

func TestShareFallsBesideShortTransactionsAndComesBack(t *testing.T) {
	t.Parallel()
	s := newStreet(t)
	require.Equal(t, Duty{Percent: 100, Why: "alone"}, s.look(t))
	end := s.beside(t, "app", brief)
	require.Regexp(t, `^others: \d\.\d transactions in flight$`, s.until(t, "the share to fall", half).Why)
	end()
	s.until(t, "the share to come back", alone)
}

func TestOldTransactionsAndSextonsOwnDoNotCount(t *testing.T) {
	t.Parallel()
	s := newStreet(t)
	idle := s.session(t, "psql")
	pgtest.Exec(t, idle, "BEGIN; SELECT 1")
	for _, name := range []string{"sexton ci", "sexton loose_foreign_keys/clean 1234#5"} {
		t.Cleanup(s.beside(t, name, brief))
	}
	for range 100 {
		require.Equal(t, Duty{Percent: 100, Why: "alone"}, s.look(t))
	}
	pgtest.Exec(t, idle, "COMMIT; BEGIN; SELECT 1")
	s.until(t, "a transaction that has just begun to count", func(told Duty) bool { return !alone(told) })
	s.until(t, "the same one to be old", alone)
	end := s.beside(t, "app", brief)
	defer end()
	s.until(t, "others to count still", half)
}

// A provider may keep the views from everybody.
func TestARoleThatMayNotLookSaysSo(t *testing.T) {
	t.Parallel()
	s := newStreet(t)
	s.db.Exec("REVOKE ALL ON pg_catalog.pg_locks FROM PUBLIC")
	told := s.look(t)
	require.Equal(t, 50, told.Percent)
	require.Contains(t, told.Why, "cannot tell if others are there: ERROR: permission denied for")
	require.Greater(t, time.Until(s.memory.on("main").due), lookAgain/2)

	s.db.Exec("GRANT SELECT ON pg_catalog.pg_locks TO PUBLIC")
	require.Equal(t, Duty{Percent: 100, Why: "alone"}, s.look(t))
}

// What a pass that is asked to stop cannot see is no news for the others.
func TestAStopBlindsNoOther(t *testing.T) {
	t.Parallel()
	s := newStreet(t)
	s.look(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	s.memory.on("main").due = time.Time{}
	_, told := s.share(gone, false)
	require.Equal(t, Duty{Percent: 100, Why: "alone"}, told)
	var log bytes.Buffer
	held := NewOthers(slog.New(slog.NewTextHandler(&log, nil)), &s.memory, ReplicaLimits{Bytes: 1},
		Target{Session: &batch.Session{Conn: s.session(t, "sexton")}})
	require.Empty(t, held.Hold(gone))
	require.Empty(t, log.String())
}

// Looks are rationed, and shared by the passes of the process.
func TestLooksAreRationed(t *testing.T) {
	t.Parallel()
	s := newStreet(t)
	s.look(t)
	n := s.memory.on("main")
	looked := n.looked
	n.due = time.Now().Add(time.Hour)
	for range 10 {
		s.share(t.Context(), false)
	}
	require.Equal(t, looked, n.looked)
	n.due = time.Now()
	s.share(t.Context(), false)
	require.Greater(t, n.looked, looked)
	require.GreaterOrEqual(t, n.due.Sub(n.looked), lookEvery)
	require.LessOrEqual(t, n.due.Sub(n.looked), lookSeldom)
}
