package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/latency"
	"sexton/internal/pgschema"
	"sexton/internal/sleep"
)

// shortestLook is the pause between two looks at what waits where that costs next to nothing; it is by
// how much a time can be too long. Looking takes a tenth of the time at most.
const shortestLook = 2 * time.Millisecond

// remembered is how many times are kept: more than a demo of a usual size has actions.
const remembered = 100_000

// stopwatch measures from the commit of an action to the end of what follows: the moment in which its item is no
// longer among the waiting ones, as that goes together with the last of its rows.
type stopwatch struct {
	pool *pgxpool.Pool
	sql  string

	mu      sync.Mutex
	open    map[Item]time.Time
	elapsed []time.Duration
}

func newStopwatch(pool *pgxpool.Pool, names pgschema.Names, script Script) *stopwatch {
	return &stopwatch{
		pool: pool, open: map[Item]time.Time{},
		sql: names.Render("SELECT waiting.name, waiting.number FROM (" + script.Waiting + ") AS waiting (name, number, since)"),
	}
}

// committed takes note of items whose transaction has just been committed.
func (s *stopwatch) committed(items []Item) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range items {
		if item != (Item{}) {
			s.open[item] = now
		}
	}
}

// run looks at what waits until ctx ends.
func (s *stopwatch) run(ctx context.Context) error {
	for {
		pause := shortestLook
		if s.pending() > 0 {
			began := time.Now()
			if err := s.look(ctx); err != nil {
				return err
			}
			pause = max(pause, 10*time.Since(began))
		}
		if err := sleep.For(ctx, pause); err != nil {
			return err
		}
	}
}

func (s *stopwatch) look(ctx context.Context) error {
	asked := time.Now()
	rows, _ := s.pool.Query(ctx, s.sql)
	there := map[Item]bool{}
	var item Item
	var number *int64
	if _, err := pgx.ForEachRow(rows, []any{&item.Name, &number}, func() error {
		if number != nil {
			item.Number = *number
			there[item] = true
		}
		return nil
	}); err != nil {
		return fmt.Errorf("look at what waits: %w", err)
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for item, committed := range s.open {
		// One that was committed after the look began may wait without the look's having seen it.
		if committed.Before(asked) && !there[item] {
			s.elapsed = append(s.elapsed, now.Sub(committed))
			delete(s.open, item)
		}
	}
	s.elapsed = s.elapsed[max(0, len(s.elapsed)-remembered):]
	return nil
}

// pending is how many items are not gone yet.
func (s *stopwatch) pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// percentiles of all times so far, or of the latest of them.
func (s *stopwatch) percentiles() latency.Percentiles {
	s.mu.Lock()
	elapsed := slices.Clone(s.elapsed)
	s.mu.Unlock()
	return latency.Of(elapsed)
}
