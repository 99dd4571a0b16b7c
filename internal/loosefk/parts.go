package loosefk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"sexton/internal/batch"
)

// A task with more rows than fit into one statement is divided among connections: by keys, or by positions where its rows have a single key. Each
// part is a transaction with its own fence, probe of parents and timeouts, and takes the removal of its own tombstones along. So no tombstone goes
// before its children, and whichever parts go through, the rest of the task is still there.

// part is one transaction of a task.
type part struct {
	task       task
	tombstones []tombstone

	statements []batch.Statement
	limits     batch.Limits
	// cleaning is the index of the statement on children, settling that of the first one on tombstones.
	cleaning, settling int
	counted            int64
	ended              settled

	rows    int64
	took    time.Duration
	planned bool
	err     error
}

// divisor is by how much a chunk may be larger as its tasks are divided, for which it connects further sessions. So many tombstones are there: what
// a single statement would do in all tables together stays in one piece.
func (r *run) divisor(ctx context.Context, parent *Parent, live []bool, tombstones int) int {
	statements := 0.0
	for i, reference := range parent.References {
		if !live[i] {
			continue
		}
		unknown := reference.rowsPerParent == 0 && r.engine.Worth == 0
		if unknown && !reference.Remote && tombstones >= loadSize {
			// The statements begin small, but tables can go at once from the first chunk on, and be planned. The run may not know yet who else is there.
			r.pace.Breathe(ctx, 0, 1)
			r.sessions.Connect(ctx)
		}
		if unknown || reference.Remote || r.form(task{reference: reference}, direct) != direct {
			return 1
		}
		statements += float64(tombstones) * reference.rowsPerParent / float64(r.statementRows(reference))
	}
	if statements < fill && r.engine.Worth == 0 {
		return 1
	}
	r.sessions.Connect(ctx)
	return r.sessions.Free()
}

// parts divides a task of a chunk; while other tables keep the sessions busy, into no more than its rows need.
func (r *run) parts(c *chunk, t task, form pass, limit int, remove, busy bool) []*part {
	n := 1
	if !t.reference.Remote {
		n = r.sessions.Free()
	}
	var all []*part
	switch {
	case form == direct && !t.reference.Remote && max(n, c.divisor) > 1:
		// Also where other sessions have been left since: in one piece the chunk would be too much for the time of a statement.
		n = max(n, c.divisor)
		// A part is worth its round trip from an eighth of a statement on.
		worth := cmp.Or(r.engine.Worth, float64(limit)/8)
		rows := float64(len(c.tombstones)) * cmp.Or(t.reference.rowsPerParent, 1)
		if n = min(n, len(c.tombstones), int(rows/worth)); busy {
			n = min(n, int(math.Ceil(rows/float64(limit))))
		}
		n = max(1, n)
		for some := range slices.Chunk(c.tombstones, (len(c.tombstones)+n-1)/n) {
			all = append(all, &part{task: t, tombstones: some})
		}
	case form == piecewise && t.stretches.underWay():
		for i := range n {
			p := &part{task: t, tombstones: c.tombstones}
			p.task.stretches.next += uint32(i) * t.stretches.blocks(limit)
			all = append(all, p)
		}
	case form == piecewise:
		for window := range slices.Chunk(t.window[:min(n*limit, len(t.window))], limit) {
			p := &part{task: t, tombstones: c.tombstones}
			p.task.window = window
			all = append(all, p)
		}
	default:
		all = append(all, &part{task: t, tombstones: c.tombstones})
	}
	for _, p := range all {
		r.prepare(c, p, form, limit, remove)
	}
	return all
}

// prepare makes the statements of a part.
func (r *run) prepare(c *chunk, p *part, form pass, limit int, remove bool) {
	t := p.task
	keys := c.parent.targetKeys(t.reference, p.tombstones)
	if t.reference.exactly() {
		keys.Values = t.without
	}
	ahead := t.reference.keepsAhead(form, p.tombstones)
	if ahead {
		keys.Keep.Ahead = t.leaf.OID
	}
	p.limits = r.limits(t, form)
	p.limits.Repeatable = (form == direct || form == piecewise && !t.skips) && keys.Gone || ahead
	p.statements = r.statements(keys, t, form, limit)
	if keys.Keep != nil && keys.Keep.Ruled {
		keys.Keep = nil
		p.statements = append(p.statements, r.statements(keys, t, form, limit)...)
	}
	p.cleaning = len(p.statements) - 1
	clean := &p.statements[p.cleaning]
	clean.Scan, clean.Counts = t.reference.counts(keys.Keep, &p.counted), t.reference.figure(t.leaf)
	clean.Audit = r.audit(c.parent, t.reference, p.tombstones)
	if remove && form == direct {
		p.statements = append(p.statements, batch.Statement{SQL: bitmapOff})
	}
	p.settling = len(p.statements)
	if remove {
		p.statements = append(p.statements, r.settlement(c, p.tombstones, p.tombstones, true, c.exactWith(t, form), &p.ended)...)
	}
}

// mostAbreast is how many tables are worked on before the run looks again what else is there.
const mostAbreast = 16

