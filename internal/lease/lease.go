package lease

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Slots is the number of rows of a lease's fence in each database. It is also the maximum
// number of sessions of one pass. All slots exist from the first acquisition on.
const Slots = 32

// Margin is the time before the end of its lease at which a holder stops, unless
// statements may take longer.
const Margin = 5 * time.Second

// Extension returns the time that is added to the ttl of a lease if a statement may take
// longer than Margin. One half delays the time at which the holder stops, so that a
// statement that begins late still ends before that. The other half lengthens the margin,
// in which the server may still run a statement that the holder has abandoned.
func Extension(statementTimeout time.Duration) time.Duration {
	return 2 * max(0, statementTimeout-Margin)
}

// ErrLost reports that the lease has passed to another holder or has expired.
var ErrLost = errors.New("lease lost")

// HeldError reports that another holder has the lease, which is not a failure.
type HeldError struct {
	Key       string
	Holder    string
	ExpiresAt time.Time
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lease %s is held by %s until %s", e.Key, e.Holder, e.ExpiresAt.UTC().Format(time.RFC3339))
}

// ByUndo reports whether an undo holds the lease.
func (e *HeldError) ByUndo() bool { return ByUndo(e.Holder) }

// Manager acquires leases in one jobs database on behalf of one holder.
//
// A lease of the holder is left over if the response to an acquisition or a release was
// lost, or if a crash of the server reverted a release. A manager knows the keys that its
// process acquires or works under. For any other key it takes over a lease of its own
// name. It has at most one acquisition per key in progress, and no two managers have the
// same name. The takeover raises the token, so a lost acquisition that reaches the server
// late can only make a batch fail.
type Manager struct {
	// Jobs is the database in which the leases are stored.
	Jobs database.Database
	// Holder is the name of this manager for operators, such as "host:pid:random". No
	// other manager has this name.
	Holder string
	// Digests holds the digests of the holder's definitions by lease key. A lease whose
	// key has no digest is granted whatever definitions are installed.
	Digests map[string]string
	// StatementTimeout is the maximum time of a statement under a lease. Each lease is
	// extended by the Extension for it.
	StatementTimeout time.Duration

	mu sync.Mutex
	// acquiring holds the keys that are being acquired. working holds, by key, the lease
	// under which this process works. Every other lease of this holder is left over.
	acquiring map[string]bool
	working   map[string]*Lease
}

// Lease is a granted lease. The token, the holder and the time of acquisition together
// identify it: a crash of the server can revert a token, which is then granted twice.
type Lease struct {
	manager   *Manager
	key       string
	token     int64
	acquired  time.Time // by the server's clock; distinguishes acquisitions with the same token
	ttl       time.Duration
	deadline  time.Time // monotonic; the margin before the earliest possible end of the lease
	requested time.Time // monotonic; before the acquisition was sent
	// fenced holds the databases in which all slots of the fence have the token.
	fenced []database.Database
}

// Key returns the lease's key.
func (l *Lease) Key() string { return l.key }

// AcquiredAt returns the time in the lease's row.
func (l *Lease) AcquiredAt() time.Time { return l.acquired }

// Holder returns the name of the manager that holds the lease.
func (l *Lease) Holder() string { return l.manager.Holder }

// Token returns the fencing token.
func (l *Lease) Token() int64 { return l.token }

// Acquire takes the lease for ttl plus the Extension, and raises its token in the fences
// of all databases, in their order. It returns a *HeldError if another holder has the
// lease, and a *GenerationError if other definitions than the holder's are installed. On
// a later error it releases the lease.
func (m *Manager) Acquire(ctx context.Context, key string, ttl time.Duration,
	fences ...database.Database,
) (*Lease, error) {
	_, l, err := m.Begin(ctx, Run{}, key, ttl, fences...)
	return l, err
}

// Run identifies a run for the history.
type Run struct {
	Kind, Database string
}

