package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/pace"
	"sexton/internal/pgcatalog"
)

const (
	// windowRows is the most rows that are read at once where nothing hangs below them, firstWindow and largestWindow the
	// first and the most whose trees are taken down together.
	windowRows    = 10_000
	firstWindow   = 50
	largestWindow = 2000
	// windowsOfChain is how many windows of rows that hang below each other are read at once.
	windowsOfChain = 4
	// mostExcluded is how many rows a look may leave out that cannot go for now. With more than that the rest waits as well.
	mostExcluded = 10_000
	// MostRounds is how often rows may be found again that were done. No application writes that fast for long; a trigger that puts
	// rows back does.
	MostRounds = 20
	// mostTurns is how often one Clear may begin again: rows of several keys may have to go in turns, as each forbids the end of others.
	mostTurns = 1000
)

// Clear takes down what hangs below a window's rows by some of the keys that refer to them. Finished means that nothing was
// left when each of them was looked at last; the caller that deletes the rows looks again.
func (r *Run) Clear(ctx context.Context, w *Window, refs []*Ref) (Result, error) {
	if len(refs) == 0 {
		return Finished, nil
	}
	r.Stack = append(r.Stack, w)
	if len(r.Stack) > r.Deepest {
		r.Deepest, r.Lowest = len(r.Stack), w.Table
	}
	defer func() { r.Stack = r.Stack[:len(r.Stack)-1] }()
	var live []*Ref
	for range mostTurns {
		if r.Paused(ctx) {
			return Yielded, nil
		}
		// A single key is looked at where its rows are read.
		var err error
		live = refs
		if len(refs) > 1 {
			live, err = r.look(ctx, w, refs)
		}
		if err != nil {
			w.Table.window = max(1, w.Table.window/pace.Leash) // The next look is at fewer, should there have been too many.
			return r.Handle(err, w.Table.Label())
		}
		if len(live) == 0 {
			return Finished, nil
		}
		before, ended := r.Changes, Finished
		for _, f := range live {
			for _, leaf := range f.leaves {
				result, err := r.drain(ctx, w, f, leaf)
				switch {
				case err != nil || result == Yielded:
					return result, err
				case w.Spins:
					r.Blame(ComeBack(f))
					return Blocked, nil
				}
				ended = max(ended, result)
			}
		}
		switch {
		case ended == Finished:
			return Finished, nil
		case r.Changes == before:
			return r.verify(ctx, w, refs)
		}
	}
	w.Spins = true
	r.Blame(ComeBack(live[0]))
	return Blocked, nil
}

// ComeBack is the fault of a key whose rows are there again as fast as they go.
func ComeBack(f *Ref) batch.Fault {
	const message = "rows come back as fast as they are taken away: a trigger puts them there, or an application that does not stop"
	return batch.Fault{Table: f.Table.Label(), Message: message, Verdict: batch.Row}
}

// spun reports that a window's rows are given up, of which none has gone after Clear. It counts how often rows came in below them between the look that
// found none and the deletion.
func (r *Run) spun(ctx context.Context, w *Window, refs []*Ref) (bool, error) {
	t := w.Table
	live, err := r.look(ctx, w, refs)
	if err != nil || len(live) == 0 {
		return false, err // The rows themselves are locked, or have changed since they were read.
	}
	if t.rounds++; t.rounds <= MostRounds && !w.Spins {
		return false, nil
	}
	t.rounds = 0
	if !w.Spins { // Else Clear has blamed them.
		r.Blame(ComeBack(live[0]))
	}
	r.Failed[w.Leaf.OID] = append(r.Failed[w.Leaf.OID], w.Rows.tuples()...)
	return true, nil
}

// verify reports whether rows that have been passed over are below the window's, or below others.
func (r *Run) verify(ctx context.Context, w *Window, refs []*Ref) (Result, error) {
	live, err := r.look(ctx, w, refs)
	if err != nil {
		return r.Handle(err, w.Table.Label())
	}
	if len(live) == 0 {
		return Finished, nil
	}
	return Blocked, nil
}

// look returns the keys by which rows refer to any of the window's.
func (r *Run) look(ctx context.Context, w *Window, refs []*Ref) ([]*Ref, error) {
	found, err := Query(ctx, r, pgx.RowTo[[]bool], lookStatement(w.Leaf, refs), w.Rows.Args()...)
	if err != nil {
		return nil, err
	}
	r.adapt(w.Table, r.Session.Took())
	var live []*Ref
	for i, f := range refs {
		if found[0][i] {
			live = append(live, f)
		}
	}
	return live, nil
}

