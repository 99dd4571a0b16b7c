package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/latency"
)

// State is what a view shows.
type State struct {
	Elapsed time.Duration
	// ParentsDeleted are those that the application deleted itself, of ParentsPlanned.
	ParentsDeleted int64
	ParentsPlanned int64
	// ApplicationDone tells that the application deletes no more.
	ApplicationDone bool

	// Backlog are the tombstones that wait, Oldest is the age of the first of them.
	Backlog int64
	Oldest  time.Duration
	// Cleaned is what the worker has done so far, RowsPerSecond how fast it did so lately.
	Cleaned       Totals
	RowsPerSecond float64

	Latency latency.Percentiles
	// Activity says what the worker does or what it waits for.
	Activity string
}

// Totals are sums over the runs of the job.
type Totals struct {
	Runs int64 `json:"runs"`
	// Tombstones are those paid off, Rescheduled the attempts that were put off.
	Tombstones  int64            `json:"processed"`
	Rescheduled int64            `json:"rescheduled"`
	Deleted     map[string]int64 `json:"delete_count_by_table"`
	Updated     map[string]int64 `json:"update_count_by_table"`
	Errors      int64            `json:"errors"`
}

// Rows are the children deleted and updated.
func (t Totals) Rows() int64 { return sum(t.Deleted) + sum(t.Updated) }

func sum(counts map[string]int64) (total int64) {
	for n := range maps.Values(counts) {
		total += n
	}
	return total
}

// add returns the totals with the work of one more run.
func (t Totals) add(stats runStats) Totals {
	t.Tombstones += stats.Processed
	t.Rescheduled += stats.Rescheduled
	t.Deleted, t.Updated = merged(t.Deleted, stats.Deleted), merged(t.Updated, stats.Updated)
	for _, e := range stats.Errors {
		t.Errors += e.Count
	}
	return t
}

func merged(a, b map[string]int64) map[string]int64 {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]int64{}
	}
	for table, n := range b {
		out[table] += n
	}
	return out
}

// runStats are the statistics of one run, as its row has them.
type runStats struct {
	Processed   int64            `json:"processed"`
	Rescheduled int64            `json:"rescheduled"`
	Deleted     map[string]int64 `json:"delete_count_by_table"`
	Updated     map[string]int64 `json:"update_count_by_table"`
	Errors      []struct {
		Count int64 `json:"count"`
	} `json:"errors"`
}

// watch reads the state again and again.
type watch struct {
	site  Site
	app   *application
	times *stopwatch
	began time.Time
	// stall is how long until waits without any progress.
	stall time.Duration

	// earlier is the last run of what came before, which does not count.
	earlier int64
	// settled are the totals of all runs up to lastSettled: they have ended, and are not read again.
	settled     Totals
	lastSettled int64
	// recent are the rows of the last seconds, for the rate.
	recent []reading
}

type reading struct {
	at   time.Time
	rows int64
}

// rateOver is the time over which the rate is taken.
const rateOver = 2 * time.Second

// until shows the state until ctx ends or, with drained, until nothing is left to do.
func (w *watch) until(ctx context.Context, drained bool) (State, error) {
	tick := time.NewTicker(w.site.View.Interval())
	defer tick.Stop()
	var state State
	moved := time.Now()
	for {
		next, err := w.read(ctx)
		if err != nil {
			return state, err
		}
		if next.Cleaned.Rows() != state.Cleaned.Rows() || next.Backlog != state.Backlog || next.ParentsDeleted != state.ParentsDeleted {
			moved = time.Now()
		}
		state = next
		w.site.View.Show(state)
		switch {
		case drained && state.ApplicationDone && state.Backlog == 0 && w.times.pending() == 0:
			return state, nil
		case drained && time.Since(moved) > w.stall:
			return state, fmt.Errorf("nothing has moved for %s with %d tombstones left: %s", w.stall, state.Backlog, state.Activity)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return state, ctx.Err()
		}
	}
}

func (w *watch) read(ctx context.Context) (State, error) {
	state := State{ApplicationDone: w.app.done.Load(), ParentsDeleted: w.app.deleted.Load(), ParentsPlanned: w.app.planned}
	// Before the runs: what is paid off after this is counted in both rather than in neither.
	var oldest float64
	if err := w.site.Pool.QueryRow(ctx, w.site.Names.Render(backlogSQL)).Scan(&state.Backlog, &oldest); err != nil {
		return state, fmt.Errorf("read backlog: %w", err)
	}
	state.Oldest = time.Duration(oldest * float64(time.Second))
	var err error
	if state.Cleaned, err = w.totals(ctx); err != nil {
		return state, err
	}
	if state.Activity, err = w.site.Activity(ctx, state.Backlog); err != nil {
		return state, err
	}
	state.Latency, state.Elapsed = w.times.percentiles(), time.Since(w.began)
	state.RowsPerSecond = w.rate(state.Cleaned.Rows())
	return state, nil
}

const backlogSQL = `
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8
FROM "public".loose_foreign_keys_deleted_records`

const lastRunSQL = `SELECT coalesce(max(run.id), 0) FROM "sexton".runs AS run`

const runsSQL = `
SELECT run.id, run.ended_at IS NOT NULL, run.stats
FROM "sexton".runs AS run
WHERE run.kind = $1 AND run.id > $2
ORDER BY run.id`

const runCountSQL = `
SELECT coalesce(sum(run.folded), 0)
FROM "sexton".runs AS run
WHERE run.kind = $1 AND run.id > $2`

// totals sums up the runs, those at work included.
func (w *watch) totals(ctx context.Context) (Totals, error) {
	rows, err := w.site.Pool.Query(ctx, w.site.Names.Render(runsSQL), w.site.Kind, w.lastSettled)
	if err != nil {
		return Totals{}, fmt.Errorf("read runs: %w", err)
	}
	totals, settling := w.settled, true
	var id int64
	var ended bool
	var raw []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &ended, &raw}, func() error {
		var stats runStats
		if err := json.Unmarshal(raw, &stats); err != nil {
			return fmt.Errorf("decode statistics of run %d: %w", id, err)
		}
		totals = totals.add(stats)
		if settling = settling && ended; settling {
			w.settled, w.lastSettled = totals, id
		}
		return nil
	})
	if err != nil {
		return Totals{}, fmt.Errorf("read runs: %w", err)
	}
	// On their own: idle runs fold into rows that are settled.
	if err := w.site.Pool.QueryRow(ctx, w.site.Names.Render(runCountSQL), w.site.Kind, w.earlier).Scan(&totals.Runs); err != nil {
		return Totals{}, fmt.Errorf("count runs: %w", err)
	}
	return totals, nil
}

func (w *watch) rate(rows int64) float64 {
	now := time.Now()
	w.recent = append(w.recent, reading{now, rows})
	for len(w.recent) > 2 && now.Sub(w.recent[1].at) >= rateOver {
		w.recent = w.recent[1:]
	}
	first := w.recent[0]
	if since := now.Sub(first.at).Seconds(); since > 0 {
		return float64(rows-first.rows) / since
	}
	return 0
}

// updatedTo tells whether updates of a child table write a value other than NULL. No table of the reference
// schema has both.
func updatedTo(defs []definitions.Definition, table string) bool {
	return slices.ContainsFunc(defs, func(d definitions.Definition) bool {
		return d.Child.String() == table && d.OnDelete == definitions.UpdateColumn
	})
}
