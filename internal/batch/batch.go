package batch

import (
	"context"
	"crypto/md5" //nolint:gosec // The name of a session.
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/database"
	"sexton/internal/lease"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// fenceRefused is the SQLSTATE of begin_batch for a token that is not the current one.
const fenceRefused = "SX001"

// Unmet is the SQLSTATE of the function require if its condition does not hold.
const Unmet = "SX003"

// Limits bound each statement of a transaction.
type Limits struct {
	StatementTimeout time.Duration
	// LockTimeout bounds each wait for a lock.
	LockTimeout time.Duration
	// Durable makes COMMIT wait for the disk. It may be false where all that a
	// transaction writes lives in one database: the log keeps the order, so a crash can
	// lose the last batches but never the rows behind an earlier tombstone's removal.
	Durable bool
	// Repeatable is for statements that must not follow a row which another session
	// changes while they wait for it: they fail with 40001.
	Repeatable bool
	// Reads is for statements that write nothing: the server refuses others. They use
	// indexes, whatever the statistics say of their tables. The token is compared without
	// a lock, which would be written.
	Reads bool
	// Own is for statements that fire no trigger of the application. They read its tables
	// and write only Sexton's own tables. They use plain operators under the pinned
	// search_path, not under that of the application's triggers.
	Own bool
}

// shortWait bounds each wait for a lock while there is something else to do.
const shortWait = 200 * time.Millisecond

// ShortWaits are the same limits with short waits for locks.
func (l Limits) ShortWaits() Limits {
	l.LockTimeout = min(l.LockTimeout, shortWait)
	return l
}

// Timeouts are those of a statement and of one wait for a lock as the server takes them,
// in milliseconds. A wait ends before its statement: of two that end together the server
// reports the statement's, and one that was held up would pass for one that is too big.
func (l Limits) Timeouts() (statement, lock int64) {
	wait := l.LockTimeout
	if most := l.StatementTimeout * 2 / 3; most > 0 && wait > most {
		wait = max(most, time.Millisecond) // 0 would be no timeout at all.
	}
	return l.StatementTimeout.Milliseconds(), wait.Milliseconds()
}

// Statement is one statement of a transaction.
type Statement struct {
	SQL  string
	Args []any
	// Scan reads the rows, if the caller wants them.
	Scan func(pgx.Rows) error
}

// Frame is the index of an error that no statement of the caller's caused.
const Frame = -1

// StatementError says which statement of a transaction failed. Nothing of that
// transaction remains.
type StatementError struct {
	// Index counts the caller's statements from 0. Frame precedes them; one more than the
	// last is the COMMIT, where deferred constraints speak up.
	Index int
	Err   error
}

func (e *StatementError) Error() string {
	place := fmt.Sprintf("statement %d", e.Index)
	if e.Index == Frame {
		place = "batch"
	}
	return fmt.Sprintf("%s: %v%s", place, e.Err, PathHint(e.Err))
}

func (e *StatementError) Unwrap() error { return e.Err }

// Session runs transactions on one connection under one lease. It is not safe for
// concurrent use.
type Session struct {
	Conn   *pgx.Conn
	Names  pgcatalog.Names
	Fence  *lease.Lease
	Limits Limits
	// Slot is the slot of the fence that its transactions lock, below lease.Slots.
	// Sessions of one pass have different ones.
	Slot int
	// Kept has triggers keep what the session's statements delete, for `sexton undo`, as
	// they do for sessions of the application.
	Kept bool

	// seen is the last one that Blocker found.
	seen atomic.Pointer[Obstacle]
	// took is how long the last transaction's round trip lasted, quickest the shortest of
	// all.
	took, quickest time.Duration
}

// Name is what the session's transactions call themselves in pg_stat_activity: the same
// as the function session_name, and the token.
func (s *Session) Name() string {
	key := s.Fence.Key()
	short, sum := []rune(key), md5.Sum([]byte(key)) //nolint:gosec // No secret.
	return fmt.Sprintf("sexton %s %x#%d", string(short[:min(len(short), 24)]), sum[:4], s.Fence.Token())
}

// Took returns how long the last transaction kept the server busy. The network is not
// counted: the session's quickest round trip stands for it. Statements would be made
// smaller and smaller over a slow one.
func (s *Session) Took() time.Duration { return s.took - s.quickest }

// Run executes the statements in one transaction and returns the rows that each affected.
// An error is a *StatementError, or lease.ErrLost where the fence refused.
func (s *Session) Run(ctx context.Context, statements ...Statement) ([]int64, error) {
	return s.RunWithin(ctx, s.Limits, statements...)
}

// RunOwn runs statements on Sexton's own tables and the catalogue only.
func (s *Session) RunOwn(ctx context.Context, statements ...Statement) ([]int64, error) {
	limits := s.Limits
	limits.Own = true
	return s.RunWithin(ctx, limits, statements...)
}

// ReadOwn runs statements like RunOwn in a READ ONLY transaction.
func (s *Session) ReadOwn(ctx context.Context, statements ...Statement) error {
	limits := s.Limits
	limits.Reads, limits.Own = true, true
	_, err := s.RunWithin(ctx, limits, statements...)
	return err
}

// RunWithin is Run under other limits than the session's.
func (s *Session) RunWithin(ctx context.Context, limits Limits, statements ...Statement) ([]int64, error) {
	affected, err := s.run(ctx, limits, statements)
	if s.stale(err) && !s.Conn.IsClosed() {
		// A column's type has changed since, say. Nothing of the transaction remains, so
		// it may go again.
		if err := s.forget(ctx); err != nil {
			return nil, err
		}
		affected, err = s.run(ctx, limits, statements)
	}
	if err == nil {
		return affected, nil
	}
	unprepare(s.Conn)
	if !s.Conn.IsClosed() && s.Conn.PgConn().TxStatus() != 'I' {
		if _, rollbackErr := s.Conn.Exec(ctx, "ROLLBACK"); rollbackErr != nil {
			return nil, errors.Join(err, fmt.Errorf("roll back batch: %w", rollbackErr))
		}
	}
	failed, _ := errors.AsType[*StatementError](err)
	// A fence that was raised after the snapshot cannot be locked in a repeatable
	// transaction.
	raised := limits.Repeatable && failed != nil && failed.Index == Frame
	// On a busy server the time of a small statement is over before it begins. That is
	// its own timeout, and no fault of the pass.
	if failed != nil && failed.Index == Frame && len(statements) > 0 && timedOut(err) {
		failed.Index = 0
	}
	if state := pgcatalog.SQLState(err); state == fenceRefused || raised && state == "40001" {
		return nil, fmt.Errorf("%w: %w", lease.ErrLost, err)
	}
	return nil, err
}

func (s *Session) run(ctx context.Context, limits Limits, statements []Statement) ([]int64, error) {
	if err := s.Fence.Confirm(ctx, s.Conn); err != nil {
		return nil, err //nolint:wrapcheck // It names the lease.
	}
	pipeline := &pgx.Batch{}
	// Whatever the database's default: with the transaction's snapshot, statements would
	// see nothing of those whom the ones before them have waited for.
	begin := "BEGIN ISOLATION LEVEL READ COMMITTED"
	if limits.Repeatable {
		begin = "BEGIN ISOLATION LEVEL REPEATABLE READ"
	}
	if limits.Reads {
		begin += " READ ONLY"
	}
	pipeline.Queue(begin)
	statement, lock := limits.Timeouts()
	pipeline.Queue(s.Names.Render(`SELECT "sexton".begin_batch($1, $2, $3, $4, $5, $6)`),
		s.Fence.Key(), s.Slot, s.Fence.Token(), statement, lock, limits.Durable)
	if s.Kept {
		pipeline.Queue(keptSQL)
	}
	s.queuePath(pipeline, limits)
	frame := pipeline.Len()
	all, found := s.explainFirst(limits, statements)
	prepared, known := s.knows(all)
	if !found || !known {
		// The others are prepared in one round trip, behind the frame: under its path,
		// and within its timeouts.
		if _, err := s.send(ctx, pipeline, frame, nil); err != nil {
			return nil, err
		}
		pipeline, frame = &pgx.Batch{}, 0
		all, _ = s.explainFirst(limits, statements)
		if len(prepared) > preparedLimit {
			clear(prepared)
			if err := s.Conn.DeallocateAll(ctx); err != nil {
				return nil, &StatementError{Index: Frame, Err: err}
			}
		}
		if prepared != nil {
			for _, statement := range all {
				prepared[statement.SQL] = true
			}
		}
	}
	affected, err := s.send(ctx, pipeline, frame, all)
	return afterExplain(len(all)-len(statements), affected, err)
}

// preparedLimit bounds what a connection keeps prepared: texts change with definitions,
// and connections live for an hour.
const preparedLimit = 500

// A connection carries the names of its prepared statements, and the path of triggers, so
// that they outlast a pass.
const (
	preparedKey = "sexton.batch.prepared"
	pathKey     = "sexton.batch.path"
)

// unprepare follows the driver, which drops all that a failed pipeline has prepared.
func unprepare(conn *pgx.Conn) {
	delete(conn.PgConn().CustomData(), pathKey)
	delete(conn.PgConn().CustomData(), preparedKey)
}

func timedOut(err error) bool { return pgcatalog.SQLState(err) == "57014" }

// stale reports whether Postgres refused a statement because the connection has prepared
// it for tables as they were ("cached plan must not change result type"), or has lost it.
// An application's trigger may raise 0A000 too: that goes to the caller.
func (s *Session) stale(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && s.prepares() && (pgErr.Code == "26000" || pgErr.Code == "0A000" &&
		pgErr.Routine == "RevalidateCachedQuery")
}

// prepares reports whether the connection's query mode keeps prepared statements.
func (s *Session) prepares() bool {
	return s.Conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
}

// forget drops every prepared statement of the connection.
func (s *Session) forget(ctx context.Context) error {
	delete(s.Conn.PgConn().CustomData(), preparedKey)
	if _, err := s.Conn.Exec(ctx, "ROLLBACK"); err != nil {
		return fmt.Errorf("roll back batch: %w", err)
	}
	return problem.Doing(s.Conn.DeallocateAll(ctx), "drop prepared statements")
}

// knows reports whether statements can be sent without preparing them first, and what the
// connection has prepared.
func (s *Session) knows(statements []Statement) (prepared map[string]bool, known bool) {
	if !s.prepares() {
		return nil, true
	}
	kept := s.Conn.PgConn().CustomData()
	prepared, _ = kept[preparedKey].(map[string]bool)
	if prepared == nil {
		prepared = map[string]bool{}
		kept[preparedKey] = prepared
	}
	for _, statement := range statements {
		if !prepared[statement.SQL] {
			return prepared, false
		}
	}
	return prepared, true
}

// send runs a pipeline that has the frame's statements in it already. With statements it
// ends in COMMIT.
func (s *Session) send(ctx context.Context, pipeline *pgx.Batch, frame int,
	statements []Statement,
) (affected []int64, err error) {
	for _, statement := range statements {
		pipeline.Queue(statement.SQL, statement.Args...)
	}
	if statements != nil {
		pipeline.Queue("COMMIT")
		pipeline.Queue("RESET ALL") // A trigger of the application may have set something for the session.
	}
	began := time.Now()
	results := s.Conn.SendBatch(ctx, pipeline)
	defer func() {
		if s.took = time.Since(began); s.quickest == 0 || s.took < s.quickest {
			s.quickest = s.took
		}
		if closeErr := results.Close(); closeErr != nil && err == nil {
			affected, err = nil, &StatementError{Index: Frame, Err: closeErr}
		}
	}()
	for i := range frame {
		if i < frame-1 {
			_, err = results.Exec()
		} else {
			var path string
			var policies bool
			err = results.QueryRow().Scan(&path, new(string), &policies)
			data := s.Conn.PgConn().CustomData()
			if err == nil && data[pathKey] == nil && path != database.OwnPath {
				data[pathKey] = foundPath{path, time.Now()}
			}
			if err == nil {
				data[policiesKey] = policies
			}
		}
		if err != nil {
			return nil, &StatementError{Index: Frame, Err: err}
		}
	}
	affected = make([]int64, len(statements))
	for i, statement := range statements {
		rows, err := results.Query()
		if err == nil {
			if statement.Scan != nil {
				err = statement.Scan(rows)
			}
			rows.Close()
			// What the server said goes before what reading its rows made of it.
			if rows.Err() != nil {
				err = rows.Err()
			}
		}
		if err != nil {
			// It comes ahead of all results, whichever it is about.
			if unprepared, ok := errors.AsType[pgx.ErrPreprocessingBatch](err); ok {
				err = unprepared.Unwrap()
				if at := slices.IndexFunc(statements,
					func(one Statement) bool { return one.SQL == unprepared.SQL() }); at >= 0 {
					i = at
				}
			}
			return nil, &StatementError{Index: i, Err: err}
		}
		affected[i] = rows.CommandTag().RowsAffected()
	}
	if statements != nil {
		if _, err := results.Exec(); err != nil {
			return nil, &StatementError{Index: len(statements), Err: err}
		}
	}
	return affected, nil
}

// Collect returns a Scan that replaces found with the rows.
func Collect[T any](found *[]T, to pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, to)
		return err
	}
}

