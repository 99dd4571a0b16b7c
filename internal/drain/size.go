package drain

import (
	"math"
	"sync"
	"time"
)

const (
	firstKeys, mostKeys = 8, 5000
	firstRows, mostRows = 500, 50_000
)

// Sizes are the sizes of chunks and pieces that passes of one process have found. The zero value is ready to use.
type Sizes struct {
	mu    sync.Mutex
	sizes map[string]*size
}

// size is a number of keys or rows whose statements take about a given time.
type size struct {
	n int
	// before and took are the last number and its time. fixed is the time that does not depend on the number.
	before      int
	took, fixed time.Duration
}

func (s *Sizes) get(name string, first int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(name, first).n
}

func (s *Sizes) of(name string, first int) *size {
	if s.sizes == nil {
		s.sizes = map[string]*size{}
	}
	if s.sizes[name] == nil {
		s.sizes[name] = &size{n: first}
	}
	return s.sizes[name]
}

// fixed returns the part of the time of a transaction that does not depend on its size.
func (s *Sizes) fixed(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(name, firstKeys).fixed
}

// learn sets the size after a transaction with n keys or rows.
func (s *Sizes) learn(name string, n int, took, target time.Duration, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	z := s.of(name, n)
	if n*2 < z.n {
		return // A short last chunk says nothing about the size.
	}
	z.learn(n, took, target, most)
}

// learn scales the size to the target, by a factor of 2 at most. If fewer keys took almost as long as more did before, most of
// the time is a fixed cost, such as the network or a statement trigger. It then no longer counts, or chunks would shrink to
// a single key without becoming faster.
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

// shrink divides the size after a timeout.
func (s *Sizes) shrink(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	z := s.of(name, n)
	z.n = max(1, min(z.n, n/2))
}
