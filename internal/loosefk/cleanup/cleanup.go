package cleanup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	"sexton/internal/pace"
	"sexton/triggers"
)

// Kind is the job kind of the cleanup after deleted parents. It must not change, because
// the jobs database stores it.
const Kind = "loose_foreign_keys_cleanup"

// Work holds the configuration and the memory that passes share.
type Work struct {
	Config *config.Config
	// Databases are the connected databases, in the configured order. Jobs is the
	// database with the tables of River and Sexton.
	Databases   []database.Database
	Jobs        database.Database
	Definitions []definitions.Definition
	Logger      *slog.Logger
	Memory      *Memory
	Servers     *pace.ServerMemory
	Held        Held
	// Track returns the triggers that parents need.
	Track func(db database.Database, parents []*loosefk.Parent) (triggers.Config, []triggers.Parent)
}

// Held stores the problems that definitions have with a database.
type Held interface {
	SetErrors(kind, database string, wrong []string)
	HasError(kind, database, reason string) bool
}

func (w *Work) limits() batch.Limits {
	return batch.Limits{StatementTimeout: w.Config.Jobs.StatementTimeout, LockTimeout: w.Config.Jobs.LockTimeout}
}

// database returns the configured database of that name, or the zero value.
func (w *Work) database(name string) database.Database {
	if i := slices.IndexFunc(w.Databases, func(db database.Database) bool { return db.Name == name }); i >= 0 {
		return w.Databases[i]
	}
	return database.Database{}
}

// throttle returns the throttle of a pass for all databases that it writes to. Only the
// adaptive pace waits for replicas.
func (w *Work) throttle(db database.Database, how config.Pace, session *batch.Session,
	remotes map[string]loosefk.Remote,
) pace.Throttle {
	var limits pace.ReplicaLimits
	if how == config.Adaptive {
		limits = pace.ReplicaLimits{Lag: w.Config.Jobs.ReplicaLag, Bytes: int64(w.Config.Jobs.ReplicaLagBytes)}
	}
	targets := []pace.Target{{DB: db, Session: session}}
	for _, other := range w.Databases {
		if there := remotes[other.Name]; there.Session != nil {
			targets = append(targets, pace.Target{DB: other, Session: there.Session})
		}
	}
	return pace.NewServerThrottle(w.Logger.With("kind", Kind, "database", db.Name), w.Servers, limits,
		targets...).Throttle(w.Config.LooseForeignKeys.Duty.Fixed())
}

// reporter returns a function that calls progress with the statistics of a running pass.
// The statistics are written immediately if the reason for waiting has changed.
func reporter(progress jobrun.Progress) func(context.Context, *loosefk.Stats) {
	lastReason := ""
	return func(ctx context.Context, stats *loosefk.Stats) {
		changed := stats.WaitingFor != lastReason
		lastReason = stats.WaitingFor
		progress(ctx, stats, changed)
	}
}

// Run runs one pass for a database, under its lease. If tables have changed, it binds the
// definitions again and runs the pass once more.
func (w *Work) Run(ctx context.Context, db database.Database, granted *lease.Lease,
	progress jobrun.Progress,
) (*loosefk.Stats, error) {
	conn, err := db.Async().Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to database %s: %w", db.Name, err)
	}
	p := &pass{
		Work: w, db: db, conn: conn, log: w.Logger.With("kind", Kind, "database", db.Name),
		conns: map[string]*pgxpool.Conn{}, errs: map[string]error{},
	}
	defer p.release()
	defer w.Memory.PassEnded(db.Name)
	stats, err := p.run(ctx, granted, progress)
	if errors.Is(err, loosefk.ErrChanged) {
		// The first run has taken the binding out of the memory, so this run binds the
		// definitions again.
		return p.run(ctx, granted, progress)
	}
	return stats, err
}

func (p *pass) run(ctx context.Context, granted *lease.Lease, progress jobrun.Progress) (*loosefk.Stats, error) {
	settings, _ := p.Config.Database(p.db.Name)
	var bound *binding
	if err := granted.RenewDuring(ctx, func() (err error) {
		if bound, err = p.bind(ctx); err != nil {
			return err
		}
		return p.rotate(ctx, bound.parents)
	}); err != nil {
		return nil, err
	}
	limits := settings.EffectiveLimits()
	timeouts := p.limits()
	remotes, err := p.open(ctx, granted, bound.parents, timeouts)
	if err != nil {
		return nil, err
	}
	session := &batch.Session{Conn: p.conn.Conn(), Names: p.db.Names, Fence: granted, Limits: timeouts}
	more := &batch.SessionPool{Pool: p.db.Async(), First: session}
	defer more.Release()
	keys := p.Config.LooseForeignKeys
	engine := &loosefk.Engine{
		Database: p.db.Name, Pace: string(settings.Pace), Parents: bound.parents, Fingerprint: bound.expected,
		Session:  session,
		Adaptive: adaptive(settings.Pace, keys), Undo: keys.Undo.On(), ConfirmAfter: keys.ConfirmAfter,
		Sizes:    p.Memory.Sizes(p.db.Name),
		Throttle: p.throttle(p.db, settings.Pace, session, remotes), Progress: reporter(progress),
		Limits:      loosefk.Limits{Deletes: limits.Deletes, Updates: limits.Updates, Runtime: limits.Runtime},
		Connections: keys.Connections, More: more.Session,
	}
	engine.Remotes = remotes
	engine.Lost = func(name string, err error) {
		other := p.database(name)
		_ = p.markDown(ctx, other, other.Unreachable(err))
	}
	stats, err := engine.Run(ctx)
	if errors.Is(err, loosefk.ErrChanged) {
		return nil, err //nolint:wrapcheck // Run handles it.
	}
	if stats.Revived > 0 {
		p.log.WarnContext(ctx, "deleted_keys_exist_again", "revived", stats.Revived,
			"first_keys", stats.RevivedKeys)
	}
	if err == nil && len(stats.Errors) == 0 {
		p.Memory.keep(p.db.Name, bound)
	}
	return stats, err
}

// adaptive returns the settings of the adaptive pace, and the zero value for other paces.
func adaptive(pace config.Pace, settings config.LooseForeignKeys) loosefk.Adaptive {
	if pace != config.Adaptive {
		return loosefk.Adaptive{}
	}
	return loosefk.Adaptive{Target: settings.Target, Duty: settings.Duty.Fixed()}
}

// trackNewPartitions installs triggers on new partitions of tracked parents. If that
// fails, the pass continues, since the rest of the work does not depend on it. `sexton
// triggers status` reports the partitions.
func (p *pass) trackNewPartitions(ctx context.Context, parents []*loosefk.Parent) {
	cfg, tracked := p.Track(p.db, parents)
	installed, err := triggers.EnsurePartitions(ctx, p.conn.Conn(), cfg, tracked)
	if err != nil {
		p.log.WarnContext(ctx, "partitions_without_triggers", "error", err)
	}
	if len(installed) > 0 {
		p.log.InfoContext(ctx, "partition_triggers_installed", "tables", installed)
	}
}