// Begin acquires the lease like Acquire and inserts a run into the history. It returns
// the run's ID, also with most errors. The ID is 0 if no run was inserted.
func (m *Manager) Begin(ctx context.Context, run Run, key string, ttl time.Duration,
	fences ...database.Database,
) (int64, *Lease, error) {
	ttl += Extension(m.StatementTimeout)
	begin := dbsqlc.LeaseBeginParams{
		Kind: run.Kind, Database: run.Database, Key: key, Holder: m.Holder, TtlSeconds: ttl.Seconds(),
		Digest: m.Digests[key],
		Fenced: slices.ContainsFunc(fences, m.isJobs), LockTimeout: raiseTimeout.String(),
	}
	l := &Lease{manager: m, key: key, ttl: ttl}
	var claimed bool
	claimed, begin.Own = m.claim(key)
	begin.Refused = !claimed
	row, err := l.begin(ctx, begin)
	if lockNotAvailable(err) {
		begin.Fenced, begin.LockTimeout = false, "0" // A batch of an earlier holder has locked the fence. Raise ends its session.
		row, err = l.begin(ctx, begin)
	}
	if claimed {
		m.endAcquisition(l, err == nil && row.Token != 0)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("acquire lease %s: %w", key, err)
	}
	if row.Token == 0 {
		if err := m.CheckGeneration(ctx, m.Jobs.Async(), key); err != nil {
			return row.RunID, nil, err
		}
		return row.RunID, nil, m.held(ctx, key)
	}
	l.token, l.acquired, l.deadline = row.Token, row.AcquiredAt, l.requested.Add(ttl-m.margin(ttl))
	for _, db := range fences {
		if m.isJobs(db) && row.Fence == l.token && m.outdated(key, db, row.Digest) == nil {
			l.fenced = append(l.fenced, db)
			continue
		}
		if err := l.Raise(ctx, db); err != nil {
			// The caller's context may have ended, but the lease must be released:
			// otherwise no holder could acquire it for ttl.
			return row.RunID, nil, errors.Join(err, l.Release(context.WithoutCancel(ctx)))
		}
	}
	return row.RunID, l, nil
}

// begin sends the statement that acquires the lease. It records the time before that, so
// that the local deadline can only be early. It takes a connection before it records the
// time. That connection is then older than the lease, so a session that continues on it
// need not check whether a crash has reverted the lease.
func (l *Lease) begin(ctx context.Context, params dbsqlc.LeaseBeginParams) (row dbsqlc.LeaseBeginRow, err error) {
	conn, err := l.manager.Jobs.Async().Acquire(ctx)
	if err != nil {
		return row, err //nolint:wrapcheck // Begin names the lease
	}
	defer conn.Release()
	l.requested = time.Now()
	return l.manager.Jobs.Names.Queries(conn).LeaseBegin(ctx, params) //nolint:wrapcheck // Begin names the lease
}

// claim reserves a key for an acquisition. It returns false if the key is already being
// acquired. own reports that this process does not work under the key, so that a lease of
// this holder is left over and can be taken over. If the process does work under the key,
// it can acquire it again only after that lease has expired or an operator has released
// it.
func (m *Manager) claim(key string) (claimed, own bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.acquiring[key] {
		return false, false
	}
	if m.acquiring == nil {
		m.acquiring, m.working = map[string]bool{}, map[string]*Lease{}
	}
	m.acquiring[key] = true
	return true, m.working[key] == nil
}

// endAcquisition ends the acquisition of a key. If the lease was granted, this process
// works under it from now on.
func (m *Manager) endAcquisition(l *Lease, granted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.acquiring, l.key)
	if granted {
		m.working[l.key] = l
	}
}

func (m *Manager) isJobs(db database.Database) bool { return db.Name == m.Jobs.Name }

