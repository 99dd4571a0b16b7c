package bench

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"sexton/internal/each"
	"sexton/internal/jobrun"
)

// The sizes of the backlog are these and what lies between them in powers of ten.
const (
	SmallestBacklog = 10_000
	LargestBacklog  = 10_000_000
)

const (
	// bigBacklog is measured once: it takes minutes, and its mean is over many passes anyway.
	bigBacklog     = 1_000_000
	scaleRounds    = 3
	parentsAtATime = 100_000
	// afterwards is how many parents are deleted one by one behind the backlog.
	afterwards = 20
)

// ScaleOptions says what to measure.
type ScaleOptions struct {
	// Sizes are numbers of tombstones, in rising order.
	Sizes []int64
	// OldSnapshot also measures each size while another session holds a snapshot from before, so that vacuum
	// and index scans can forget no row that is gone.
	OldSnapshot bool
}

// Backlogs are the sizes from the smallest to most.
func Backlogs(most int64) (sizes []int64) {
	for size := int64(SmallestBacklog); size <= most; size *= 10 {
		sizes = append(sizes, size)
	}
	return sizes
}

// Scale drains ever larger backlogs. Every deleted parent has one child: one row is one tombstone.
func (o *ScaleOptions) Scale(ctx context.Context, g *Cluster) (*Report, error) {
	var figures []Row
	smallest := map[bool]float64{}
	for _, size := range o.Sizes {
		found, err := g.backlog(ctx, size, o.OldSnapshot)
		if err != nil {
			return nil, fmt.Errorf("measure backlog of %d: %w", size, err)
		}
		for _, one := range found {
			if smallest[one.oldSnapshot] == 0 {
				smallest[one.oldSnapshot] = one.perRow()
			}
			figures = append(figures, one.figures(smallest[one.oldSnapshot], found[0].perRow()))
		}
	}
	r := &Report{Row: Row{{"benchmark", "", "", "scale"}, {"server", "", "", g.Server}, {"pace", "", "", g.Pace}, {"sizes", "", "", figures}}}
	r.show(figures...)
	r.notef("one child per tombstone; median of %d rounds, from %d tombstones on one; later: passes for %d parents deleted one by one after the backlog",
		scaleRounds, bigBacklog, afterwards)
	r.notef("memory is that of this process, the benchmark included; pace %s; %s", g.Pace, g.Server)
	return r, nil
}

// backlog measures one size: without an old snapshot, and with one where asked for.
func (g *Cluster) backlog(ctx context.Context, size int64, oldSnapshot bool) (sizes []backlogSize, err error) {
	set := dataSet{Name: "backlog", Targets: size, Spared: size / 10, Tables: []string{"children"}, Rows: size + size/10, ParentOf: "n"}
	from := set.source()
	for first := int64(1); first <= size; first += parentsAtATime {
		from.fill = append(from.fill, fmt.Sprintf("DELETE FROM parents WHERE id BETWEEN %d AND %d", first, min(size, first+parentsAtATime-1)))
	}
	rounds, variants := scaleRounds, []bool{false}
	if size >= bigBacklog {
		rounds = 1
	}
	if oldSnapshot {
		variants = append(variants, true)
	}
	g.Progress("%d tombstones: making them", size)
	err = g.with(ctx, from, func(data *template) error {
		found, err := inTurn(rounds, variants, func(round int, oldSnapshot bool) (backlogRun, error) {
			held := ""
			if oldSnapshot {
				held = ", beside an old snapshot"
			}
			g.Progress("%d tombstones: round %d of %d%s", size, round, rounds, held)
			return g.drainBacklog(ctx, data, set, oldSnapshot)
		})
		for i, runs := range found {
			sizes = append(sizes, sumUp(size, variants[i], runs))
		}
		return err
	})
	return sizes, err
}

// backlogSize is one size, with the figures of its rounds.
type backlogSize struct {
	backlogRun

	tombstones  int64
	oldSnapshot bool
	rounds      int
}

// perRow is the mean over the whole backlog in microseconds.
func (s backlogSize) perRow() float64 {
	return round(float64(s.took.Microseconds())/float64(s.tombstones), 3)
}

