package drain

import (
	"math"
	"sync"
	"time"
)

// firstKeys and firstRows are the sizes of transactions before a duration has been
// measured. mostKeys and mostRows limit the sizes.
const (
	firstKeys, mostKeys = 8, 5000
	firstRows, mostRows = 500, 50_000
)

// Sizes holds the sizes of chunks and pieces that the passes of one process have learned.
// The zero value is ready to use.
type Sizes struct {
	mu    sync.Mutex
	sizes map[string]*size
}

// size is the number of keys or rows for which a statement takes about the target time.
type size struct {
	n int
	// before and took are the size and duration of the last transaction. fixed is the
	// part of the duration that does not depend on the size.
	before      int
	took, fixed time.Duration
}

// get returns the number of keys or rows of the next transaction.
func (s *Sizes) get(name string, first int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(name, first).n
}

// of returns the size of that name. It creates it with first if it is new.
func (s *Sizes) of(name string, first int) *size {
	if s.sizes == nil {
		s.sizes = map[string]*size{}
	}
	if s.sizes[name] == nil {
		s.sizes[name] = &size{n: first}
	}
	return s.sizes[name]
}

// fixed returns the part of a transaction's duration that does not depend on its size.
func (s *Sizes) fixed(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(name, firstKeys).fixed
}

// learn adjusts the size after a transaction with n keys or rows.
func (s *Sizes) learn(name string, n int, took, target time.Duration, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	z := s.of(name, n)
	if n*2 < z.n {
		return // The last chunk of a queue is too short to learn from.
	}
	z.learn(n, took, target, most)
}

// learn scales the size to the target, by a factor of at most 2. If fewer keys took
// almost as long as more keys did before, most of the time is a fixed cost, such as the
// network or a statement trigger. The fixed cost is then subtracted. Otherwise chunks
// would shrink to a single key without becoming faster.
func (z *size) learn(n int, took, target time.Duration, most int) {
	z.fixed = min(z.fixed, took*9/10)
	if took-z.fixed > target && z.before > n && float64(took) > float64(z.took)*(0.6+0.4*float64(n)/float64(z.before)) {
		z.fixed = took * 9 / 10
		n = max(n, z.before)
	}
	z.before, z.took = n, took
	factor := float64(target) / float64(max(took-z.fixed, time.Microsecond))
	z.n = max(1, min(most, int(math.Round(float64(n)*min(2, max(0.5, factor))))))
}

// shrink halves the size after a timeout with n keys or rows.
func (s *Sizes) shrink(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	z := s.of(name, n)
	z.n = max(1, min(z.n, n/2))
}
