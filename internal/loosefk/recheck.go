package loosefk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sexton/internal/batch"
)

const (
	// recheckPage is the rows that are read at once, recheckKeys the keys from which on a look takes no more rows, where a parent has few tables with
	// children: each key is looked for in each of them, recheckLooks in all, which is about what a statement may take.
	recheckPage  = 100
	recheckKeys  = 1000
	recheckLooks = 5000
	// lessBeside is by how much looks are smaller beside others: where keys have index entries of many rows that are gone, one takes some 40 ms.
	lessBeside = 4
	// leastRechecking is the time that rechecking has however long the run took: with a backlog that never ends,
	// nothing would be rechecked otherwise.
	leastRechecking = time.Second
	// putOffPause is how long rows wait whose look failed.
	putOffPause = 5 * time.Minute
	// strangersKept is how long rows wait for a definition of their parent.
	strangersKept = 7 * 24 * time.Hour
)

// work drains the queues and rechecks what was removed before. Children that came late are work for the queues.
func (r *run) work(ctx context.Context) error {
	for {
		if err := r.drain(ctx); err != nil {
			return err
		}
		last := r.ended()
		late := r.stats.LateChildren
		if err := r.recheck(ctx); err != nil {
			return fmt.Errorf("confirm removed tombstones: %w", err)
		}
		if last || r.stats.LateChildren == late {
			return nil
		}
	}
}

// rechecker rechecks in one run.
type rechecker struct {
	*run

	until time.Time
	// off are parents whose rows are put off.
	off map[string]bool
	// long are rows for looks that take longer than a run, longKeys their keys: such a look takes rows of many pages.
	long     []recheck
	longKeys int
}

// over reports whether no further look may begin.
func (c *rechecker) over() bool { return c.stop.Err() != nil || !time.Now().Before(c.until) }

// recheck takes the second look at parents behind the horizons, oldest first.
func (r *run) recheck(ctx context.Context) error {
	c := &rechecker{run: r, until: r.budget.until, off: map[string]bool{}}
	if least := time.Now().Add(leastRechecking); least.After(c.until) {
		c.until = least
	}
	closing, err := r.horizons(ctx)
	if err != nil || !closing.waits {
		return err
	}
	horizons, page := closing.horizons, closing.page
	for after := int64(0); !c.over() && c.longKeys < longKeys; {
		if after > 0 {
			if page, err = r.page(ctx, after, horizons); err != nil {
				return err
			}
		}
		var ready []recheck
		waiting := len(c.long)
		var unrecorded, held []int64
		for _, s := range page {
			after = s.id
			switch {
			case (s.early || s.open) && r.mostKeys(s) == longKeys:
				c.long, c.longKeys = append(c.long, s), c.longKeys+s.keys()
			case s.early || s.open:
				ready = append(ready, s)
			case s.unrecorded:
				unrecorded = append(unrecorded, s.id)
			case s.held:
				held = append(held, s.id)
			}
		}
		found := len(ready)+len(unrecorded)+len(held)+len(c.long)-waiting > 0
		if len(unrecorded) > 0 {
			if err := r.change(ctx, "record_prepared", unrecorded); err != nil {
				return err
			}
		}
		if len(held) > 0 {
			// A look in this database alone cannot tell that these have to wait.
			if err := r.change(ctx, "hold", held, horizons.retry.Seconds(), nil); err != nil {
				return err
			}
		}
		if err := c.lookAt(ctx, ready, c.over); err != nil {
			return err
		}
		// Older rows fall behind both horizons first, so there is nothing to find behind a page that has none ready.
		if len(page) < recheckPage || !found {
			break
		}
	}
	r.stats.ConfirmBlind = r.stats.ConfirmBlind || horizons.blind
	// However little time other parents leave, a long look begins and its answer is taken.
	return c.lookAt(ctx, c.long, func() bool { return c.stop.Err() != nil })
}

