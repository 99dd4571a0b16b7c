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

// Slots is how many rows the fence of a lease has in each database: the most sessions of
// one pass.
const Slots = 32

// Margin is how long before the end of its lease a holder stops working, if no statement
// may take longer.
const Margin = 5 * time.Second

// Extension returns how much longer a lease lasts if a statement may take longer than
// Margin: a statement that begins just before the holder stops ends under the lease, and
// one that the server continues after that ends within the margin.
func Extension(statementTimeout time.Duration) time.Duration {
	return 2 * max(0, statementTimeout-Margin)
}

// ErrLost says that the lease has passed to another holder or has run out.
var ErrLost = errors.New("lease lost")

// HeldError says that another holder has the lease. It is an ordinary outcome, not a
// failure.
type HeldError struct {
	Key       string
	Holder    string
	ExpiresAt time.Time
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lease %s is held by %s until %s", e.Key, e.Holder, e.ExpiresAt.UTC().Format(time.RFC3339))
}

// ByUndo reports whether a deletion is being taken back under it.
func (e *HeldError) ByUndo() bool { return ByUndo(e.Holder) }

// Manager acquires leases in one jobs database on behalf of one holder.
type Manager struct {
	// Jobs is the database with the leases.
	Jobs database.Database
	// Holder names this manager to operators, such as "host:pid:random". No other manager
	// has this name.
	Holder string
	// Digests are the generations of definitions that the holder works with, by the keys
	// of leases. A lease without one is granted whatever is installed.
	Digests map[string]string
	// StatementTimeout is the longest time of a statement under a lease. Leases last
	// longer by its Extension.
	StatementTimeout time.Duration

	mu sync.Mutex
	// acquiring has the keys that are being acquired. working has, by key, the lease that
	// this process works under. Any other lease of this holder is left over.
	acquiring map[string]bool
	working   map[string]*Lease
}

// Lease is a granted lease.
type Lease struct {
	manager  *Manager
	key      string
	token    int64
	acquired time.Time // by the server's clock; tells acquisitions with the same token apart
	ttl      time.Duration
	deadline time.Time // monotonic; the margin before the lease ends at the earliest
	asked    time.Time // monotonic; before the lease was granted
	// fenced are the databases whose fences have the token in all slots.
	fenced []database.Database
}

// Key returns the lease's key.
func (l *Lease) Key() string { return l.key }

// AcquiredAt returns the time in the lease's row.
func (l *Lease) AcquiredAt() time.Time { return l.acquired }

// Holder returns the name of the process that holds the lease.
func (l *Lease) Holder() string { return l.manager.Holder }

// Token returns the fencing token.
func (l *Lease) Token() int64 { return l.token }

// Acquire takes the lease for ttl, and the Extension for long statements, and raises its
// token in the fences of all databases, in their order. It returns a *HeldError where
// another holder has the lease, and a *GenerationError where other definitions are
// installed than the holder's. On any later error the lease is given back.
func (m *Manager) Acquire(ctx context.Context, key string, ttl time.Duration,
	fences ...database.Database,
) (*Lease, error) {
	_, l, err := m.Begin(ctx, Run{}, key, ttl, fences...)
	return l, err
}

// Run is the history's entry of a run that begins.
type Run struct {
	Kind, Database string
}

// Begin is Acquire, and enters a run in the history. The run's ID is returned beside most
// errors, too; it is 0 where nothing was entered.
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
		begin.Fenced, begin.LockTimeout = false, "0" // An earlier holder's batch is open: Raise ends its session.
		row, err = l.begin(ctx, begin)
	}
	if claimed {
		m.settle(l, err == nil && row.Token != 0)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("acquire lease %s: %w", key, err)
	}
	if row.Token == 0 {
		if err := m.Current(ctx, m.Jobs.Async(), key); err != nil {
			return row.RunID, nil, err
		}
		return row.RunID, nil, m.held(ctx, key)
	}
	l.token, l.acquired, l.deadline = row.Token, row.AcquiredAt, l.asked.Add(ttl-m.margin(ttl))
	for _, db := range fences {
		if m.isJobs(db) && row.Fence == l.token && m.outdated(key, db, row.Digest) == nil {
			l.fenced = append(l.fenced, db)
			continue
		}
		if err := l.Raise(ctx, db); err != nil {
			// The caller's context may be what ended; a lease left behind would block
			// everybody for ttl.
			return row.RunID, nil, errors.Join(err, l.Release(context.WithoutCancel(ctx)))
		}
	}
	return row.RunID, l, nil
}

