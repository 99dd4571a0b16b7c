package groupdelete

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/fault"
	"sexton/internal/pace"
	"sexton/internal/pgcatalog"
)

type place = pgtype.TID

const (
	// windowRows is the most rows that are read at once where nothing hangs below them, firstWindow and largestWindow the
	// first and the most whose trees are taken down together.
	windowRows    = 10_000
	firstWindow   = 50
	largestWindow = 500
	// windowsOfChain is how many windows of rows that hang below each other are read at once.
	windowsOfChain = 4
	// mostExcluded is how many rows a look may leave out that cannot go for now. With more than that the rest waits as well.
	mostExcluded = 10_000
	// mostRounds is how often rows may be found again that were done. Nobody writes that fast for long; a trigger that puts
	// rows back does.
	mostRounds = 1000
)

// clear takes down what hangs below a window's rows by some of the keys that refer to them. finished means that nothing was
// left when each of them was looked at last; whoever deletes the rows looks again.
func (r *run) clear(ctx context.Context, w *window, refs []*ref) (result, error) {
	if len(refs) == 0 {
		return finished, nil
	}
	r.stack = append(r.stack, w)
	if len(r.stack) > r.deepest {
		r.deepest, r.lowest = len(r.stack), w.table
	}
	defer func() { r.stack = r.stack[:len(r.stack)-1] }()
	for range mostRounds {
		if r.paused(ctx) {
			return yielded, nil
		}
		// A single key is looked at where its rows are read.
		live, err := refs, error(nil)
		if len(refs) > 1 {
			live, err = r.look(ctx, w, refs)
		}
		if err != nil {
			w.table.window = max(1, w.table.window/pace.Leash) // The next look is at fewer, should there have been too many.
			return r.stumble(err, w.table.Label())
		}
		if len(live) == 0 {
			return finished, nil
		}
		before, ended := r.changes, finished
		for _, f := range live {
			for _, leaf := range f.leaves {
				result, err := r.drain(ctx, w, f, leaf)
				if err != nil || result == yielded {
					return result, err
				}
				ended = max(ended, result)
			}
		}
		switch {
		case ended == finished:
			return finished, nil
		case r.changes == before:
			return r.verify(ctx, w, refs)
		}
	}
	if r.fault == nil {
		r.fault = &fault.Fault{Table: w.table.Label(), Message: "rows below come back as fast as they are taken away: a trigger puts them there"}
	}
	return blocked, nil
}

// verify tells whether rows that have been passed over are below the window's, or below others.
func (r *run) verify(ctx context.Context, w *window, refs []*ref) (result, error) {
	live, err := r.look(ctx, w, refs)
	if err != nil {
		return r.stumble(err, w.table.Label())
	}
	if len(live) == 0 {
		return finished, nil
	}
	return blocked, nil
}

// look returns the keys by which rows refer to any of the window's.
func (r *run) look(ctx context.Context, w *window, refs []*ref) ([]*ref, error) {
	found, err := read(ctx, r, pgx.RowTo[[]bool], lookStatement(w.leaf, refs), w.rows.at, w.rows.version)
	if err != nil {
		return nil, err
	}
	r.adapt(w.table, r.session.Took())
	var live []*ref
	for i, f := range refs {
		if found[0][i] {
			live = append(live, f)
		}
	}
	return live, nil
}

// adapt finds the number of rows of a table that can be looked below at once.
func (r *run) adapt(t *table, took time.Duration) {
	switch {
	case took > r.steer.Target:
		t.window = max(1, t.window/2)
	case took < r.steer.Target/2:
		t.window = min(largestWindow, t.window*2)
	}
}

// drain works off the rows of one key, in one of its leaves, that refer to a window's. What cannot go for now it leaves.
func (r *run) drain(ctx context.Context, w *window, f *ref, leaf pgcatalog.Table) (result, error) {
	if f.action == forbid {
		return blocked, r.note(ctx, w, f)
	}
	// Rows that are left out may be below the window's.
	stuck := slices.Clone(r.failed[leaf.OID])
	if f.chain {
		stuck = append(stuck, r.waiting[leaf.OID]...)
	}
	through := finished
	if len(stuck) > 0 {
		through = blocked
	}
	for len(stuck) < mostExcluded {
		if r.paused(ctx) {
			return yielded, nil
		}
		size := r.windowOf(f, leaf)
		limit := size
		if f.chain {
			limit *= windowsOfChain
		}
		found, err := r.children(ctx, w, f, leaf, stuck, limit)
		if err != nil {
			return r.stumble(err, f.table.Label())
		}
		fresh := found
		if f.action == remove {
			onStack := r.onStack(leaf, found)
			fresh, stuck = found.without(onStack), append(stuck, onStack...)
		}
		if f.chain {
			fresh.reverse() // Those furthest below go first.
		}
		idle, left, result, err := r.workOffAll(ctx, f, &window{table: f.table, leaf: leaf, rows: fresh}, size)
		if err != nil || result == yielded {
			return result, err
		}
		if len(idle) > 0 {
			stuck, through = append(stuck, idle...), blocked
		}
		if !left && found.len() < limit {
			return through, nil // Whoever deletes the row above looks again.
		}
	}
	return blocked, nil
}