// lookAt looks at the children of rows, those of one parent together, the parent of the oldest row first. Rows that a finished
// long look was about come before all others, as the next look drops its answer.
func (c *rechecker) lookAt(ctx context.Context, rows []recheck, over func() bool) error {
	first := map[group]int{}
	for i := range rows {
		rows[i].looked = c.cursors.longLook(rows[i].parent).about(rows[i].id)
		if _, known := first[rows[i].group()]; !known {
			first[rows[i].group()] = i
			if rows[i].looked {
				first[rows[i].group()] = i - len(rows)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b recheck) int { return cmp.Compare(first[a.group()], first[b.group()]) })
	for len(rows) > 0 && !over() {
		most := c.mostKeys(rows[0])
		switch {
		case most == longKeys:
		case c.pace.Full():
			most *= c.sessions.Free() // Each takes a part.
		default:
			most /= lessBeside
		}
		size := together(rows, most)
		if err := c.look(ctx, rows[:size]); err != nil {
			return err
		}
		rows = rows[size:]
	}
	return nil
}

// group holds the common facts of rows of one look.
type group struct {
	parent          string
	integer, looked bool
}

func (s recheck) group() group { return group{s.parent, s.integers != nil, s.looked} }

// mostKeys are the keys from which on one look at the children of a row's parent takes no more.
func (r *run) mostKeys(s recheck) int {
	parent := r.parent(s)
	switch {
	case parent == nil:
		return recheckKeys
	case len(parent.long()) > 0:
		return longKeys
	}
	return min(recheckKeys, recheckLooks/max(1, len(parent.References)))
}

// together is how many of the first rows one look takes: those of one group.
func together(ready []recheck, most int) int {
	keys := 0
	for i, s := range ready {
		if i > 0 && (s.group() != ready[0].group() || keys >= most) {
			return i
		}
		keys += s.keys()
	}
	return len(ready)
}

// look looks for children of rows that have one parent. Where that fails the rows are looked at one by one, and
// tombstones that fail alone are put off.
func (c *rechecker) look(ctx context.Context, rows []recheck) error {
	if c.off[rows[0].parent] {
		return nil
	}
	parent := c.parent(rows[0])
	if parent == nil {
		return c.keepStrangers(ctx, rows)
	}
	began := time.Now()
	late, waits, err := c.recheckRows(ctx, parent, rows)
	switch {
	case err == nil && waits:
		c.off[parent.Recorded] = true
		return nil
	case err == nil:
		c.count(rows, late)
		if c.engine.Progress != nil {
			c.engine.Progress(ctx, c.stats)
		}
		if c.engine.Adaptive.on() {
			c.pace.Breathe(ctx, time.Since(began), 1)
		}
		return nil
	}
	f := c.judge(ctx, parent, err, parent.Label())
	switch {
	case f.Verdict == batch.Fatal:
		return err
	case f.Verdict == batch.Hopeless, len(rows) == 1, f.Verdict == batch.Timeout && parent.scans():
		c.stats.fail(f)
		return c.putOff(ctx, parent, rows, f)
	}
	for i := range rows {
		if c.over() {
			return nil
		}
		if err := c.look(ctx, rows[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// keepStrangers leaves rows whose parent no definition names, or one that does not fit it now, for the time when one does again. Of a
// parent that was given up they are forgotten some day.
func (c *rechecker) keepStrangers(ctx context.Context, rows []recheck) error {
	var kept, forgotten []int64
	for _, s := range rows {
		if s.forgotten {
			forgotten = append(forgotten, s.id)
		} else {
			kept = append(kept, s.id)
		}
	}
	if err := c.change(ctx, "forget", forgotten); err != nil {
		return err
	}
	return c.change(ctx, "hold", kept, putOffPause.Seconds(), nil)
}

// count adds rows of which so many keys came back.
func (r *run) count(rows []recheck, late int64) {
	for _, s := range rows {
		keys := int64(s.keys())
		r.stats.Confirmed += keys
		if s.early && !s.open {
			r.stats.ConfirmedEarly += keys
		}
	}
	r.stats.Confirmed -= late
	r.stats.LateChildren += late
}

// putOff leaves rows whose look failed for later, and with them all rows of the parent, unless the error may be
// about a single key. Rows that have waited for too long already are given up.
func (c *rechecker) putOff(ctx context.Context, parent *Parent, rows []recheck, f batch.Fault) error {
	var later, given []recheck
	_, unreadable := c.unreadable[parent]
	// Another database is away, or a definition does not fit for now.
	away := !unreadable && c.troubleOf(parent) != nil || strings.HasPrefix(f.SQLState, "53") // Or the server is short of locks or memory.
	for _, s := range rows {
		// What is slow, locked or away is looked at again for as long as it takes: a child may be there.
		if !away && (s.expired && f.Verdict != batch.Timeout && !f.Lock() || s.early && f.Verdict == batch.Hopeless) {
			given = append(given, s)
			c.stats.ConfirmedEarly += int64(s.keys())
		} else {
			later = append(later, s)
		}
	}
	if len(given) > 0 {
		if err := c.change(ctx, "forget", idsOf(given)); err != nil {
			return err
		}
	}
	var all *string
	if f.Verdict != batch.Row {
		all = &rows[0].stored
		c.off[rows[0].parent] = true
	}
	pause := putOffPause
	if look := c.cursors.longLook(rows[0].parent); f.Verdict == batch.Timeout && look != nil && look.over() && look.err != nil {
		pause = look.pause()
	}
	return c.change(ctx, "hold", idsOf(later), pause.Seconds(), all)
}

// recheckRows is the second look at the children of rows. It removes the rows, and brings back as tombstones the keys that
// have children and no parent, whose number it returns. If waits, it leaves them until a look that takes longer has ended.
func (r *run) recheckRows(ctx context.Context, parent *Parent, rows []recheck) (late int64, waits bool, err error) {
	if f := r.troubleOf(parent); f != nil {
		return 0, false, &batch.FaultError{Fault: *f}
	}
	// In nearly all cases there is no child at all, which one look per definition tells.
	rows, err = r.forget(ctx, parent, rows)
	if len(rows) == 0 {
		return 0, false, nil
	}
	keys := parent.keysOf(rows)
	var live []bool
	if err == nil {
		live, err = r.live(ctx, parent, keys, true)
	}
	if err != nil && batch.Judge(err).Verdict == batch.Timeout && !r.cursors.Brief && parent.tooLong() {
		live, err = r.live(ctx, parent, keys, true)
	}
	if err != nil {
		return 0, false, err
	}
	var look *longLook
	if !r.cursors.Brief && len(parent.long()) > 0 {
		if look, err = r.longLook(ctx, parent, rows, keys); look == nil || err != nil {
			return 0, true, err
		}
		if look.err != nil {
			return 0, false, look.failure()
		}
	}
	if !slices.Contains(live, true) && (look == nil || !look.found) {
		return 0, false, r.change(ctx, "forget", idsOf(rows))
	}
	remoteKeys, err := r.withChildren(ctx, r.engine.Session.Limits, parent, keys, parent.remote(live))
	if err != nil {
		return 0, false, err
	}
	if look != nil && look.found {
		remoteKeys = keys // It does not say which of them have children.
	}
	session := r.engine.Session
	sql, args := parent.lateStatement(session.Names, r.engine.Database, idsOf(rows), keys, remoteKeys, live, r.engine.Undo)
	_, err = session.Run(ctx, batch.Statement{SQL: sql, Args: args, Scan: batch.One(&late)})
	return late, false, err
}

// worthDividing is how many looks for children of one key in one table are a part of their own.
const worthDividing = 500

// forget removes rows where no reference has a child of their keys, and returns the others: look and removal are one statement where all children are
// in this database and none takes long to be looked for. Sessions that the run has connected take parts of the rows.
func (r *run) forget(ctx context.Context, parent *Parent, rows []recheck) (left []recheck, err error) {
	keys := 0
	for _, s := range rows {
		keys += s.keys()
	}
	for _, reference := range parent.References {
		if reference.Remote || !r.cursors.Brief && slices.Contains(parent.long(), reference) {
			return rows, nil
		}
	}
	parts := make([][]recheck, max(1, min(r.sessions.Free(), len(rows), keys*len(parent.References)/worthDividing)))
	in := make([]int, len(parts))
	for _, s := range rows {
		least := slices.Index(in, slices.Min(in))
		parts[least], in[least] = append(parts[least], s), in[least]+s.keys()
	}
	errs := make([]error, len(parts))
	forgotten := make([]bool, len(parts))
	r.sessions.Each(len(parts), func(i int, on *batch.Session) {
		var affected []int64
		sql, args := parent.forgetStatement(on.Names, r.engine.Database, idsOf(parts[i]), parent.keysOf(parts[i]))
		affected, errs[i] = on.Run(ctx, batch.Statement{SQL: bitmapOnly}, batch.Statement{SQL: sql, Args: args})
		forgotten[i] = errs[i] == nil && affected[1] > 0
	})
	r.sessions.Lost()
	for i, part := range parts {
		if !forgotten[i] {
			left = append(left, part...)
		}
	}
	return left, errs[0] // What fails on a further session is left to the run's own.
}
