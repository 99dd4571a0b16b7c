package drain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"sexton/internal/batch"
)

const (
	// lookEvery is how often a session without work looks for new tombstones while other
	// sessions work.
	lookEvery = 100 * time.Millisecond
	// busyLook is how often a session looks for new tombstones while chunks wait.
	busyLook = 500 * time.Millisecond
	// freshFor is how long new chunks of single keys are taken before chunks that were
	// returned to the queue.
	freshFor = time.Second
	// idleLook is how often a session looks for new tombstones while all chunks are
	// deferred for locks.
	idleLook = 250 * time.Millisecond
	// firstLoad is the number of tombstones that are loaded per parent. mostLoad is that
	// number if a single parent is loaded.
	firstLoad, mostLoad = 500, 5000
)

// next returns the next chunk. If there is none, it waits while other sessions may still
// return one. At the end of the pass it returns nil.
func (s *session) next(ctx context.Context) (*chunk, error) {
	for {
		s.mu.Lock()
		c, wait, err := s.take(ctx)
		if c != nil {
			s.active++
			s.more(ctx)
		}
		changed := s.changed
		s.mu.Unlock()
		if c != nil || err != nil || wait <= 0 {
			return c, err
		}
		timer := time.NewTimer(min(wait, max(0, time.Until(s.Pace.Until))))
		select {
		case <-changed:
		case <-timer.C:
		case <-s.Pace.Stop.Done():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// take returns a chunk, or how long to wait for one. If it returns neither, no work is
// left.
func (s *session) take(ctx context.Context) (*chunk, time.Duration, error) {
	p := s.Pass
	if p.over() || p.solo && !s.first {
		return nil, 0, nil
	}
	if err := s.look(ctx, p.active == 0 && !p.pending()); err != nil {
		return nil, 0, err
	}
	c := p.pick()
	switch {
	case c != nil:
		return c, 0, nil
	case p.active > 0:
		return nil, lookEvery, nil
	case !p.rewound || p.rechecks:
		return nil, time.Nanosecond, nil // Load again, from the beginning or those marked for a recheck.
	}
	moved, err := p.Source.Recheck(ctx, s.on)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("make removed tombstones due again: %w", err)
	case moved > 0:
		p.rechecks = true
		return nil, time.Nanosecond, nil
	}
	if wait := time.Until(p.resume); wait > 0 {
		p.rewound = false
		return nil, min(wait, idleLook), nil // New tombstones must not wait for that lock.
	}
	return nil, 0, nil
}

// pick returns the next chunk of the parent that was served longest ago, or nil.
func (p *Pass) pick() *chunk {
	var from *Parent
	for _, parent := range p.Parents {
		if len(parent.loaded)+len(parent.waiting) > 0 && (from == nil || parent.served.Before(from.served)) {
			from = parent
		}
	}
	if from == nil {
		return nil
	}
	from.served = time.Now()
	if len(from.waiting) > 0 && (len(from.loaded) == 0 || !from.fresh) {
		c := from.waiting[0]
		from.waiting, from.fresh, from.resumed = from.waiting[1:], true, time.Now()
		return c
	}
	// Living parents have many small chunks. They are not alternated with a large one.
	from.fresh = from.lives() && time.Since(from.resumed) < freshFor
	n := min(p.size(from), len(from.loaded))
	of := func(t Tombstone) bool {
		return t.Recheck == from.loaded[0].Recheck && (t.Origin == nil) == (from.loaded[0].Origin == nil)
	}
	if other := slices.IndexFunc(from.loaded[:n], func(t Tombstone) bool { return !of(t) }); other > 0 {
		n = other
	}
	for n < len(from.loaded) && of(from.loaded[n]) && compareKeys(from.loaded[n-1], from.loaded[n]) == 0 {
		n++ // Two chunks with the same key would lock the same rows.
	}
	c := &chunk{parent: from, tombstones: from.loaded[:n:n]}
	from.loaded = from.loaded[n:]
	return c
}

// size returns the number of keys of the parent's next chunk.
func (p *Pass) size(parent *Parent) int {
	if parent.lives() {
		return 1
	}
	if p.Target <= 0 {
		return p.Chunk
	}
	for _, e := range parent.Edges {
		if !e.indexed() {
			return mostKeys // One scan serves all of them.
		}
	}
	return p.Sizes.get(parent.Name, firstKeys)
}

// load reads due tombstones of all parents that have none loaded. It continues after the
// last position if the last load of some parent was full. Otherwise, if no session works,
// it starts again from the beginning. Transactions that committed late may have left
// tombstones before the position.
func (s *session) load(ctx context.Context) error {
	p := s.Pass
	var from []Spot
	rewind := p.active == 0 && !p.pending() && !slices.ContainsFunc(p.Parents, func(parent *Parent) bool { return parent.more })
	for _, parent := range p.Parents {
		if rewind {
			parent.after = Beginning()
		}
		if len(parent.loaded) == 0 {
			from = append(from, Spot{parent, parent.after})
		}
	}
	limit, rechecks := firstLoad, p.rechecks && rewind
	if len(from) == 1 || p.Target <= 0 {
		limit = mostLoad
	}
	if p.Target <= 0 {
		limit = p.Chunk
	}
	if rechecks {
		p.rechecks = false
	}
	found, err := p.Source.Load(ctx, s.on, from, limit, rechecks)
	if err != nil {
		return fmt.Errorf("load tombstones: %w", err)
	}
	p.loadedAt, p.rewound = time.Now(), rewind
	for _, spot := range from {
		parent, loaded := spot.Parent, found[spot.Parent]
		if parent.more = len(loaded) == limit; len(loaded) == 0 {
			continue
		}
		if rechecks {
			p.rechecks = p.rechecks || parent.more
			parent.more = false
		} else {
			parent.after = loaded[len(loaded)-1].Position
		}
		loaded = slices.DeleteFunc(loaded, func(t Tombstone) bool { return p.tried[t.ID] })
		if !parent.lives() {
			slices.SortFunc(loaded, func(a, b Tombstone) int { return cmp.Or(compareOrigins(a, b), compareKeys(a, b)) })
		}
		if parent.loaded = loaded; len(loaded) > 0 {
			p.rewound = false
		}
	}
	return nil
}

func compareOrigins(a, b Tombstone) int {
	switch {
	case (a.Origin == nil) == (b.Origin == nil):
		return 0
	case a.Origin == nil:
		return -1
	}
	return 1
}

func compareKeys(a, b Tombstone) int {
	return cmp.Or(cmp.Compare(a.Integer, b.Integer), cmp.Compare(a.Text, b.Text))
}

// more starts another session if there is work for it.
func (s *session) more(ctx context.Context) {
	p := s.Pass
	if p.started >= p.Connections || p.solo || p.othersActive.Load() || !p.pending() {
		return
	}
	if on := p.connect(ctx); on != nil {
		p.start(ctx, on)
	} else {
		p.Connections = p.started // No connection is free.
	}
}

// pending reports whether pick would return a chunk.
func (p *Pass) pending() bool {
	return slices.ContainsFunc(p.Parents, func(parent *Parent) bool { return len(parent.loaded)+len(parent.waiting) > 0 })
}

// waiting reports whether other chunks wait for this session. It also looks for new
// tombstones from time to time.
func (s *session) waiting(ctx context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.look(ctx, false); err != nil {
		return false, err
	}
	return s.pending(), nil
}

// look loads tombstones if the last load is too long ago, or if now is set.
func (s *session) look(ctx context.Context, now bool) error {
	every := lookEvery
	if s.pending() {
		every = busyLook
	}
	if !now && time.Since(s.loadedAt) < every {
		return nil
	}
	return s.load(ctx)
}

// giveBack returns chunks to the queue of their parent. With first they are put at its
// front.
func (p *Pass) giveBack(first bool, chunks ...*chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range chunks {
		if first {
			c.parent.fresh = false
		}
	}
	if parent := chunks[0].parent; first {
		parent.waiting = append(chunks, parent.waiting...)
	} else {
		parent.waiting = append(parent.waiting, chunks...)
	}
	p.signal()
}

// parts is the number of chunks that divide makes of one.
const parts = 8

// divide returns a chunk to the queue in parts, so that a failing key is isolated after a
// few steps.
func (p *Pass) divide(c *chunk) {
	size := (len(c.tombstones) + parts - 1) / parts
	var divided []*chunk
	for part := range slices.Chunk(c.tombstones, size) {
		divided = append(divided, &chunk{parent: c.parent, tombstones: part, lost: c.lost, found: c.found})
	}
	p.giveBack(true, divided...)
}

const (
	// shortestWait and longestWait limit how long a tombstone is deferred whose rows are
	// locked. The time doubles with each failure.
	shortestWait, longestWait = time.Second, 15 * time.Second
	// heldFor is how long tombstones are deferred until an operator has fixed the cause.
	heldFor = time.Minute
)

// block records that other sessions hold locks on rows of a leaf, or on the table.
type block struct {
	until  time.Time
	length time.Duration
	reason string
	// table reports that the whole table is locked, so that no row can be changed.
	table bool
}

func (b *block) waits() bool { return b != nil && time.Now().Before(b.until) }

// block records that other sessions hold locks on rows of the edge or, with table, on its
// table. While an earlier block lasts, it only adds table to it.
func (p *Pass) block(e *Edge, reason string, table bool) *block {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.blocked.waits() {
		e.blocked.table = e.blocked.table || table
		return e.blocked
	}
	length := shortestWait
	if e.blocked != nil {
		length = min(2*e.blocked.length, longestWait)
	}
	e.blocked = &block{until: time.Now().Add(length), length: length, reason: reason, table: table}
	return e.blocked
}

// postpone defers tombstones because of a lock, without an attempt. They are loaded again
// when they are due.
func (s *session) postpone(ctx context.Context, c *chunk, reason string) error {
	s.mu.Lock()
	longest := time.Duration(0)
	for _, t := range c.tombstones {
		s.waits[t.ID] = min(max(2*s.waits[t.ID], shortestWait), longestWait)
		longest = max(longest, s.waits[t.ID])
	}
	s.held = reason
	if s.Report.Waits != nil {
		s.Report.Waits(ctx, reason)
	}
	s.mu.Unlock()
	err := s.record(ctx, c, batch.Fault{Message: reason, Verdict: batch.LockTimeout}, longest)
	s.mu.Lock()
	defer s.mu.Unlock()
	if resume := time.Now().Add(longest + lookEvery); resume.After(s.resume) {
		s.resume = resume
	}
	return err
}

// deferHeld defers tombstones that cannot be finished until an operator has fixed the
// cause. It records no attempt and reports each cause once.
func (s *session) deferHeld(ctx context.Context, c *chunk, f batch.Fault) error {
	f.Verdict = batch.Unavailable
	s.mu.Lock()
	if !s.reported[f.Text()] {
		s.reported[f.Text()] = true
		s.Report.Failed(f)
	}
	s.mu.Unlock()
	return s.record(ctx, c, f, heldFor)
}

// attempt records a failed attempt for the chunk's tombstones. They are not tried again
// in this pass.
func (s *session) attempt(ctx context.Context, c *chunk, f batch.Fault) error {
	s.mu.Lock()
	for _, t := range c.tombstones {
		s.tried[t.ID] = true
	}
	s.Report.Failed(f)
	s.mu.Unlock()
	return s.record(ctx, c, f, 0)
}

func (s *session) record(ctx context.Context, c *chunk, f batch.Fault, after time.Duration) error {
	if err := s.Source.Fail(ctx, s.on, c.parent, c.tombstones, f, after); err != nil {
		return fmt.Errorf("record failed attempts: %w", err)
	}
	return nil
}
