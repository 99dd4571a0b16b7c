package loosefk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/fault"
	"sexton/internal/pace"
)

// Sizes of one turn, as in GitLab: tombstones per load, rows per statement.
const (
	loadSize    = 500
	deleteLimit = 1000
	updateLimit = 500
)

// Engine cleans up after the deleted parents of one database.
type Engine struct {
	// Database and Pace label the statistics.
	Database string
	Pace     string
	Limits   Limits
	// Adaptive is set for the pace that steers itself; Limits then bound its run time alone, unless they say more.
	Adaptive Adaptive
	Throttle Throttle
	Parents  []*Parent
	Session  *batch.Session
	// Elsewhere are the other databases in which parents have children, by name.
	Elsewhere map[string]Elsewhere
	// Lost, if set, is told of another database that the run has lost on the way.
	Lost       func(database string, err error)
	Confirming Confirming
	// Marks, if set, are where earlier runs have come to; this one moves them.
	Marks *Marks
	// Progress, if set, is shown the statistics after every batch and whenever what the run waits for changes. It must
	// not keep them.
	Progress func(ctx context.Context, stats *Stats)
}

// Run works until no due tombstone is left, a limit is reached or ctx ends; a batch that is running when
// ctx ends is finished first. The statistics are valid beside an error, too. The error wraps
// lease.ErrLost where the lease has passed on; then nothing of the last batch remains.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	hard, cancel := e.Session.Fence.Context(context.WithoutCancel(ctx))
	defer cancel()
	stats := newStats(e.Database, e.Pace)
	r := &run{
		engine: e, stop: ctx, stats: stats,
		budget:  budget{limits: e.Limits, stats: stats, until: time.Now().Add(e.Limits.Runtime)},
		breaker: newBreaker(), backOffs: map[place]time.Duration{}, down: map[string]error{},
	}
	r.pace = &pace.Run{
		Until: r.budget.until, Stop: ctx, Ended: r.ended, Target: e.Adaptive.Target, Duty: e.Adaptive.Duty,
		Hold: e.Throttle.Hold, Waits: r.waitsFor,
	}
	r.away()
	places := e.Marks.start(e.Parents)
	for i, parent := range e.Parents {
		r.lanes = append(r.lanes, &lane{parent: parent, after: places[i]})
	}
	err := r.work(hard)
	if err == nil {
		e.Marks.keep(r.lanes)
	} else if e.Marks != nil {
		e.Marks.Forget()
	}
	if cause := context.Cause(hard); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	return stats, err
}

// run is the state of one Run.
type run struct {
	engine  *Engine
	stop    context.Context //nolint:containedctx // asked between batches; the batches themselves outlive it
	stats   *Stats
	budget  budget
	breaker *breaker
	lanes   []*lane
	// down are the databases that the run does without, and why.
	down map[string]error
	pace *pace.Run
	// backOffs are the latest pauses of places that others were in the way at.
	backOffs map[place]time.Duration
}

// lane is the queue of one parent table within a run.
type lane struct {
	parent *Parent
	// after is the position of the last tombstone loaded. A run loads each tombstone once, so those that
	// failed in it wait for the next run.
	after position
	// carried are the chunks that are not finished yet. They take turns with fresh ones, so a parent with
	// a million children holds nobody up for longer than one statement per child table.
	carried []*chunk
	// left are tombstones that failed in this run.
	left []tombstone
}

// position is a place in the order in which tombstones are worked off. The time may be infinite: that is how
// an operator puts a tombstone first.
type position struct {
	consumeAfter pgtype.Timestamptz
	id           int64
}

// beginning is before the first tombstone.
func beginning() position {
	return position{consumeAfter: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}}
}

// tombstone is one deleted parent: its place in the queue and its key, in one of two forms.
type tombstone struct {
	position

	integer *int64
	text    *string
}

// ended tells whether no further batch may begin.
func (r *run) ended() bool { return r.budget.over() || r.stop.Err() != nil }

// drain serves the lanes in turn. Deleting children can leave tombstones of their own in lanes that were
// already empty, so it asks again until no lane has anything.
func (r *run) drain(ctx context.Context) error {
	for first := true; !r.ended(); first = false {
		active, err := r.due(ctx)
		if err == nil && len(active) == 0 && first {
			// Somebody sees work, and it is not above the marks.
			for _, l := range r.lanes {
				l.after = beginning()
			}
			active, err = r.due(ctx)
		}
		if err != nil {
			return err
		}
		if len(active) == 0 {
			return nil
		}
		rand.Shuffle(len(active), func(i, j int) { active[i], active[j] = active[j], active[i] })
		for len(active) > 0 && !r.ended() {
			next := active[0]
			active = active[1:]
			more, err := r.turn(ctx, next)
			if err != nil {
				return err
			}
			if more {
				active = append(active, next)
			}
		}
	}
	return r.cutShort(ctx)
}

// cutShort ends a run that is not through: its limits were met, or it was asked to stop, which is nobody's
// fault. Of what it could not finish, only parents that stand alone count an attempt: those have more
// children than fit into a statement, while others merely shared one with them.
func (r *run) cutShort(ctx context.Context) error {
	active, err := r.due(ctx)
	if err != nil {
		return err
	}
	left := len(active) > 0
	for _, l := range r.lanes {
		left = left || len(l.carried) > 0
	}
	over := r.budget.over()
	if r.engine.Adaptive.on() && !r.budget.rowsOver() {
		// Its time alone is over: the next run goes on at once, and nobody is too big for it.
		over = false
	}
	r.stats.OverLimit = left && over
	r.stats.Interrupted = left && !over
	if !over {
		return nil
	}
	for _, l := range r.lanes {
		for _, c := range l.carried {
			if !c.begun || len(c.tombstones) > 1 {
				continue
			}
			reason := fault.Fault{Message: r.budget.reason(), Verdict: fault.Unfinished}
			if c.failed != nil {
				reason = *c.failed
			}
			if err := r.blame(ctx, c.parent, c.tombstones, reason); err != nil {
				return err
			}
		}
	}
	return nil
}

