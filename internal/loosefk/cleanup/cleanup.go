package cleanup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

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

// Kind is the kind of the job that cleans up after deleted parents. It is frozen.
const Kind = "loose_foreign_keys_cleanup"

// Work has all that passes need.
type Work struct {
	Config *config.Config
	// Databases are connected, in the configured order; Jobs is the one with the jobs' tables.
	Databases   []database.Database
	Jobs        database.Database
	Definitions []definitions.Definition
	Logger      *slog.Logger
	Memory      *Memory
	Pauses      *pace.OthersMemory
	Held        Held
	// Track says which triggers parents need.
	Track func(db database.Database, parents []*loosefk.Parent) (triggers.Config, []triggers.Parent)
}

// Held remembers what in the definitions does not fit a database.
type Held interface {
	NoteWrong(kind, database string, wrong []string)
	WasWrong(kind, database, reason string) bool
}

func (w *Work) limits() batch.Limits {
	return batch.Limits{StatementTimeout: w.Config.Jobs.StatementTimeout, LockTimeout: w.Config.Jobs.LockTimeout}
}

// database returns the configured database of that name, or an empty one.
func (w *Work) database(name string) database.Database {
	if at := slices.IndexFunc(w.Databases, func(db database.Database) bool { return db.Name == name }); at >= 0 {
		return w.Databases[at]
	}
	return database.Database{}
}

// throttle has a pass wait for the databases that it writes to. Replicas count for the pace adaptive alone.
func (w *Work) throttle(db database.Database, how config.Pace, session *batch.Session, remotes map[string]loosefk.Remote) pace.Throttle {
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
	return pace.NewOthers(w.Logger.With("kind", Kind, "database", db.Name), w.Pauses, limits, targets...).For(w.Config.LooseForeignKeys.Duty.Fixed())
}

// reporter hands on the statistics of a running pass: at once where what it waits for has changed.
func reporter(progress jobrun.Progress) func(context.Context, *loosefk.Stats) {
	said := ""
	return func(ctx context.Context, stats *loosefk.Stats) {
		changed := stats.WaitingFor != said
		said = stats.WaitingFor
		progress(ctx, stats, changed)
	}
}

// First is the first look of the next pass for a database, for the lease of that key to take along; nil where the pass begins in other databases.
func (w *Work) First(db database.Database, key string) *loosefk.First {
	kept := w.Memory.peek(db.Name)
	if kept == nil || db.Name != w.Jobs.Name || time.Since(kept.checked) >= bindingAge || len(w.needed(kept.parents)) > 0 {
		return nil
	}
	engine := w.engine(db, kept.parents, kept.fingerprints[db.Name], &batch.Session{Names: db.Names, Limits: w.limits()})
	return engine.First(key)
}

// engine has what the first look of a run depends on.
func (w *Work) engine(db database.Database, parents []*loosefk.Parent, fingerprint string, session *batch.Session) *loosefk.Engine {
	settings, _ := w.Config.Database(db.Name)
	return &loosefk.Engine{
		Database: db.Name, Pace: string(settings.Pace), Parents: parents, Fingerprint: fingerprint, Session: session,
		Cursors: w.Memory.Cursors(db.Name), Adaptive: adaptive(settings.Pace, w.Config.LooseForeignKeys), Undo: w.Config.LooseForeignKeys.Undo.On(),
	}
}

// Run runs one pass for a database, under its lease, on one connection. After errors the definitions are bound anew. First, if not nil, is its
// first look.
func (w *Work) Run(
	ctx context.Context, db database.Database, granted *lease.Lease, first *loosefk.First, progress jobrun.Progress,
) (*loosefk.Stats, error) {
	conn, err := db.Async().Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to database %s: %w", db.Name, err)
	}
	p := &pass{
		Work: w, db: db, conn: conn, log: w.Logger.With("kind", Kind, "database", db.Name), conns: map[string]*pgxpool.Conn{}, errs: map[string]error{},
	}
	defer p.release()
	stats, err := p.run(ctx, granted, first, progress)
	if errors.Is(err, loosefk.ErrChanged) {
		return p.run(ctx, granted, nil, progress) // What was kept is taken, so this one binds.
	}
	return stats, err
}

