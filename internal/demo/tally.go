package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/each"
	"sexton/internal/latency"
	"sexton/internal/pgschema"
	"sexton/internal/problem"
	"sexton/internal/sleep"
	"sexton/internal/words"
)

// Tally sums up the work of the runs of a scene's kinds. It is written as one flat object, whose keys are those of
// the statistics beside runs and errors.
type Tally struct {
	// Runs counts all, those at work included, Errors what failed in them.
	Runs, Errors int64
	// Numbers has the script's own, ByTable those by table, by their names in the statistics.
	Numbers map[string]int64
	ByTable map[string]map[string]int64
}

func newTally(script Script) Tally {
	t := Tally{Numbers: map[string]int64{script.Processed: 0}, ByTable: map[string]map[string]int64{}}
	for _, name := range script.Numbers {
		t.Numbers[name] = 0
	}
	for _, rows := range script.Rows {
		t.ByTable[rows.Name] = map[string]int64{}
	}
	return t
}

// Rows are those changed in any way.
func (t Tally) Rows() (total int64) {
	for counts := range maps.Values(t.ByTable) {
		total += sum(counts)
	}
	return total
}

func sum(counts map[string]int64) (total int64) {
	for n := range maps.Values(counts) {
		total += n
	}
	return total
}

// tables lists the tables, or columns, in which most rows were changed.
func (t Tally) tables(most int) []string {
	all := map[string]int64{}
	for counts := range maps.Values(t.ByTable) {
		for table, n := range counts {
			all[table] += n
		}
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if d := all[b] - all[a]; d != 0 {
			return int(d)
		}
		return strings.Compare(a, b)
	})
	return each.Of(names[:min(most, len(names))], func(name string) string { return name + " " + words.Grouped(all[name]) })
}

// add returns the sum with the statistics of one more run. What the sum does not know it leaves out.
func (t Tally) add(stats map[string]json.RawMessage) (Tally, error) {
	out := Tally{Runs: t.Runs, Errors: t.Errors, Numbers: maps.Clone(t.Numbers), ByTable: map[string]map[string]int64{}}
	for name := range t.Numbers {
		var n int64
		if err := decode(stats, name, &n); err != nil {
			return t, err
		}
		out.Numbers[name] += n
	}
	for name, counts := range t.ByTable {
		more, merged := map[string]int64{}, maps.Clone(counts)
		if err := decode(stats, name, &more); err != nil {
			return t, err
		}
		for table, n := range more {
			merged[table] += n
		}
		out.ByTable[name] = merged
	}
	var failed []struct {
		Count int64 `json:"count"`
	}
	if err := decode(stats, "errors", &failed); err != nil {
		return t, err
	}
	for _, e := range failed {
		out.Errors += e.Count
	}
	return out, nil
}

// decode leaves into alone where the key is absent.
func decode(stats map[string]json.RawMessage, name string, into any) error {
	raw, found := stats[name]
	if !found {
		return nil
	}
	return problem.Doing(json.Unmarshal(raw, into), "decode %s", name)
}

// flat is the tally as the summary has it.
func (t Tally) flat() map[string]any {
	out := map[string]any{"runs": t.Runs, "errors": t.Errors}
	for name, n := range t.Numbers {
		out[name] = n
	}
	for name, counts := range t.ByTable {
		out[name] = counts
	}
	return out
}

// runs sums up the runs of one scene's kinds.
type runs struct {
	pool  *pgxpool.Pool
	names pgschema.Names
	kinds []string
	// earlier is the last run of what came before, which does not count.
	earlier int64
	// settled is the sum of all runs up to lastSettled: they have ended long ago, and are not read again.
	settled     Tally
	lastSettled int64
}

// total sums up the runs, those at work included.
func (r *runs) total(ctx context.Context) (Tally, error) {
	rows, _ := r.pool.Query(ctx, r.names.Render(query("runs")), r.kinds, r.lastSettled)
	total, settling := r.settled, true
	var id int64
	var old bool
	var raw []byte
	_, err := pgx.ForEachRow(rows, []any{&id, &old, &raw}, func() (err error) {
		var stats map[string]json.RawMessage
		if err = json.Unmarshal(raw, &stats); err == nil {
			total, err = total.add(stats)
		}
		if err != nil {
			return fmt.Errorf("read statistics of run %d: %w", id, err)
		}
		if settling = settling && old; settling {
			r.settled, r.lastSettled = total, id
		}
		return nil
	})
	if err != nil {
		return Tally{}, fmt.Errorf("read runs: %w", err)
	}
	// On their own: idle runs fold into rows that are settled.
	err = r.pool.QueryRow(ctx, r.names.Render(query("count_runs")), r.kinds, r.earlier).Scan(&total.Runs)
	return total, problem.Doing(err, "count runs")
}

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