// adapt finds the number of rows of a table that can be looked below at once.
func (r *Run) adapt(t *Table, took time.Duration) {
	switch {
	case took > r.Steer.Target:
		t.window = max(1, t.window/2)
	case took < r.Steer.Target/2:
		t.window = min(largestWindow, t.window*2)
	}
}

// drain works off the rows of one key, in one of its leaves, that refer to a window's. What cannot go for now it leaves.
func (r *Run) drain(ctx context.Context, w *Window, f *Ref, leaf pgcatalog.Table) (Result, error) {
	if f.Action == Forbid {
		return Blocked, r.note(ctx, w, f)
	}
	if !r.Waits && r.sweepable(f) {
		left, result, err := r.sweep(ctx, w, []branch{{f, leaf}}, false)
		if err != nil || result == Yielded || len(left) == 0 || w.Spins {
			return result, err
		}
	}
	// Rows that are left out may be below the window's.
	stuck := append([]Tuple{}, r.Failed[leaf.OID]...)
	known := len(stuck)
	if f.chain {
		stuck = append(stuck, r.Waiting[leaf.OID]...)
	}
	through, back := Finished, Tide{}
	if len(stuck) > 0 {
		through = Blocked
	}
	for len(stuck) < mostExcluded {
		if r.Paused(ctx) {
			return Yielded, nil
		}
		size := r.windowOf(f, leaf)
		limit := size
		if f.chain {
			limit *= windowsOfChain
		}
		found, err := r.children(ctx, w, f, leaf, stuck, limit)
		if err != nil {
			return r.Handle(err, f.Table.Label())
		}
		fresh := found
		if f.Action == Remove {
			onStack := r.onStack(leaf, found)
			fresh, stuck = found.without(onStack), append(stuck, onStack...)
			if len(onStack) > 0 {
				through = Blocked // A ring: they refer to the window until all of it goes together.
			}
		}
		if f.chain {
			slices.Reverse(fresh) // Those furthest below go first.
		}
		idle, done, result, err := r.workOffAll(ctx, f, &Window{Table: f.Table, Leaf: leaf, Rows: fresh}, size)
		if err != nil || result == Yielded {
			return result, err
		}
		left := done+len(idle) < len(fresh)
		idle, known = append(idle, r.Failed[leaf.OID][known:]...), len(r.Failed[leaf.OID])
		if len(idle) > 0 {
			stuck, through = append(stuck, idle...), Blocked
		}
		if !left && len(found) < limit {
			return through, nil // The caller that deletes the row above looks again.
		}
		if w.Spins = r.turns(ctx, &back, int64(done), w, f, leaf, stuck); w.Spins {
			break
		}
	}
	return Blocked, nil
}

// workOffAll works off rows by so many at a time. It returns the tuples of windows of which none moved, and how many rows are done with.
func (r *Run) workOffAll(ctx context.Context, f *Ref, all *Window, size int) (idle []Tuple, done int, _ Result, _ error) {
	for at := 0; at < len(all.Rows); at += size {
		before := r.Changes
		w := &Window{Table: all.Table, Leaf: all.Leaf, Rows: all.Rows[at:min(at+size, len(all.Rows))]}
		left, result, err := r.workOff(ctx, f, w)
		done += len(w.Rows) - len(left)
		switch {
		case err != nil || result == Yielded:
			return nil, 0, result, err
		case r.Changes > before:
		case f.chain:
			// All that are above them would try them again, and those above these.
			r.Waiting[all.Leaf.OID] = append(r.Waiting[all.Leaf.OID], left.tuples()...)
			fallthrough
		default:
			idle = append(idle, left.tuples()...)
		}
	}
	return idle, done, Finished, nil
}

// Take deletes a window's rows, after what hangs below them. It returns the ones that are left.
func (r *Run) Take(ctx context.Context, w *Window) (Rows, Result, error) {
	return r.workOff(ctx, &Ref{Action: Remove, Table: w.Table}, w)
}