// begin notes the time before the statement is sent, so that the local deadline can only
// be early. It takes the connection before that: a session that continues with this
// connection need not check whether a crash has reverted the lease.
func (l *Lease) begin(ctx context.Context, params dbsqlc.LeaseBeginParams) (row dbsqlc.LeaseBeginRow, err error) {
	conn, err := l.manager.Jobs.Async().Acquire(ctx)
	if err != nil {
		return row, err //nolint:wrapcheck // Begin names the lease
	}
	defer conn.Release()
	l.asked = time.Now()
	return l.manager.Jobs.Names.Queries(conn).LeaseBegin(ctx, params) //nolint:wrapcheck // likewise
}

// claim reserves a key for an acquisition, unless the key is already being acquired. own
// reports that this process does not work under the key, so that a lease of this holder
// is left over. A lease that the process works under may have expired, or an operator may
// have released it. The process can then acquire the key again.
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

// settle ends an acquisition. If it was granted, the process works under the lease.
func (m *Manager) settle(l *Lease, granted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.acquiring, l.key)
	if granted {
		m.working[l.key] = l
	}
}

func (m *Manager) isJobs(db database.Database) bool { return db.Name == m.Jobs.Name }

// held returns a HeldError with the lease's holder.
func (m *Manager) held(ctx context.Context, key string) error {
	look, err := m.Jobs.AsyncQueries().LeaseLook(ctx, key)
	if errors.Is(err, pgx.ErrNoRows) { // This process is acquiring it for the first time.
		look, err = dbsqlc.LeaseLookRow{Holder: m.Holder, ExpiresAt: time.Now()}, nil
	}
	if err != nil {
		return fmt.Errorf("look at lease %s: %w", key, err)
	}
	return &HeldError{Key: key, Holder: look.Holder, ExpiresAt: look.ExpiresAt}
}

// margin is the time of the longest statement, at least Margin, and at most half of the
// lease.
func (m *Manager) margin(ttl time.Duration) time.Duration {
	return min(max(Margin, m.StatementTimeout), ttl/2)
}

// Context returns a context that ends when the holder has to stop, with ErrLost as its
// cause.
func (l *Lease) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, l.deadline, ErrLost)
}

// Renew extends the lease by its ttl from now. Contexts made earlier keep their old end.
// It returns ErrLost where the lease has ended or passed on.
func (l *Lease) Renew(ctx context.Context) error {
	asked := time.Now()
	renewed, err := l.manager.Jobs.AsyncQueries().LeaseRenew(ctx, dbsqlc.LeaseRenewParams{
		TtlSeconds: l.ttl.Seconds(), Key: l.key, Token: l.token, Holder: l.Holder(), AcquiredAt: l.acquired,
	})
	if err != nil {
		return fmt.Errorf("renew lease %s: %w", l.key, err)
	}
	if renewed == 0 {
		return fmt.Errorf("renew lease %s: %w", l.key, ErrLost)
	}
	l.deadline = asked.Add(l.ttl - l.manager.margin(l.ttl))
	return nil
}

// ErrUnconfirmed says that the jobs database did not answer whether a lease is kept,
// which tells nothing of the database that the connection is to.
var ErrUnconfirmed = errors.New("the jobs database does not answer")

// confirmWithin bounds that question.
const confirmWithin = 5 * time.Second

// confirmedKey is where a connection carries the lease that it was last confirmed for.
const confirmedKey = "sexton.lease.confirmed"

