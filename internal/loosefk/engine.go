package loosefk

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/each"
	"sexton/internal/pace"
)

// Sizes of one turn, as in GitLab: tombstones per load, rows per statement.
const (
	loadSize    = 500
	deleteLimit = 1000
	updateLimit = 500
)

// mostLoaded is the load of the pace that steers itself, and bounds its chunks: with one child per parent, loads of 500 make statements of
// a quarter of the time that they may take, and drains half as long again.
const mostLoaded = 5000

// Engine cleans up after the deleted parents of one database.
type Engine struct {
	// Database and Pace label the statistics.
	Database string
	Pace     string
	Limits   Limits
	// Adaptive is set for the pace that steers itself; Limits then bound its run time alone, unless they say more.
	Adaptive Adaptive
	Throttle pace.Throttle
	Parents  []*Parent
	// Fingerprint, if set, is that of the parents' tables when they were bound: the run compares it in its first look, and ends with ErrChanged.
	Fingerprint string
	// Look, if set, is the run's first one, taken ahead.
	Look    *First
	Session *batch.Session
	// Connections is how many sessions the pace that steers itself may use at once. More returns a further one under the same lease for the length
	// of the run, nil where there is none to spare.
	Connections int
	More        func(ctx context.Context) *batch.Session
	// Worth is the number of rows that are worth a part of a task; 0 is an eighth of what a statement has. Tests have few rows.
	Worth float64
	// Remotes are the other databases in which parents have children, by name.
	Remotes map[string]Remote
	// Lost, if set, is told of another database that the run has lost on the way.
	Lost       func(database string, err error)
	Confirming Confirming
	// Cursors are where earlier runs have come to; this one moves them. Without, it begins at the beginning.
	Cursors *Cursors
	// Undo has batches keep what they take from parents that were kept themselves, and Audited write what they did.
	Undo, Audited bool
	// Progress, if set, is shown the statistics after every batch and whenever what the run waits for changes. It must
	// not keep them.
	Progress func(ctx context.Context, stats *Stats)

	// carry is mostCarried and page pageSize, except in tests.
	carry, page int
}

// loads is the number of tombstones that are loaded at once, of any of the parents. What is loaded together is probed together, and has a statement
// for each reference that one of them has children of: parents with many references load as few as the paces with fixed sizes.
func (e *Engine) loads(parents ...*Parent) int {
	if !e.Adaptive.on() {
		return loadSize
	}
	loads := min(mostLoaded, e.most())
	for _, p := range parents {
		loads = min(loads, max(loadSize, mostLoaded/max(1, len(p.References))))
	}
	return loads
}

// most is the number of tombstones that a queue may have in hand.
func (e *Engine) most() int { return cmp.Or(e.carry, mostCarried) }

// Run works until no due tombstone is left, a limit is reached or ctx ends; a batch that is running when
// ctx ends is finished first. The statistics are valid beside an error, too. The error wraps
// lease.ErrLost where the lease has passed on; then nothing of the last batch remains.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	stats := newStats(e.Database, e.Pace)
	// The last statement has to end under the lease.
	err := pace.Under(ctx, e.Session, e.Limits.Runtime, e.Session.Limits.StatementTimeout, func(hard context.Context, frame *pace.Frame) error {
		return e.newRun(frame, stats).through(hard)
	})
	return stats, err
}

func (e *Engine) newRun(frame *pace.Frame, stats *Stats) *run {
	r := &run{
		engine: e, stop: frame.Stop, stats: stats, cursors: cmp.Or(e.Cursors, &Cursors{Brief: true}),
		budget:  budget{limits: e.Limits, stats: stats, until: frame.Until},
		breaker: newBreaker(), down: map[string]error{}, blocked: map[leafTarget]*pace.Blocked{}, locked: map[uint32]*pace.Blocked{},
		unreadable: map[*Parent]batch.Fault{},
	}
	r.pace = &pace.Run{
		Until: frame.Until, Stop: frame.Stop, Ended: r.ended, Target: e.Adaptive.Target, Duty: e.Adaptive.Duty,
		Throttle: e.Throttle, Waits: r.waitsFor, Tells: &r.stats.Duty,
	}
	r.sessions = pace.Sessions{Own: e.Session, Most: 1, More: e.More, Pace: r.pace}
	if e.Adaptive.on() {
		r.sessions.Most = e.Connections
	}
	r.away()
	positions := r.cursors.start(e.Parents)
	for i, parent := range e.Parents {
		r.queues = append(r.queues, &queue{parent: parent, after: positions[i], drained: true})
	}
	rand.Shuffle(len(r.queues), func(i, j int) { r.queues[i], r.queues[j] = r.queues[j], r.queues[i] })
	return r
}

// through does the work of a run, and keeps what it has learned.
func (r *run) through(ctx context.Context) error {
	r.cursors.recall(r.engine.Parents)
	err := r.work(ctx)
	r.cursors.note(r.engine.Parents)
	r.stats.Duty, r.stats.WaitingFor, r.stats.WaitingClass = pace.Duty{}, "", ""
	if err != nil {
		r.cursors.Forget()
		return err
	}
	r.cursors.keep(r.queues)
	return r.sessions.Broken()
}

