package loosefk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sexton/internal/batch"
	"sexton/internal/fault"
)

// A step with more rows than fit into one statement is divided among connections: by keys, or by places where its rows have a single key. Each
// part is a transaction with its own fence, probe of parents and timeouts, and takes the removal of its own tombstones along. So no tombstone goes
// before its children, and whichever parts go through, the rest of the step is still there.

// part is one transaction of a step.
type part struct {
	task       task
	tombstones []tombstone

	statements []batch.Statement
	// cleaning is the place of the statement on children, settling that of the first one on tombstones.
	cleaning, settling int
	counted            int64
	ended              settled

	rows int64
	took time.Duration
	err  error
}

// spread is by how much a chunk may be larger as its steps are divided, for which it connects further sessions. So many tombstones are there: what
// a single statement would do in all tables together stays in one piece.
func (r *run) spread(ctx context.Context, parent *Parent, live []bool, tombstones int) int {
	statements := 0.0
	for i, reference := range parent.References {
		if !live[i] {
			continue
		}
		unknown := reference.rowsPerParent == 0 && r.engine.Worth == 0
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

// parts divides a step of a chunk.
func (r *run) parts(c *chunk, t task, form pass, limit int, remove bool) []*part {
	n := 1
	if !t.reference.Remote {
		n = r.sessions.Free()
	}
	var all []*part
	switch {
	case form == direct && !t.reference.Remote && max(n, c.spread) > 1:
		// Also where other sessions have been left since: in one piece the chunk would be too much for the time of a statement.
		n = max(n, c.spread)
		// A part is worth its round trip from an eighth of a statement on.
		worth := cmp.Or(r.engine.Worth, float64(limit)/8)
		rows := float64(len(c.tombstones)) * cmp.Or(t.reference.rowsPerParent, 1)
		n = max(1, min(n, len(c.tombstones), int(rows/worth)))
		for some := range slices.Chunk(c.tombstones, (len(c.tombstones)+n-1)/n) {
			all = append(all, &part{task: t, tombstones: some})
		}
	case form == piecewise && t.walk.underWay():
		for i := range n {
			p := &part{task: t, tombstones: c.tombstones}
			p.task.walk.next += uint32(i) * t.walk.blocks(limit)
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
	keys := c.parent.doomed(t.reference, p.tombstones, c.anyway)
	if t.reference.exactly() {
		keys.Values = t.without
	}
	if t.reference.keepsAhead(form, p.tombstones) {
		keys.Keep.Ahead = t.leaf.OID
	}
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

// send runs the parts, as many at once as there are sessions now, each on its own. The run's own sends as it does a step of one piece.
// It reports whether some ran at once.
func (r *run) send(ctx context.Context, parts []*part, form pass, limits batch.Limits) (atOnce bool) {
	reference := parts[0].task.reference
	r.session(reference).Seen() // Of an earlier wait.
	unwatch := r.watch(ctx, reference.Database, form)
	free := 1
	if !reference.Remote {
		free = r.sessions.Free()
	}
	for some := range slices.Chunk(parts, free) {
		atOnce = atOnce || len(some) > 1
		r.sessions.Each(len(some), func(i int, on *batch.Session) {
			if i > 0 {
				some[i].done(on.RunWithin(ctx, limits, some[i].statements...))
			} else {
				on = r.session(reference)
				some[i].done(r.in(ctx, reference.Database, limits, some[i].statements...))
			}
			some[i].took = on.Took()
		})
	}
	unwatch()
	return atOnce
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

// absorb takes in the parts of a step that went through, in their order, and returns the first error of the others. apart reports that the rest of the
// step is to be done again, one part after the other: some ran at once, and may have met each other, or lost a connection that the run can do without.
func (r *run) absorb(ctx context.Context, c *chunk, t task, form pass, limit int, parts []*part, atOnce bool) (more, apart bool, err error) {
	for _, p := range parts {
		if p.err != nil {
			if err == nil {
				err = p.err
			}
			apart = atOnce && r.sessions.Met(fault.Judge(p.err)) || apart
			continue
		}
		full := (form == skipping || form == waiting) && p.rows >= int64(limit)
		// A window of locked rows alone is not read again before the waiting pass.
		full = full || p.rows > 0 && t.seen.Len() == limit
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
