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
)

// shortestLook is the pause between two looks at the tombstones where that costs next to nothing; it is by
// how much a time can be too long. Looking takes a tenth of the time at most.
const shortestLook = 2 * time.Millisecond

// remembered is how many times are kept: more than a demo of a usual size has parents.
const remembered = 100_000

// stopwatch measures from the commit of a parent's deletion to the end of its clean-up: the moment in which
// its tombstone is gone, which goes together with the last children.
type stopwatch struct {
	pool *pgxpool.Pool
	sql  string
	// schema is how tombstones name the parents' tables.
	schema string

	mu      sync.Mutex
	open    map[tombstone]time.Time
	elapsed []time.Duration
}

// tombstone is a deleted parent as its tombstone names it.
type tombstone struct {
	table string
	key   int64
}

func newStopwatch(pool *pgxpool.Pool, names pgschema.Names) *stopwatch {
	return &stopwatch{
		pool: pool, schema: names.Tracked, open: map[tombstone]time.Time{},
		sql: names.Render(`SELECT fully_qualified_table_name, primary_key_value FROM "public".loose_foreign_keys_deleted_records`),
	}
}

// committed takes note of parents whose deletion has just been committed.
func (s *stopwatch) committed(table string, keys []int64) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		s.open[tombstone{s.schema + "." + table, key}] = now
	}
}

// run looks at the tombstones until ctx ends.
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
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func (s *stopwatch) look(ctx context.Context) error {
	asked := time.Now()
	rows, err := s.pool.Query(ctx, s.sql)
	if err != nil {
		return fmt.Errorf("look at the tombstones: %w", err)
	}
	there := map[tombstone]bool{}
	var t tombstone
	var key *int64
	if _, err := pgx.ForEachRow(rows, []any{&t.table, &key}, func() error {
		if key != nil {
			t.key = *key
			there[t] = true
		}
		return nil
	}); err != nil {
		return fmt.Errorf("look at the tombstones: %w", err)
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for parent, committed := range s.open {
		// One that was committed after the look began may have a tombstone that the look did not see.
		if committed.Before(asked) && !there[parent] {
			s.elapsed = append(s.elapsed, now.Sub(committed))
			delete(s.open, parent)
		}
	}
	s.elapsed = s.elapsed[max(0, len(s.elapsed)-remembered):]
	return nil
}

// pending is how many parents are not cleaned up after yet.
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