// figures compares with the smallest size, and with the same size without an old snapshot.
func (s backlogSize) figures(smallest, without float64) Row {
	queue, later, statements := jobrun.PercentilesOf(s.queue), jobrun.PercentilesOf(s.after), jobrun.PercentilesOf(s.children)
	snapshot, speed := "no", any(nil)
	if s.oldSnapshot {
		snapshot, speed = "yes", ratio(without, s.perRow())
	}
	return Row{
		{"tombstones", "tombstones", "%d", s.tombstones},
		{"old_snapshot", "", "", s.oldSnapshot},
		{"", "old snapshot", "%s", snapshot},
		{"rounds", "", "", s.rounds},
		{"seconds", "", "", round(s.took.Seconds(), 4)},
		{"us_per_row", "us/row", "%.2f", s.perRow()},
		{"ratio_to_smallest", "ratio to smallest", "%.2f", ratio(s.perRow(), smallest)},
		{"ratio_speed_to_no_snapshot", "speed to no snapshot", "%.2f", speed},
		// Statements that look for tombstones and load them.
		{"queue_statement_ms", "", "", queue},
		{"", "queue p50 ms", "%.2f", queue.P50},
		{"", "p99 ms", "%.2f", queue.P99},
		{"", "max ms", "%.2f", queue.Max},
		// The same of later passes for one parent each: they may have to step over all that is gone from the queue, and its end is where that was.
		{"after_queue_statement_ms", "", "", later},
		{"", "later queue p50 ms", "%.2f", later.P50},
		{"", "max ms", "%.2f", later.Max},
		// Those on the child table.
		{"statement_ms", "", "", statements},
		{"", "statement p99 ms", "%.2f", statements.P99},
		// The most that this process had in memory, the benchmark itself included.
		{"peak_rss_bytes", "", "", s.peak},
		{"", "peak RSS MiB", "%.1f", mebibytes(s.peak)},
		{"passes", "passes", "%d", s.passes},
	}
}

// backlogRun is the report of one drain of a backlog.
type backlogRun struct {
	took                   time.Duration
	passes                 int
	queue, children, after []time.Duration
	// peak is nil where the system does not tell.
	peak *int64
}

// sumUp takes the median time of the rounds, and the most passes and memory.
func sumUp(tombstones int64, oldSnapshot bool, runs []backlogRun) backlogSize {
	s := backlogSize{tombstones: tombstones, oldSnapshot: oldSnapshot, rounds: len(runs)}
	for _, run := range runs {
		s.queue, s.children, s.after = append(s.queue, run.queue...), append(s.children, run.children...), append(s.after, run.after...)
		s.passes = max(s.passes, run.passes)
		if s.peak == nil || run.peak != nil && *run.peak > *s.peak {
			s.peak = run.peak
		}
	}
	s.took = median(each.Of(runs, func(run backlogRun) time.Duration { return run.took }))
	return s
}

// drainBacklog drains a copy, and then what single parents leave that are deleted later.
func (g *Cluster) drainBacklog(ctx context.Context, data *template, set dataSet, oldSnapshot bool) (run backlogRun, err error) {
	last := set.Targets + afterwards
	t := set.trial(last)
	t.begin = nil // The tombstones are there.
	drain := func(ctx context.Context, p *dataCopy) (err error) {
		if oldSnapshot {
			release, err := holdSnapshot(ctx, p.url)
			if err != nil {
				return err
			}
			defer release()
		}
		forgetPeak()
		began := time.Now()
		if run.passes, err = p.workers[0].drain(ctx); err != nil {
			return err
		}
		run.took, run.peak = time.Since(began), memory("/proc/self/status", "VmHWM:")
		run.children, run.queue = t.watch.take()
		for id := set.Targets + 1; id <= last; id++ {
			if _, err := p.conn.Exec(ctx, "DELETE FROM parents WHERE id = $1", id); err != nil {
				return fmt.Errorf("delete parent: %w", err)
			}
			if _, err := p.workers[0].drain(ctx); err != nil {
				return err
			}
		}
		_, run.after = t.watch.take()
		return nil
	}
	_, _, err = g.measure(ctx, data, t, variant{prepare: openWorker, drain: drain}, fullDuty, nil)
	return run, err
}

// holdSnapshot keeps a transaction open that could still see every row of now.
func holdSnapshot(ctx context.Context, url string) (release func(), err error) {
	conn, closeConn, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
	if err != nil {
		closeConn()
		return nil, fmt.Errorf("take old snapshot: %w", err)
	}
	return closeConn, nil
}

// forgetPeak makes Linux measure the peak of this process's memory anew, from what is in use now. On other systems, or
// where that is not allowed, the peak is that of the whole process.
func forgetPeak() {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600)
}
