package drain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// loadEvery is the interval at which a session that has no chunk loads tombstones
	// while other sessions work.
	loadEvery = 100 * time.Millisecond
	// busyLoadEvery is the interval at which tombstones are loaded while chunks wait for
	// a session.
	busyLoadEvery = 500 * time.Millisecond
	// idleLoadEvery is the interval at which tombstones are loaded while all chunks are
	// deferred for locks.
	idleLoadEvery = 250 * time.Millisecond
	// newChunksFor is how long a living parent's new chunks take precedence over its
	// returned chunks after a returned chunk was taken.
	newChunksFor = time.Second
	// firstLoad is the number of tombstones that one load reads per parent. mostLoad is
	// the number if the load reads only one parent.
	firstLoad, mostLoad = 500, 5000
)

// nextChunk returns the next chunk. If there is none, it waits while other sessions may
// still return one. At the end of the pass it returns nil.
func (s *session) nextChunk(ctx context.Context) (*chunk, error) {
	for {
		s.mu.Lock()
		c, wait, err := s.takeChunk(ctx)
		if c != nil {
			s.active++
			s.startAnother(ctx)
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

// loadAgain is the waiting time with which takeChunk requests another call immediately,
// to load more tombstones.
const loadAgain = time.Nanosecond

// takeChunk returns a chunk, or how long to wait for one. If it returns neither, the pass
// has no work left. It tries in turn: loaded and returned chunks, due tombstones after
// the last position, due tombstones from the beginning, tombstones marked for a recheck,
// tombstones to mark for a recheck, and tombstones that were deferred for a lock.
func (s *session) takeChunk(ctx context.Context) (*chunk, time.Duration, error) {
	if s.endedLocked() || s.oneSession && !s.first {
		return nil, 0, nil
	}
	if s.active == 0 && !s.hasChunk() || s.loadIsOld() {
		if err := s.load(ctx); err != nil {
			return nil, 0, err
		}
	}
	c := s.pickChunk()
	switch {
	case c != nil:
		return c, 0, nil
	case s.active > 0:
		return nil, loadEvery, nil
	case !s.queueEmpty || s.recheckDue:
		return nil, loadAgain, nil
	}
	moved, err := s.Source.Recheck(ctx, s.on)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("mark removed tombstones for a recheck: %w", err)
	case moved > 0:
		s.recheckDue = true
		return nil, loadAgain, nil
	}
	if wait := time.Until(s.resumeAt); wait > 0 {
		s.queueEmpty = false
		// New tombstones must not wait until the deferred ones are due.
		return nil, min(wait, idleLoadEvery), nil
	}
	return nil, 0, nil
}

// startAnother starts another session if a chunk waits and the pass may have more
// sessions.
func (s *session) startAnother(ctx context.Context) {
	p := s.Pass
	if p.started >= p.Connections || p.oneSession || p.othersActive.Load() || !p.hasChunk() {
		return
	}
	if on := p.connect(ctx); on != nil {
		p.startSession(ctx, on)
	} else {
		p.Connections = p.started // No connection is free. Do not try again.
	}
}

// pickChunk returns the next chunk of the parent that was served longest ago, or nil. It
// alternates returned chunks with new ones.
func (p *Pass) pickChunk() *chunk {
	var from *Parent
	for _, parent := range p.Parents {
		if parent.hasChunk() && (from == nil || parent.servedAt.Before(from.servedAt)) {
			from = parent
		}
	}
	if from == nil {
		return nil
	}
	from.servedAt = time.Now()
	if len(from.returned) > 0 && (len(from.loaded) == 0 || !from.newFirst) {
		c := from.returned[0]
		from.returned, from.newFirst, from.resumedAt = from.returned[1:], true, time.Now()
		return c
	}
	// A living parent has one chunk per key, and a large key is returned after each time
	// slice. Prefer new chunks for a while, so that each small key does not wait for a
	// time slice of a large one.
	from.newFirst = from.lives() && time.Since(from.resumedAt) < newChunksFor
	return from.newChunk(p.keysPerChunk(from))
}

// newChunk makes a chunk of the first loaded tombstones. It does not mix tombstones that
// are marked for a recheck with others, or parents that are saved for undo with others.
// The chunk may exceed size, since tombstones with the same key must be in one chunk: two
// chunks would lock the same rows.
func (p *Parent) newChunk(size int) *chunk {
	size = min(size, len(p.loaded))
	n, head := 1, p.loaded[0]
	for n < len(p.loaded) && (n < size || compareKeys(p.loaded[n-1], p.loaded[n]) == 0) {
		if t := p.loaded[n]; t.Recheck != head.Recheck || compareKept(t, head) != 0 {
			break
		}
		n++
	}
	c := &chunk{parent: p, tombstones: p.loaded[:n:n]}
	p.loaded = p.loaded[n:]
	return c
}

// keysPerChunk returns the number of keys of the parent's next chunk.
func (p *Pass) keysPerChunk(parent *Parent) int {
	if parent.lives() {
		return 1
	}
	if p.Target <= 0 {
		return p.Chunk
	}
	for _, e := range parent.Edges {
		if !e.indexed() {
			// Without an index, each statement scans the table once, whatever the number
			// of keys.
			return mostKeys
		}
	}
	return p.Sizes.get(parent.Name, firstKeys)
}

// load reads due tombstones of all parents that have none loaded, after the last position
// of each. If no parent had more after its position and no session works, it starts again
// from the beginning: transactions that committed late may have left tombstones before
// the position. If recheckDue is set, it then reads the tombstones that are marked for a
// recheck instead.
func (s *session) load(ctx context.Context) error {
	p := s.Pass
	fromStart := p.active == 0 && !p.hasChunk() && !slices.ContainsFunc(p.Parents,
		func(parent *Parent) bool { return parent.moreDue })
	var from []LoadPosition
	for _, parent := range p.Parents {
		if fromStart {
			parent.loadedTo = Beginning()
		}
		if len(parent.loaded) == 0 {
			from = append(from, LoadPosition{parent, parent.loadedTo})
		}
	}
	limit, recheck := firstLoad, p.recheckDue && fromStart
	switch {
	case p.Target <= 0:
		limit = p.Chunk
	case len(from) == 1:
		limit = mostLoad
	}
	found, err := p.Source.Load(ctx, s.on, from, limit, recheck)
	if err != nil {
		return fmt.Errorf("load tombstones: %w", err)
	}
	p.loadedAt, p.queueEmpty = time.Now(), fromStart
	if recheck {
		p.recheckDue = false
	}
	for _, position := range from {
		parent, loaded := position.Parent, found[position.Parent]
		full := len(loaded) == limit
		if parent.moreDue = full && !recheck; len(loaded) == 0 {
			continue
		}
		if recheck {
			p.recheckDue = p.recheckDue || full
		} else {
			parent.loadedTo = loaded[len(loaded)-1].Position
		}
		loaded = slices.DeleteFunc(loaded, func(t Tombstone) bool { return p.attempted[t.ID] })
		if !parent.lives() {
			slices.SortFunc(loaded, func(a, b Tombstone) int { return cmp.Or(compareKept(a, b), compareKeys(a, b)) })
		}
		if parent.loaded = loaded; len(loaded) > 0 {
			p.queueEmpty = false
		}
	}
	return nil
}

// compareKept orders tombstones whose parents are not saved for undo before tombstones
// whose parents are saved.
func compareKept(a, b Tombstone) int {
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

// hasChunk reports whether pickChunk would return a chunk.
func (p *Pass) hasChunk() bool { return slices.ContainsFunc(p.Parents, (*Parent).hasChunk) }

func (p *Parent) hasChunk() bool { return len(p.loaded)+len(p.returned) > 0 }

// loadIsOld reports whether tombstones should be loaded again, because the last load was
// too long ago.
func (p *Pass) loadIsOld() bool {
	every := loadEvery
	if p.hasChunk() {
		every = busyLoadEvery
	}
	return time.Since(p.loadedAt) >= every
}

// chunksWait reports whether the queue has a chunk. It loads new tombstones at intervals,
// so that a session that works on a long chunk finds them too.
func (s *session) chunksWait(ctx context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loadIsOld() {
		if err := s.load(ctx); err != nil {
			return false, err
		}
	}
	return s.hasChunk(), nil
}

// returnFirst returns chunks of one parent to the front of its queue.
func (p *Pass) returnFirst(chunks ...*chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	parent := chunks[0].parent
	parent.newFirst = false
	parent.returned = append(chunks, parent.returned...)
	p.signal()
}

// returnLast returns chunks of one parent to the end of its queue.
func (p *Pass) returnLast(chunks ...*chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	parent := chunks[0].parent
	parent.returned = append(parent.returned, chunks...)
	p.signal()
}

// parts is the number of chunks into which divide splits a chunk.
const parts = 8

// divide splits a chunk and returns the parts to the queue, so that a failing key is
// isolated after a few steps.
func (p *Pass) divide(c *chunk) {
	p.returnFirst(c.split((len(c.tombstones) + parts - 1) / parts)...)
}

// splitIntoKeys returns each key of a chunk to the queue as a chunk of its own, which is
// drained in pieces. Keys with few rows then do not wait for keys with many rows.
func (p *Pass) splitIntoKeys(c *chunk) {
	if len(c.tombstones) == 1 {
		c.inPieces = true
		p.returnLast(c)
		return
	}
	keys := c.split(1)
	for _, key := range keys {
		key.inPieces = true
	}
	p.returnLast(keys...)
}

// split splits a chunk into chunks of size tombstones.
func (c *chunk) split(size int) (chunks []*chunk) {
	for tombstones := range slices.Chunk(c.tombstones, size) {
		chunks = append(chunks, &chunk{
			parent: c.parent, tombstones: tombstones, lostConns: c.lostConns,
			foundRows: c.foundRows,
		})
	}
	return chunks
}