// workOffAll works off rows by so many at a time. It returns the places of those of which none moved, and whether any others
// are left.
func (r *run) workOffAll(ctx context.Context, f *ref, all *window, size int) (idle []place, some bool, _ result, _ error) {
	for at := 0; at < all.rows.len(); at += size {
		before := r.changes
		w := &window{table: all.table, leaf: all.leaf, rows: all.rows.slice(at, min(at+size, all.rows.len()))}
		left, result, err := r.workOff(ctx, f, w)
		switch {
		case err != nil || result == yielded:
			return nil, false, result, err
		case r.changes > before:
			some = some || left.len() > 0
		case f.chain:
			// All that are above them would try them again, and those above these.
			r.waiting[all.leaf.OID] = append(r.waiting[all.leaf.OID], left.at...)
			fallthrough
		default:
			idle = append(idle, left.at...)
		}
	}
	return idle, some, finished, nil
}

// workOff deletes or changes a window's rows, after what hangs below them. It returns those that are left.
func (r *run) workOff(ctx context.Context, f *ref, w *window) (rows, result, error) {
	if f.action != remove {
		return r.change(ctx, f, w)
	}
	if result, err := r.clear(ctx, w, w.table.refsOf(w.leaf)); err != nil || result == yielded {
		return w.rows, result, err
	}
	before := r.changes
	left, result, err := r.remove(ctx, w)
	if err != nil || result == yielded || r.changes > before || !r.patient {
		return left, result, err
	}
	if f.chain && len(r.waiting[w.leaf.OID]) > 0 {
		return left, blocked, nil // These are above rows that could not be uprooted, or may be.
	}
	return r.uproot(ctx, w, left)
}

// windowOf is how many rows of a key are read at once.
func (r *run) windowOf(f *ref, leaf pgcatalog.Table) int {
	if f.action == remove && len(f.table.refsOf(leaf)) > 0 {
		if f.table.window == 0 {
			f.table.window = firstWindow
		}
		return int(f.table.window)
	}
	return windowRows
}

// onStack are those rows of a leaf whose trees are being taken down: they go when nothing below them is left, and not as
// something that hangs below themselves. The stack may be deep, so it is passed through only, and never sent.
func (r *run) onStack(leaf pgcatalog.Table, found rows) []place {
	among := make(map[place]bool, found.len())
	for _, at := range found.at {
		among[at] = true
	}
	var places []place
	for _, w := range r.stack {
		if w.leaf.OID != leaf.OID {
			continue
		}
		for _, at := range w.rows.at {
			if among[at] {
				places = append(places, at)
			}
		}
	}
	return places
}

func (r *run) children(ctx context.Context, w *window, f *ref, leaf pgcatalog.Table, except []place, limit int) (rows, error) {
	if except == nil {
		except = []place{}
	}
	var found rows
	var at place
	var version uint32
	sql := childrenStatement(w.leaf, f, leaf)
	if f.chain {
		sql = chainStatement(leaf, f)
	}
	defer func() { r.adapt(w.table, r.session.Took()) }()
	_, err := read(ctx, r, func(row pgx.CollectableRow) (struct{}, error) {
		err := row.Scan(&at, &version)
		found.at, found.version = append(found.at, at), append(found.version, version)
		return struct{}{}, err
	}, sql, w.rows.at, w.rows.version, except, limit)
	return found, err
}

// note remembers that rows of a key forbid a deletion, as the reason should nothing move any more.
func (r *run) note(ctx context.Context, w *window, f *ref) error {
	if r.obstacle.Message != "" {
		return nil
	}
	shown, err := read(ctx, r, pgx.RowTo[string], sampleStatement(w.leaf, f), w.rows.at, w.rows.version)
	if err != nil {
		_, err := r.stumble(err, f.table.Label())
		return err
	}
	if len(shown) > 0 {
		r.obstacle = fault.Fault{Table: f.table.Label(), Message: forbids(f, w.table, shown[0])}
	}
	return nil
}

// forbids says what stands in the way, to people.
func forbids(f *ref, t *table, shown string) string {
	why := "has no action for it"
	if len(f.set) > 0 && f.setNull {
		why = "sets NULL what is NOT NULL"
	}
	return fmt.Sprintf("the row with %s refers to %s, and foreign key %s %s", shown, t.Label(), f.constraint, why)
}