// run is the state of one Run.
type run struct {
	engine  *Engine
	cursors *Cursors
	stop    context.Context //nolint:containedctx // asked between batches; the batches themselves outlive it
	stats   *Stats
	budget  budget
	breaker *breaker
	queues  []*queue
	// asked is when the run last looked for due tombstones, contended reports that others wait while a chunk is worked on.
	asked     time.Time
	contended bool
	// rounds is how often the run was through and then found more.
	rounds int
	// closing was read with the last look at what is due, while nothing has been done since.
	closing *closing
	// down are the databases that the run does without, and why.
	down map[string]error
	pace *pace.Run
	// unreadable are the parents that the role may not read.
	unreadable map[*Parent]batch.Fault
	// blocked are targets with rows that others have locked, locked the leaves that they have locked as a whole.
	blocked map[leafTarget]*pace.Blocked
	locked  map[uint32]*pace.Blocked
	// rows are the waits for rows, and for what takes long; tables those for whole tables.
	rows, tables pace.Obstacles
	sessions     pace.Sessions
}

// position is one in the order in which tombstones are worked off. The time may be infinite: that is how
// an operator puts a tombstone first.
type position struct {
	consumeAfter pgtype.Timestamptz
	id           int64
}

// beginning is before the first tombstone.
func beginning() position {
	return position{consumeAfter: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}}
}

// tombstone is one deleted parent: its position in the queue and its key, in one of two forms.
type tombstone struct {
	position

	// tuple is the row version that was loaded. The tombstone's next version has another.
	tuple   pgtype.TID
	integer *int64
	text    *string
	// made is when it was written, by this process's clock.
	made time.Time
	// origin is the set that the parent is kept in, if it is.
	origin *int64
}

// ended reports whether no further batch may begin.
func (r *run) ended() bool { return r.budget.over() || r.stop.Err() != nil }

// cutShort ends a run that is not through: its limits were met, or it was asked to stop, which is no failure
// of its rows. Of what it could not finish, only parents that stand alone count an attempt: those have more
// children than fit into a statement, while others merely shared one with them.
func (r *run) cutShort(ctx context.Context) error {
	if err := r.due(ctx); err != nil {
		return err
	}
	left := slices.ContainsFunc(r.queues, (*queue).open)
	r.stats.Held = cmp.Or(r.tables.Reason(), r.rows.Reason())
	over := r.budget.over()
	if r.engine.Adaptive.on() && !r.budget.rowsOver() {
		// Its time alone is over: the next run goes on at once, and no chunk is too big for it.
		over = false
	}
	r.stats.OverLimit = left && over
	r.stats.Interrupted = left && !over
	if !over {
		return nil
	}
	for _, l := range r.queues {
		for _, c := range l.chunks() {
			if !c.begun || len(c.tombstones) > 1 || c.blocked != nil {
				continue
			}
			reason := batch.Fault{Message: r.budget.reason(), Verdict: batch.Unfinished}
			if c.failed != nil {
				reason = *c.failed
			}
			if err := r.recordFailure(ctx, c.parent, c.tombstones, reason); err != nil {
				return err
			}
		}
	}
	return nil
}

// probe tells which references have children of these keys. Where it cannot be told at once, all of them
// count as live, so that the error comes up in the statement on one of them.
func (r *run) probe(ctx context.Context, parent *Parent, keys any) []bool {
	live, err := r.live(ctx, parent, keys, false)
	if err != nil && batch.Judge(err).Lock() && r.findLocked(ctx, parent) {
		live, err = r.live(ctx, parent, keys, false)
	}
	if err != nil {
		live = each.Of(parent.References, func(reference *Reference) bool { return r.trouble(reference) == nil })
	}
	return live
}

// live tells which references have children of these keys. Those with trouble count as without.
// Late is for keys that nearly surely have none left, but have index entries of many that are gone; references that take too
// long to be read for them have a look of their own.
func (r *run) live(ctx context.Context, parent *Parent, keys any, late bool) ([]bool, error) {
	live := make([]bool, len(parent.References))
	var long []*Reference
	if !r.cursors.Brief {
		long = parent.long()
	}
	for _, database := range r.databases(parent) {
		limits := r.engine.Session.Limits
		var without []*Reference
		if late {
			without = long
		} else {
			without, limits = r.unasked(parent), limits.ShortWaits()
		}
		sql, args := parent.probeStatement(database, keys, without...)
		var found []bool
		var statements []batch.Statement
		if late {
			statements = append(statements, batch.Statement{SQL: bitmapOnly})
			sql += " AS late" // With a text of its own it gets a plan of its own.
		}
		statements = append(statements, batch.Statement{SQL: sql, Args: args, Scan: batch.One(&found)})
		_, err := r.in(ctx, database, limits, statements...)
		if err != nil {
			return nil, err
		}
		for i, reference := range parent.References {
			live[i] = live[i] || found[i] || !late && slices.Contains(without, reference)
		}
	}
	return live, nil
}