// held returns a *HeldError that names the holder of the lease.
func (m *Manager) held(ctx context.Context, key string) error {
	row, err := m.Jobs.AsyncQueries().LeaseHolder(ctx, key)
	if errors.Is(err, pgx.ErrNoRows) { // The lease has no row yet: this process is acquiring it for the first time.
		row, err = dbsqlc.LeaseHolderRow{Holder: m.Holder, ExpiresAt: time.Now()}, nil
	}
	if err != nil {
		return fmt.Errorf("read lease %s: %w", key, err)
	}
	return &HeldError{Key: key, Holder: row.Holder, ExpiresAt: row.ExpiresAt}
}

// margin returns the time before the end of a lease at which its holder stops: the
// statement timeout, at least Margin and at most half of the lease.
func (m *Manager) margin(ttl time.Duration) time.Duration {
	return min(max(Margin, m.StatementTimeout), ttl/2)
}

// Context returns a context that ends when the holder must stop. Its cause is ErrLost.
func (l *Lease) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, l.deadline, ErrLost)
}

// Renew extends the lease by its ttl from now. Contexts that were made earlier keep their
// deadline. It returns ErrLost if the lease has expired or another holder has it.
func (l *Lease) Renew(ctx context.Context) error {
	requested := time.Now()
	renewed, err := l.manager.Jobs.AsyncQueries().LeaseRenew(ctx, dbsqlc.LeaseRenewParams{
		TtlSeconds: l.ttl.Seconds(), Key: l.key, Token: l.token, Holder: l.Holder(), AcquiredAt: l.acquired,
	})
	if err != nil {
		return fmt.Errorf("renew lease %s: %w", l.key, err)
	}
	if renewed == 0 {
		return fmt.Errorf("renew lease %s: %w", l.key, ErrLost)
	}
	l.deadline = requested.Add(l.ttl - l.manager.margin(l.ttl))
	return nil
}

// ErrUnconfirmed reports that the query of Confirm failed in the jobs database. It is not
// an error of the database to which the connection belongs.
var ErrUnconfirmed = errors.New("the jobs database does not answer")

// confirmWithin is the timeout of the query of Confirm.
const confirmWithin = 5 * time.Second

// confirmedKey is the key of the last confirmed lease in the custom data of a connection.
const confirmedKey = "sexton.lease.confirmed"

// Confirm returns ErrLost if a crash of the server has reverted the lease, so that its
// token may be granted twice. Commits of leases do not wait for the disk, and the fence
// compares only tokens. A crash ends every connection, so only a connection that is
// younger than the lease needs this query, once.
func (l *Lease) Confirm(ctx context.Context, conn *pgx.Conn) error {
	data := conn.PgConn().CustomData()
	if data[confirmedKey] == l || database.ConnectedBefore(conn, l.requested) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	kept, err := l.manager.Jobs.AsyncQueries().LeaseKept(ctx,
		dbsqlc.LeaseKeptParams{Key: l.key, Token: l.token, Holder: l.Holder(), AcquiredAt: l.acquired})
	if err != nil {
		return fmt.Errorf("check lease %s: %w: %w", l.key, ErrUnconfirmed, err)
	}
	if !kept {
		return fmt.Errorf("a crash of the server reverted lease %s: %w", l.key, ErrLost)
	}
	data[confirmedKey] = l
	return nil
}

// RenewDuring calls prepare, and renews the lease until prepare returns: preparing over a
// slow network may take longer than the lease. The work itself must not run in prepare,
// because work that hangs must lose its lease.
func (l *Lease) RenewDuring(ctx context.Context, prepare func() error) error {
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		every := time.NewTicker(l.ttl / 4)
		defer every.Stop()
		for renewed := false; ; renewed = true {
			select {
			case <-stop:
				if renewed {
					stopped <- l.Renew(ctx)
				}
				close(stopped)
				return
			case <-every.C:
				_ = l.Renew(ctx) // The last call reports a lost lease.
			}
		}
	}()
	err := prepare()
	close(stop)
	return errors.Join(err, <-stopped)
}