// Confirm returns ErrLost where a crash of the server has taken the lease back, whose
// token then has two holders. Commits of leases need not wait for the disk, and the fence
// knows tokens alone. A crash ends every connection, so only one that is younger than the
// lease needs this look, and only once.
func (l *Lease) Confirm(ctx context.Context, conn *pgx.Conn) error {
	known := conn.PgConn().CustomData()
	if known[confirmedKey] == l || database.ConnectedBefore(conn, l.asked) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	kept, err := l.manager.Jobs.AsyncQueries().LeaseKept(ctx,
		dbsqlc.LeaseKeptParams{Key: l.key, Token: l.token, Holder: l.Holder(), AcquiredAt: l.acquired})
	if err != nil {
		return fmt.Errorf("look whether lease %s is kept: %w: %w", l.key, ErrUnconfirmed, err)
	}
	if !kept {
		return fmt.Errorf("lease %s was taken back by a crash of the server: %w", l.key, ErrLost)
	}
	known[confirmedKey] = l
	return nil
}

// During keeps the lease while its holder prepares, which over a slow network may take
// longer than the lease. Work itself never runs under it: work that hangs must lose its
// lease.
func (l *Lease) During(ctx context.Context, prepare func() error) error {
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
				_ = l.Renew(ctx) // The last one says whether the lease is lost.
			}
		}
	}()
	err := prepare()
	close(stop)
	return errors.Join(err, <-stopped)
}

// Over ends the work under the lease in this process. If the lease's row does not show
// that, or a crash of the server reverts it, the manager's next acquisition takes the
// lease.
func (l *Lease) Over() {
	l.manager.mu.Lock()
	defer l.manager.mu.Unlock()
	if l.manager.working[l.key] == l {
		delete(l.manager.working, l.key)
	}
}

// Release gives the lease back, if it is still held. A lease that has passed on is no
// error.
func (l *Lease) Release(ctx context.Context) error {
	l.Over()
	if _, err := l.manager.Jobs.AsyncQueries().LeaseRelease(ctx, l.key, l.Holder(), l.acquired); err != nil {
		return fmt.Errorf("release lease %s: %w", l.key, err)
	}
	return nil
}

func lockNotAvailable(err error) bool { return pgcatalog.SQLState(err) == "55P03" }

// raiseTimeout is how long a new holder waits for the batch of an earlier one.
const raiseTimeout = 200 * time.Millisecond

// Raise lifts the fence of a database to the lease's token, before the first batch there.
// The error wraps ErrLost where the lease has passed on; after any other one the lease is
// still held, and nothing may be written to that database.
func (l *Lease) Raise(ctx context.Context, db database.Database) error {
	before := l.token
	err := l.raise(ctx, db)
	if err == nil {
		l.fenced = append(l.fenced, db)
	}
	// Where the token had to grow for one fence the others follow, which may make it grow
	// again.
	for l.token != before {
		before = l.token
		for _, earlier := range l.fenced {
			if failed := l.raise(ctx, earlier); failed != nil {
				return errors.Join(err, failed)
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
			// An installation and this statement take turns at the row: one that commits
			// later refuses the batches by its token.
			return l.manager.outdated(l.key, db, fence.Digest)
		case fence.Token == l.token:
			return nil
		default:
			// The fence stands above the lease: either a newer holder raised it, and then
			// this token no longer owns the lease's row, or the lease's row came back
			// from an older backup, and then it is lifted.
			if err := l.advance(ctx, fence.Token+1); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("raise fence %s in database %s: still locked by an earlier holder's transaction after %d attempts", l.key, db.Name, attempts)
}

func (l *Lease) advance(ctx context.Context, token int64) error {
	lifted := dbsqlc.LeaseAdvanceParams{Token: token, Key: l.key, Holder: l.Holder(), AcquiredAt: l.acquired}
	advanced, err := l.manager.Jobs.AsyncQueries().LeaseAdvance(ctx, lifted)
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

func (l *Lease) evict(ctx context.Context, db database.Database) error {
	_, err := db.Pool.Exec(ctx, db.Names.Render(evictSQL), l.key, l.token)
	return problem.Doing(err, "end earlier holder's transaction of lease %s in database %s", l.key, db.Name)
}