// due returns the lanes with due tombstones behind their position.
func (r *run) due(ctx context.Context) ([]*lane, error) {
	names := make([]string, len(r.lanes))
	times := make([]pgtype.Timestamptz, len(r.lanes))
	ids := make([]int64, len(r.lanes))
	for i, l := range r.lanes {
		names[i], times[i], ids[i] = l.parent.Recorded, l.after.consumeAfter, l.after.id
	}
	var due []string
	_, err := r.engine.Session.Run(ctx, batch.Statement{
		SQL: r.engine.Session.Names.Render(dueSQL), Args: []any{names, times, ids},
		Scan: func(rows pgx.Rows) (err error) {
			due, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("look for due tombstones: %w", err)
	}
	var active []*lane
	for _, l := range r.lanes {
		if slices.Contains(due, l.parent.Recorded) {
			active = append(active, l)
		}
	}
	return active, nil
}

// turn loads one batch of tombstones and gives every chunk of the lane one slice. It reports whether the
// lane may have more.
func (r *run) turn(ctx context.Context, l *lane) (bool, error) {
	fresh, err := r.load(ctx, l)
	if err != nil {
		return false, err
	}
	more := len(fresh) == loadSize
	queue := l.carried
	l.carried = nil
	var live []bool
	if len(fresh) > 0 {
		live = r.probe(ctx, l.parent, keysOf(l.parent, fresh))
		l.parent.sort(fresh)
	}
	for len(queue) > 0 || len(fresh) > 0 && !r.ended() {
		if len(queue) == 0 {
			// One chunk at a time: its size follows what the ones before it have taught.
			size := min(l.parent.chunkSize(live, r.statementRows), len(fresh))
			queue = []*chunk{r.newChunk(l.parent, fresh[:size], live)}
			fresh = fresh[size:]
		}
		c := queue[0]
		queue = queue[1:]
		r.pace.Await(ctx)
		if r.ended() {
			l.carried = append(l.carried, c)
			continue
		}
		left, err := r.slice(ctx, c)
		if err != nil {
			return false, err
		}
		if left.later != nil {
			l.carried = append(l.carried, left.later)
		}
		queue = append(left.next, queue...)
	}
	// What the run's end came before is for the next one: no mark may pass it.
	l.left = append(l.left, fresh...)
	return more || len(l.carried) > 0, nil
}

func (r *run) load(ctx context.Context, l *lane) ([]tombstone, error) {
	var fresh, foreign []tombstone
	_, err := r.engine.Session.Run(ctx, batch.Statement{
		SQL:  r.engine.Session.Names.Render(loadSQL),
		Args: []any{l.parent.Recorded, l.after.consumeAfter, l.after.id, loadSize},
		Scan: func(rows pgx.Rows) error {
			var t tombstone
			_, err := pgx.ForEachRow(rows, []any{&t.id, &t.consumeAfter, &t.integer, &t.text}, func() error {
				l.after = t.position
				if l.parent.fits(t, r.engine.Session.Conn.TypeMap()) {
					fresh = append(fresh, t)
				} else {
					foreign = append(foreign, t)
				}
				return nil
			})
			return err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("load tombstones of %s: %w", l.parent.Recorded, err)
	}
	if len(foreign) > 0 {
		f := fault.Fault{Table: l.parent.Label(), Message: "the tombstone's key is not of the type of column " + l.parent.label()}
		r.stats.fail(f)
		return fresh, r.blame(ctx, l.parent, foreign, f)
	}
	return fresh, nil
}

// probe tells which references have children of these keys. Where it cannot be told at once, all of them
// count as live, so that the error comes up where it can be blamed on one of them.
func (r *run) probe(ctx context.Context, parent *Parent, keys any) []bool {
	live, err := r.live(ctx, parent, keys, false)
	if err != nil {
		live = make([]bool, len(parent.References))
		for i, reference := range parent.References {
			live[i] = r.trouble(reference) == nil
		}
	}
	return live
}

// live tells which references have children of these keys. Those with trouble count as without.
// Late is for keys that nearly surely have none left, but have index entries of many that are gone.
func (r *run) live(ctx context.Context, parent *Parent, keys any, late bool) ([]bool, error) {
	live := make([]bool, len(parent.References))
	for _, database := range r.databases(parent) {
		sql, args := parent.probeStatement(database, keys)
		var found []bool
		var statements []batch.Statement
		if late {
			statements = append(statements, batch.Statement{SQL: bitmapOnly})
			sql += " AS late" // With a text of its own it gets a plan of its own.
		}
		statements = append(statements, batch.Statement{SQL: sql, Args: args, Scan: into(&found)})
		_, err := r.in(ctx, database, r.engine.Session.Limits, statements...)
		if err != nil {
			return nil, err
		}
		for i := range live {
			live[i] = live[i] || found[i]
		}
	}
	return live, nil
}

// into scans the one row of a probe.
func into(live *[]bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*live, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[[]bool])
		return err
	}
}

// keysOf returns the tombstones' keys in the form that statements take: []int64 or []string.
func keysOf(parent *Parent, tombstones []tombstone) any {
	if parent.Integer {
		keys := make([]int64, len(tombstones))
		for i, t := range tombstones {
			keys[i] = *t.integer
		}
		return keys
	}
	keys := make([]string, len(tombstones))
	for i, t := range tombstones {
		keys[i] = *t.text
	}
	return keys
}