// One returns a Scan that reads the only row, if there is one.
func One(into ...any) func(pgx.Rows) error {
	return Each(func() {}, into...)
}

// Each returns a Scan that calls do for every row.
func Each(do func(), into ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, into, func() error { do(); return nil })
		return err
	}
}

// More opens further sessions for a pass, under the same lease.
type More struct {
	Pool *pgxpool.Pool
	// Like is the pass's own session.
	Like *Session

	conns []*pgxpool.Conn
}

const (
	// moreWithin bounds the wait for a connection. If it expires, the pass continues with
	// the sessions that it has.
	moreWithin = 500 * time.Millisecond
	// spare is the number of connections that are left in the pool, for lease renewal and
	// history.
	spare = 2
)

// Session returns a further session, or nil if the pool has no connection to spare.
func (m *More) Session(ctx context.Context) *Session {
	if stat := m.Pool.Stat(); stat.AcquiredConns()+spare >= stat.MaxConns() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, moreWithin)
	defer cancel()
	conn, err := m.Pool.Acquire(ctx)
	if err != nil {
		return nil
	}
	m.conns = append(m.conns, conn)
	// If the connection has the statements prepared, its first round trip is a batch and
	// must not count as the quickest one. The new session therefore starts with the value
	// of the first session.
	return &Session{
		Conn: conn.Conn(), Names: m.Like.Names, Fence: m.Like.Fence, Limits: m.Like.Limits, Kept: m.Like.Kept,
		Slot: len(m.conns) % lease.Slots, quickest: m.Like.quickest,
	}
}

// Release returns the connections to the pool.
func (m *More) Release() {
	for _, conn := range m.conns {
		conn.Release()
	}
}