// workOff deletes or changes a window's rows, after what hangs below them. It returns the ones that are left.
func (r *Run) workOff(ctx context.Context, f *Ref, w *Window) (Rows, Result, error) {
	if f.Action != Remove {
		return r.change(ctx, f, w)
	}
	refs := w.Table.RefsOf(w.Leaf)
	if branches := r.branches(w, refs); len(branches) > 0 {
		left, result, err := r.sweep(ctx, w, branches, true)
		if err != nil || result == Yielded || len(left) == 0 {
			return left, result, err
		}
		w = &Window{Table: w.Table, Leaf: w.Leaf, Rows: left}
	}
	before := r.Changes
	cleared, err := r.Clear(ctx, w, refs)
	if err != nil || cleared == Yielded {
		return w.Rows, cleared, err
	}
	changed := r.Changes > before
	before = r.Changes
	left, result, err := r.remove(ctx, w)
	if r.Changes > before {
		w.Table.rounds = 0
	}
	if err != nil || result == Yielded || r.Changes > before {
		return left, result, err
	}
	if result == Finished && (changed && cleared == Finished || w.Spins) {
		given, err := r.spun(ctx, &Window{Table: w.Table, Leaf: w.Leaf, Rows: left, Spins: w.Spins}, refs)
		if err != nil {
			result, err := r.Handle(err, w.Table.Label())
			return left, result, err
		}
		if given {
			return left, Blocked, nil
		}
	}
	if !r.Waits {
		return left, result, nil
	}
	if f.chain && len(r.Waiting[w.Leaf.OID]) > 0 {
		return left, Blocked, nil // These are above rows that could not be uprooted, or may be.
	}
	left, result, err = r.breakRings(ctx, w, left)
	if r.Changes > before {
		w.Table.rounds = 0
	}
	return left, result, err
}

// windowOf is how many rows of a key are read at once.
func (r *Run) windowOf(f *Ref, leaf pgcatalog.Table) int {
	if f.Action == Remove && len(f.Table.RefsOf(leaf)) > 0 {
		if f.Table.window == 0 {
			f.Table.window = firstWindow
		}
		return int(f.Table.window)
	}
	return windowRows
}

// onStack are those rows of a leaf whose trees are being taken down: they go when nothing below them is left, and not as
// something that hangs below themselves. The stack may be deep, so it is passed through only, and never sent.
func (r *Run) onStack(leaf pgcatalog.Table, found Rows) []Tuple {
	among := make(map[Tuple]bool, len(found))
	for _, row := range found {
		among[row.At] = true
	}
	var tuples []Tuple
	for _, w := range r.Stack {
		if w.Leaf.OID != leaf.OID {
			continue
		}
		for _, row := range w.Rows {
			if among[row.At] {
				tuples = append(tuples, row.At)
			}
		}
	}
	return tuples
}

func (r *Run) children(ctx context.Context, w *Window, f *Ref, leaf pgcatalog.Table, except []Tuple, limit int) (Rows, error) {
	if except == nil {
		except = []Tuple{}
	}
	defer func() { r.adapt(w.Table, r.Session.Took()) }()
	return r.Versions(ctx, readStatement(w.Leaf, f, leaf), w.Rows.Args(except, limit)...)
}

// readStatement is the one that reads rows of the key in one of its leaves.
func readStatement(leaf pgcatalog.Table, f *Ref, in pgcatalog.Table) string {
	if f.chain {
		return chainStatement(in, f)
	}
	return childrenStatement(leaf, f, in)
}

// note remembers that rows of a key forbid a deletion, as the reason should nothing move any more.
func (r *Run) note(ctx context.Context, w *Window, f *Ref) error {
	if r.Obstacle.Message != "" {
		return nil
	}
	shown, err := Query(ctx, r, pgx.RowTo[string], sampleStatement(w.Leaf, f), w.Rows.Args()...)
	if err != nil {
		_, err := r.Handle(err, f.Table.Label())
		return err
	}
	if len(shown) > 0 {
		r.Obstacle = batch.Fault{Table: f.Table.Label(), Message: f.Forbids(w.Table, shown[0])}
	}
	return nil
}

// Forbids says to people that a row, which is shown, keeps one of the table that the key refers to.
func (f *Ref) Forbids(t *Table, shown string) string {
	why := "has no action for it"
	if len(f.set) > 0 && f.setNull {
		why = "sets NULL what is NOT NULL"
	}
	return fmt.Sprintf("the row with %s refers to %s, and foreign key %s %s", shown, t.Label(), f.Constraint, why)
}