// Finish records that this process no longer works under the lease. If the release of the
// lease is lost, or a crash of the server reverts it, the manager's next acquisition
// takes the lease over.
func (l *Lease) Finish() {
	l.manager.mu.Lock()
	defer l.manager.mu.Unlock()
	if l.manager.working[l.key] == l {
		delete(l.manager.working, l.key)
	}
}

// Release ends the lease if it is still held. It returns no error if another holder has
// the lease.
func (l *Lease) Release(ctx context.Context) error {
	l.Finish()
	if _, err := l.manager.Jobs.AsyncQueries().LeaseRelease(ctx, l.key, l.Holder(), l.acquired); err != nil {
		return fmt.Errorf("release lease %s: %w", l.key, err)
	}
	return nil
}

func lockNotAvailable(err error) bool { return pgcatalog.SQLState(err) == "55P03" }

// raiseTimeout limits the time for which a new holder waits for a batch of an earlier
// holder.
const raiseTimeout = 200 * time.Millisecond

// Raise raises the fence of a database to the lease's token, before the first batch
// there. The error wraps ErrLost if another holder has the lease now. After any other
// error the lease is still held, but nothing may be written to that database.
func (l *Lease) Raise(ctx context.Context, db database.Database) error {
	before := l.token
	err := l.raise(ctx, db)
	if err == nil {
		l.fenced = append(l.fenced, db)
	}
	// If raise increased the token, the other fences must follow, which may increase it
	// again.
	for l.token != before {
		before = l.token
		for _, earlier := range l.fenced {
			if raiseErr := l.raise(ctx, earlier); raiseErr != nil {
				return errors.Join(err, raiseErr)
			}
		}
	}
	return err
}

// raise raises all slots of one fence.
//
// Open transactions of an earlier holder may have locked slots FOR SHARE, for example if
// its process was stopped between DELETE and COMMIT. Its lease has expired, so after a
// short wait raise ends its sessions.
func (l *Lease) raise(ctx context.Context, db database.Database) error {
	const attempts = 20
	for range attempts {
		fence, err := db.AsyncQueries().FenceRaise(ctx, l.key, l.token, raiseTimeout.String())
		switch {
		case lockNotAvailable(err):
			if err := l.evict(ctx, db); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("raise fence %s in database %s: %w", l.key, db.Name, err)
		case l.manager.outdated(l.key, db, fence.Digest) != nil:
			// An installation and this statement lock the same row. An installation that
			// commits later raises the token, so that the batches are refused.
			return l.manager.outdated(l.key, db, fence.Digest)
		case fence.Token == l.token:
			return nil
		default:
			// The fence is above the lease's token, for one of two reasons. If a newer
			// holder raised the fence, advance returns ErrLost. If the lease's row was
			// restored from an older backup, advance raises its token.
			if err := l.advance(ctx, fence.Token+1); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("raise fence %s in database %s: still locked by an earlier holder's transaction after %d attempts", l.key, db.Name, attempts)
}

// advance raises the token in the lease's row.
func (l *Lease) advance(ctx context.Context, token int64) error {
	params := dbsqlc.LeaseAdvanceParams{Token: token, Key: l.key, Holder: l.Holder(), AcquiredAt: l.acquired}
	advanced, err := l.manager.Jobs.AsyncQueries().LeaseAdvance(ctx, params)
	if err != nil {
		return fmt.Errorf("advance token of lease %s: %w", l.key, err)
	}
	if advanced == 0 {
		return fmt.Errorf("raise fence %s: %w", l.key, ErrLost)
	}
	l.token = token
	return nil
}

//go:embed queries/evict.sql
var evictSQL string

// evict ends the sessions of earlier holders whose transactions lock the fence.
func (l *Lease) evict(ctx context.Context, db database.Database) error {
	_, err := db.Pool.Exec(ctx, db.Names.Render(evictSQL), l.key, l.token)
	return problem.Doing(err, "end earlier holder's transaction of lease %s in database %s", l.key, db.Name)
}
