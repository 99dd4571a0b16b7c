package batch

import (
	"context"
	"crypto/md5" //nolint:gosec // The hash only names a session.
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/database"
	"sexton/internal/lease"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// fenceRefused is the SQLSTATE that begin_batch raises if the token is not the current
// one.
const fenceRefused = "SX001"

// Unmet is the SQLSTATE that the function require raises if its condition does not hold.
const Unmet = "SX003"

// Limits holds the timeouts and the mode of one transaction.
type Limits struct {
	StatementTimeout time.Duration
	// LockTimeout limits each wait for a lock.
	LockTimeout time.Duration
	// Durable makes COMMIT wait for the disk. It may be false if all that the transaction
	// writes is in one database. The log keeps the order, so a crash can lose the last
	// batches, but it cannot lose a deletion and keep the later removal of its tombstone.
	Durable bool
	// Repeatable selects REPEATABLE READ. A statement that waits for a row which another
	// session then changes fails with 40001 instead of using the new version.
	Repeatable bool
	// Reads makes the transaction READ ONLY. Its statements use indexes, whatever the
	// statistics are. The token is compared without a lock, because a lock is written.
	// That is safe: the transaction commits nothing, and batches that act on its result
	// lock the fence.
	Reads bool
	// Own marks statements that fire no trigger of the application. They read its tables
	// and write only Sexton's own tables. They use unqualified operators, and run under
	// the pinned search_path instead of the search_path of the application's triggers.
	Own bool
}

// shortWait is the lock timeout of ShortWaits.
const shortWait = 200 * time.Millisecond

// ShortWaits returns the limits with a short lock timeout, for a run that has other work
// to do instead of waiting.
func (l Limits) ShortWaits() Limits {
	l.LockTimeout = min(l.LockTimeout, shortWait)
	return l
}

// Timeouts returns the timeouts of statements and locks in milliseconds. The lock timeout
// is shorter. If both expired at the same time, the server would report the statement
// timeout, and a blocked statement would seem to be too large.
func (l Limits) Timeouts() (statement, lock int64) {
	wait := l.LockTimeout
	if most := l.StatementTimeout * 2 / 3; most > 0 && wait > most {
		wait = max(most, time.Millisecond) // 0 would disable the timeout.
	}
	return l.StatementTimeout.Milliseconds(), wait.Milliseconds()
}

// Statement is one statement of a transaction.
type Statement struct {
	SQL  string
	Args []any
	// Scan reads the rows. If it is nil, the rows are discarded.
	Scan func(pgx.Rows) error
}

// CommitWithoutLockTimeout is the last statement of a batch with a short lock timeout.
// COMMIT of a transaction with a NOTIFY waits for a lock that all databases of the server
// share. The statement timeout still limits COMMIT.
func CommitWithoutLockTimeout() Statement {
	return Statement{SQL: "SELECT pg_catalog.set_config('lock_timeout', '0', true)"}
}

// Frame is the StatementError.Index of an error that none of the caller's statements
// caused.
const Frame = -1

// StatementError is the error of one statement of a transaction, which was rolled back.
type StatementError struct {
	// Index is the index of the failed statement among the caller's statements. It is
	// Frame if an earlier statement of the batch failed. It is the number of statements
	// if COMMIT failed, which checks deferred constraints.
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
	// Slot is the slot of the fence that the session's transactions lock, less than
	// lease.Slots. Each session of a pass has a different slot.
	Slot int
	// Kept makes triggers save the rows that the session deletes, for `sexton undo`, as
	// they do for sessions of the application.
	Kept bool

	// took is the duration of the last round trip, and quickest the shortest one.
	took, quickest time.Duration
}

// Name returns the application_name of the session's transactions: the result of the
// function session_name, and the token.
func (s *Session) Name() string {
	key := s.Fence.Key()
	short, sum := []rune(key), md5.Sum([]byte(key)) //nolint:gosec // No secret.
	return fmt.Sprintf("sexton %s %x#%d", string(short[:min(len(short), 24)]), sum[:4], s.Fence.Token())
}

// Took returns the duration of the last transaction on the server. It subtracts the
// session's quickest round trip as the time of the network. Otherwise statements would
// become smaller and smaller over a slow network.
func (s *Session) Took() time.Duration { return s.took - s.quickest }

// Run executes the statements in one transaction and returns the number of rows that each
// of them affected. The error is a *StatementError, or lease.ErrLost if the token is not
// the current one.
func (s *Session) Run(ctx context.Context, statements ...Statement) ([]int64, error) {
	return s.RunWithin(ctx, s.Limits, statements...)
}

// RunOwn runs statements on Sexton's own tables and the catalog only.
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

// RunWithin runs a batch like Run, with the given limits instead of the session's limits.
func (s *Session) RunWithin(ctx context.Context, limits Limits, statements ...Statement) ([]int64, error) {
	affected, err := s.run(ctx, limits, statements)
	if s.stale(err) && !s.Conn.IsClosed() {
		// A prepared statement is no longer valid, for example because the type of a
		// column has changed. The transaction was rolled back, so it can be retried.
		if err := s.dropPrepared(ctx); err != nil {
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
	// A REPEATABLE READ transaction cannot lock a fence that was raised after its
	// snapshot.
	raised := limits.Repeatable && failed != nil && failed.Index == Frame
	// On a busy server the timeout of a small statement can expire before it begins. That
	// counts as a timeout of the statement, not as an error of the pass.
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
	// The default of the database may differ. With one snapshot per transaction, a
	// statement would not see rows of a transaction that the statement before it has
	// waited for.
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
	prepared, known := s.isPrepared(all)
	if !found || !known {
		// Prepare new statements in the transaction, after the frame has set the path and
		// the timeouts: preparing waits for locks of other sessions too.
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

// preparedLimit is the maximum number of prepared statements of a connection. Statements
// change with the definitions, and connections are used for an hour.
const preparedLimit = 500

// These keys identify values in a connection's custom data: the names of its prepared
// statements, and the path of triggers. Later passes use them too.
const (
	preparedKey = "sexton.batch.prepared"
	pathKey     = "sexton.batch.path"
)

// unprepare clears the known prepared statements and the path of a connection after an
// error. The driver drops everything that a failed pipeline has prepared.
func unprepare(conn *pgx.Conn) {
	delete(conn.PgConn().CustomData(), pathKey)
	delete(conn.PgConn().CustomData(), preparedKey)
}

func timedOut(err error) bool { return pgcatalog.SQLState(err) == "57014" }

// stale reports whether a prepared statement failed because a table has changed ("cached
// plan must not change result type"), or because the server no longer has it. An
// application's trigger may raise 0A000 too, which is not stale.
func (s *Session) stale(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && s.prepares() && (pgErr.Code == "26000" || pgErr.Code == "0A000" &&
		pgErr.Routine == "RevalidateCachedQuery")
}

// prepares reports whether the connection uses prepared statements. Through a transaction
// pooler it does not, since the next transaction may use another server session.
func (s *Session) prepares() bool {
	return s.Conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
}

// dropPrepared drops every prepared statement of the connection.
func (s *Session) dropPrepared(ctx context.Context) error {
	delete(s.Conn.PgConn().CustomData(), preparedKey)
	if _, err := s.Conn.Exec(ctx, "ROLLBACK"); err != nil {
		return fmt.Errorf("roll back batch: %w", err)
	}
	return problem.Doing(s.Conn.DeallocateAll(ctx), "drop prepared statements")
}

// isPrepared reports whether statements can be sent without preparing them first. It also
// returns the prepared statements of the connection.
func (s *Session) isPrepared(statements []Statement) (prepared map[string]bool, known bool) {
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

// send runs a pipeline of the statements in the frame, if it has any, and of the caller's
// statements. frame is the number of statements in the frame, which are queued already.
// Unless statements is nil, send adds them and COMMIT.
func (s *Session) send(ctx context.Context, pipeline *pgx.Batch, frame int,
	statements []Statement,
) (affected []int64, err error) {
	for _, statement := range statements {
		pipeline.Queue(statement.SQL, statement.Args...)
	}
	if statements != nil {
		pipeline.Queue("COMMIT")
		pipeline.Queue("RESET ALL") // A trigger of the application may have changed a setting of the session.
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
			// An error of the server is more important than an error of Scan, which may
			// follow from it.
			if rows.Err() != nil {
				err = rows.Err()
			}
		}
		if err != nil {
			// The driver prepares all statements first, so the first result has the error
			// of any of them. Find the statement that failed.
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

// One returns a Scan that reads the columns of a single row, if there is one.
func One(into ...any) func(pgx.Rows) error {
	return Each(func() {}, into...)
}

// Each returns a Scan that reads the columns of each row and then calls do.
func Each(do func(), into ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, into, func() error { do(); return nil })
		return err
	}
}

// SessionPool opens further sessions for a pass, under the lease of its first session.
type SessionPool struct {
	Pool *pgxpool.Pool
	// First is the first session of the pass.
	First *Session

	conns []*pgxpool.Conn
}

const (
	// acquireTimeout limits the wait for a connection. If it expires, the pass continues
	// with the sessions that it has.
	acquireTimeout = 500 * time.Millisecond
	// spare is the number of connections that are left in the pool, for lease renewal and
	// history.
	spare = 2
)

// Session returns a further session. It returns nil if the pool has no spare connection.
func (p *SessionPool) Session(ctx context.Context) *Session {
	if stat := p.Pool.Stat(); stat.AcquiredConns()+spare >= stat.MaxConns() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, err := p.Pool.Acquire(ctx)
	if err != nil {
		return nil
	}
	p.conns = append(p.conns, conn)
	// If the connection has the statements prepared, its first round trip is a batch and
	// must not count as the quickest one. The new session therefore starts with the value
	// of the first session.
	return &Session{
		Conn: conn.Conn(), Names: p.First.Names, Fence: p.First.Fence, Limits: p.First.Limits, Kept: p.First.Kept,
		Slot: len(p.conns) % lease.Slots, quickest: p.First.quickest,
	}
}

// Release returns the connections to the pool.
func (p *SessionPool) Release() {
	for _, conn := range p.conns {
		conn.Release()
	}
}