// abreast does tasks on different tables at once, and returns the others: what has failed or is to be done alone, and the last one, which takes the
// removal along. The parts of one task, at once, wait for each other and meet in the pages of its table and indexes. A chunk with a table whose rows
// are told of is left: another table's native cascade may take such rows along before their own statement does.
func (r *run) abreast(ctx context.Context, c *chunk, tasks []task) []task {
	if slices.ContainsFunc(tasks, func(t task) bool { return t.reference.Tells }) {
		return tasks
	}
	for began := time.Now(); r.sessions.Free() > 1 && (!r.contended || time.Since(began) < round/2); {
		some, left := r.disjoint(c, tasks)
		if len(some) < 2 {
			return tasks
		}
		if r.pace.Await(ctx); r.ended() {
			return tasks
		}
		parts, longest := make([][]*part, len(some)), 0
		for i, t := range some {
			// The last ones are divided, so that all sessions are through at about the same time.
			parts[i] = r.parts(c, t, direct, r.limit(t, direct), false, i < len(some)-r.sessions.Free())
			longest = max(longest, len(parts[i]))
		}
		var all []*part
		for i := range longest {
			for _, one := range parts {
				all = append(all, one[min(i, len(one)):min(i+1, len(one))]...)
			}
		}
		atOnce := r.send(ctx, all, direct)
		var failed []task
		for i, t := range some {
			if _, _, err := r.absorb(ctx, c, t, direct, 0, parts[i], atOnce); err != nil {
				failed = append(failed, t) // Alone it is judged.
				continue
			}
			r.learn(ctx, c, t, direct, parts[i])
		}
		if tasks = slices.Concat(failed, left); len(failed) > 0 {
			return tasks
		}
	}
	return tasks
}

// disjoint takes tasks on different tables out of a list, but not its last one, where the statement of each takes all rows of its keys.
func (r *run) disjoint(c *chunk, tasks []task) (some, left []task) {
	for i, t := range tasks {
		_, open := r.breaker.open(t, c.how)
		same := slices.ContainsFunc(some, func(o task) bool { return o.reference.Child.OID == t.reference.Child.OID })
		if i == len(tasks)-1 || len(some) == mostAbreast || same || open || t.reference.Remote || r.form(t, c.how) != direct || r.obstacle(t, c.how) != nil {
			left = append(left, t)
		} else {
			some = append(some, t)
		}
	}
	return some, left
}

// learn notes how a task's parts went, which have all gone through.
func (r *run) learn(ctx context.Context, c *chunk, t task, form pass, parts []*part) {
	c.took(t, form)
	for _, p := range parts {
		r.steer(ctx, t, form, p.rows, p.took, p.planned)
	}
}

// send runs the parts, as many at once as there are sessions now, each on its own; whichever is through with one takes the next. The run's own sends
// as it does a task of one piece. It reports whether some ran at once.
func (r *run) send(ctx context.Context, parts []*part, form pass) (atOnce bool) {
	reference := parts[0].task.reference
	r.session(reference).Seen() // Of an earlier wait.
	unwatch := func() string { return "" }
	if form == waiting {
		unwatch = r.pace.Watch(ctx, reference.Database)
	}
	free := 1
	if !reference.Remote {
		free = min(r.sessions.Free(), len(parts))
	}
	var taken atomic.Int64
	taken.Store(int64(free))
	r.sessions.Each(free, func(i int, on *batch.Session) {
		if i == 0 {
			on = r.session(reference)
		}
		for at := int64(i); at < int64(len(parts)); at = taken.Add(1) - 1 {
			p := parts[at]
			if i > 0 {
				p.done(on.RunWithin(ctx, p.limits, p.statements...))
			} else {
				p.done(r.in(ctx, reference.Database, p.limits, p.statements...))
			}
			p.took, p.planned = on.Took(), on.Planned()
			if i > 0 && p.err != nil {
				return // Without its connection it would fail all that is left, faster than the others work.
			}
		}
	})
	unwatch()
	return free > 1
}

// done notes how a part has ended.
func (p *part) done(affected []int64, err error) {
	if failed, ok := errors.AsType[*batch.StatementError](err); ok && p.settling < len(p.statements) && failed.Index >= p.settling {
		err = fmt.Errorf("%w: %w", errRemoval, err)
	}
	if p.err = err; err != nil {
		return
	}
	if p.rows = affected[p.cleaning]; p.statements[p.cleaning].Scan != nil {
		p.rows = p.counted
	}
}

// absorb takes in the parts of a task that went through, in their order, and returns the first error of the others. apart reports that the rest of the
// task must be done again, one part after the other: some ran at once, and may have met each other, or lost a connection that the run can do without.
func (r *run) absorb(ctx context.Context, c *chunk, t task, form pass, limit int, parts []*part, atOnce bool) (more, apart bool, err error) {
	for _, p := range parts {
		if p.err != nil {
			if err == nil {
				err = p.err
			}
			apart = atOnce && r.sessions.Met(batch.Judge(p.err)) || apart
			continue
		}
		full := (form == skipping || form == waiting) && p.rows >= int64(limit)
		// A window of locked rows alone is not read again before the waiting pass.
		full = full || p.rows > 0 && len(t.seen) > 0 && len(t.seen) == limit
		more = more || full || form == piecewise // The look that finds nothing ends it.
		c.cleaned += p.rows
		r.remove(c, p.ended)
		r.cleaned(ctx, t, form, len(p.tombstones), p.rows, full)
	}
	if err != nil && atOnce && r.sessions.Lost() {
		apart = true
	}
	return more, apart, err
}
