package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/each"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
	"sexton/internal/problem"
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

// add adds what runs have counted. What the tally does not know it leaves out.
func (t *Tally) add(name, place string, n int64) {
	if counts := t.ByTable[name]; counts != nil && place != "" {
		counts[place] += n
	} else if _, known := t.Numbers[name]; known {
		t.Numbers[name] += n
	}
	switch name {
	case "runs":
		t.Runs += n
	case "errors":
		t.Errors += n
	}
}

// tallies sums up the runs of each script's kinds that came after an earlier one, those at work included.
func (on stage) tallies(ctx context.Context, earlier int64, scripts []Script) ([]Tally, error) {
	tallies, of, names := make([]Tally, len(scripts)), map[string]*Tally{}, []string{}
	for i, script := range scripts {
		tallies[i] = newTally(script)
		for _, kind := range append(script.With, script.Kind) {
			of[kind] = &tallies[i]
		}
		names = slices.AppendSeq(slices.AppendSeq(names, maps.Keys(tallies[i].Numbers)), maps.Keys(tallies[i].ByTable))
	}
	rows, _ := on.pool.Query(ctx, on.names.Render(query("tallies")), earlier, names)
	var kind, name, place string
	var n int64
	_, err := pgx.ForEachRow(rows, []any{&kind, &name, &place, &n}, func() error {
		if tally := of[kind]; tally != nil {
			tally.add(name, place, n)
		}
		return nil
	})
	return tallies, problem.Doing(err, "read runs")
}

// shortestLook is the pause between two looks at what waits where that costs next to nothing; it is by
// how much a time can be too long. Looking takes a tenth of the time at most.
const shortestLook = 2 * time.Millisecond

// remembered is how many times are kept: more than a demo of a usual size has actions.
const remembered = 100_000

// stopwatch measures from the commit of an action to the end of what follows: the moment in which its item is no
// longer among the waiting ones, as that goes together with the last of its rows.
type stopwatch struct {
	on  stage
	sql string

	mu      sync.Mutex
	open    map[Item]time.Time
	elapsed []time.Duration
}

func newStopwatch(on stage, script Script) *stopwatch {
	return &stopwatch{
		on: on, open: map[Item]time.Time{},
		sql: on.names.Render("SELECT waiting.name, waiting.number FROM (" + script.Waiting + ") AS waiting (name, number, since)"),
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
		if err := pace.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func (s *stopwatch) look(ctx context.Context) error {
	asked := time.Now()
	rows, _ := s.on.pool.Query(ctx, s.sql)
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
func (s *stopwatch) percentiles() jobrun.Percentiles {
	s.mu.Lock()
	elapsed := slices.Clone(s.elapsed)
	s.mu.Unlock()
	return jobrun.PercentilesOf(elapsed)
}