func (p *pass) run(ctx context.Context, granted *lease.Lease, first *loosefk.First, progress jobrun.Progress) (*loosefk.Stats, error) {
	settings, _ := p.Config.Database(p.db.Name)
	var bound *binding
	if err := granted.During(ctx, func() (err error) {
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
	more := &batch.More{Pool: p.db.Async(), Like: session}
	defer more.Release()
	engine := p.engine(p.db, bound.parents, bound.expected, session)
	engine.Look = first
	engine.Confirming = loosefk.Confirming{Within: p.Config.LooseForeignKeys.ConfirmWithin, Grace: p.Config.LooseForeignKeys.ConfirmGrace}
	engine.Throttle = p.throttle(p.db, settings.Pace, session, remotes)
	engine.Progress, engine.Audited = reporter(progress), p.Config.LooseForeignKeys.Audit == config.AuditBatch
	engine.Limits = loosefk.Limits{Deletes: limits.Deletes, Updates: limits.Updates, Runtime: limits.Runtime}
	engine.Connections, engine.More, engine.Worth = p.Config.LooseForeignKeys.Connections, more.Session, p.Memory.Worth
	engine.Remotes = remotes
	engine.Lost = func(name string, err error) {
		other := p.database(name)
		_ = p.markDown(ctx, other, other.Unreachable(err))
	}
	stats, err := engine.Run(ctx)
	if errors.Is(err, loosefk.ErrChanged) {
		return nil, err //nolint:wrapcheck // Run goes on.
	}
	p.warnOfConfirming(ctx, stats)
	if err == nil && len(stats.Errors) == 0 {
		p.Memory.keep(p.db.Name, bound)
	}
	return stats, err
}

// warnOfConfirming says where children stay because their parents live, and where children that come late may be missed, or are waited for blindly.
func (p *pass) warnOfConfirming(ctx context.Context, stats *loosefk.Stats) {
	if stats.ConfirmedEarly > 0 {
		p.log.WarnContext(ctx, "clean-up confirmed although older transactions are open: children that they insert now stay",
			"parents", stats.ConfirmedEarly, "confirm_within_s", p.Config.LooseForeignKeys.ConfirmWithin.Seconds())
	}
	if stats.Revived > 0 {
		p.log.WarnContext(ctx, "deleted rows live under their keys: their children are kept", "revived", stats.Revived, "first_keys", stats.RevivedKeys)
	}
	if stats.ConfirmBlind {
		p.log.WarnContext(ctx, "other roles' transactions cannot be seen, so clean-up is confirmed after a fixed time: grant the role pg_read_all_stats",
			"confirm_grace_s", p.Config.LooseForeignKeys.ConfirmGrace.Seconds())
	}
}

// adaptive are the settings of the pace that steers itself, and none for the others.
func adaptive(pace config.Pace, settings config.LooseForeignKeys) loosefk.Adaptive {
	if pace != config.Adaptive {
		return loosefk.Adaptive{}
	}
	return loosefk.Adaptive{Target: settings.Target, Duty: settings.Duty.Fixed()}
}

// trackNewPartitions puts triggers on partitions of tracked parents that came later. Where that is not
// possible the pass goes on: the rest of the work does not depend on it, and triggers status tells.
func (p *pass) trackNewPartitions(ctx context.Context, parents []*loosefk.Parent) {
	cfg, tracked := p.Track(p.db, parents)
	installed, err := triggers.EnsurePartitions(ctx, p.conn.Conn(), cfg, tracked)
	if err != nil {
		p.log.WarnContext(ctx, "partitions without triggers: their deletions are not recorded", "error", err)
	}
	if len(installed) > 0 {
		p.log.InfoContext(ctx, "triggers installed on new partitions", "tables", installed)
	}
}
