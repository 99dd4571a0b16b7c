package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"sexton/internal/latency"
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

// ScaleReport is the cost of a row by the size of the backlog.
type ScaleReport struct {
	Benchmark string      `json:"benchmark"`
	Server    Server      `json:"server"`
	Pace      string      `json:"pace"`
	Sizes     []ScaleSize `json:"sizes"`
}

// ScaleSize is one size. Every deleted parent has one child: one row is one tombstone.
type ScaleSize struct {
	Tombstones  int64 `json:"tombstones"`
	OldSnapshot bool  `json:"old_snapshot"`
	// Rounds were measured; Seconds and Passes are of the median one.
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds"`
	Passes  int     `json:"passes"`
	// MicrosecondsPerRow is the mean over the whole backlog, Ratio its ratio to that of the smallest backlog.
	MicrosecondsPerRow float64 `json:"us_per_row"`
	Ratio              float64 `json:"ratio_to_smallest"`
	// SpeedRatio is the speed relative to that without the old snapshot; null without.
	SpeedRatio *float64 `json:"ratio_speed_to_no_snapshot"`
	// QueueMS are the statements that look for tombstones and load them, StatementMS those on the child table.
	QueueMS     latency.Percentiles `json:"queue_statement_ms"`
	StatementMS latency.Percentiles `json:"statement_ms"`
	// AfterQueueMS are like QueueMS, but of later passes for one parent each: they may have to step over all
	// that is gone from the queue, and its end is where that was.
	AfterQueueMS latency.Percentiles `json:"after_queue_statement_ms"`
	// PeakRSSBytes is the most that this process had in memory, the benchmark itself included; null where the
	// system does not tell.
	PeakRSSBytes *int64 `json:"peak_rss_bytes"`
}

// Backlogs are the sizes from the smallest to most.
func Backlogs(most int64) (sizes []int64) {
	for size := int64(SmallestBacklog); size <= most; size *= 10 {
		sizes = append(sizes, size)
	}
	return sizes
}

// Scale drains ever larger backlogs.
func (o *ScaleOptions) Scale(ctx context.Context, g *Cluster) (Report, error) {
	r := &ScaleReport{Benchmark: "scale", Server: g.Server, Pace: g.Pace}
	for _, size := range o.Sizes {
		found, err := g.backlog(ctx, size, o.OldSnapshot)
		if err != nil {
			return nil, fmt.Errorf("measure backlog of %d: %w", size, err)
		}
		r.Sizes = append(r.Sizes, found...)
	}
	for i := range r.Sizes {
		smallest := r.Sizes[0]
		if r.Sizes[i].OldSnapshot {
			smallest = r.Sizes[1]
		}
		r.Sizes[i].Ratio = ratio(r.Sizes[i].MicrosecondsPerRow, smallest.MicrosecondsPerRow)
	}
	return r, nil
}

// backlog measures one size: without an old snapshot, and with one where asked for.
func (g *Cluster) backlog(ctx context.Context, size int64, oldSnapshot bool) (_ []ScaleSize, err error) {
	set := dataSet{
		name: "backlog", targets: size, spared: size / 10, tables: []string{"children"}, rows: size + size/10, parentOf: "n",
	}
	fill := set.fill()
	for first := int64(1); first <= size; first += parentsAtATime {
		fill = append(fill, fmt.Sprintf("DELETE FROM parents WHERE id BETWEEN %d AND %d", first, min(size, first+parentsAtATime-1)))
	}
	g.Progress("%d tombstones: making them", size)
	data, err := g.template(ctx, set.create(), set.definitions(), fill...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, data.drop()) }()

	rounds, variants := scaleRounds, []bool{false}
	if size >= bigBacklog {
		rounds = 1
	}
	if oldSnapshot {
		variants = append(variants, true)
	}
	runs := map[bool][]backlogRun{}
	err = inTurn(rounds, variants, func(round int, oldSnapshot bool) error {
		held := ""
		if oldSnapshot {
			held = ", beside an old snapshot"
		}
		g.Progress("%d tombstones: round %d of %d%s", size, round, rounds, held)
		run, err := g.drainBacklog(ctx, data, set, oldSnapshot)
		runs[oldSnapshot] = append(runs[oldSnapshot], run)
		return err
	})
	if err != nil {
		return nil, err
	}
	sizes := make([]ScaleSize, len(variants))
	for i := range sizes {
		sizes[i] = scaleSize(size, runs[variants[i]])
		if variants[i] {
			sizes[i].OldSnapshot, sizes[i].SpeedRatio = true, new(ratio(sizes[0].MicrosecondsPerRow, sizes[i].MicrosecondsPerRow))
		}
	}
	return sizes, nil
}

// backlogRun is the report of one drain of a backlog.
type backlogRun struct {
	took                   time.Duration
	passes                 int
	queue, children, after []time.Duration
	// peak is nil where the system does not tell.
	peak *int64
}

// scaleSize sums up the rounds of one size.
func scaleSize(size int64, runs []backlogRun) ScaleSize {
	s := ScaleSize{Tombstones: size, Rounds: len(runs)}
	var took, queue, children, after []time.Duration
	for _, run := range runs {
		took, queue = append(took, run.took), append(queue, run.queue...)
		children, after = append(children, run.children...), append(after, run.after...)
		s.Passes = max(s.Passes, run.passes)
		if s.PeakRSSBytes == nil || run.peak != nil && *run.peak > *s.PeakRSSBytes {
			s.PeakRSSBytes = run.peak
		}
	}
	middle := median(took)
	s.Seconds, s.MicrosecondsPerRow = round(middle.Seconds(), 4), round(float64(middle.Microseconds())/float64(size), 3)
	s.QueueMS, s.StatementMS, s.AfterQueueMS = latency.Of(queue), latency.Of(children), latency.Of(after)
	return s
}

// drainBacklog drains a copy, and then what single parents leave that are deleted later.
func (g *Cluster) drainBacklog(ctx context.Context, data *template, set dataSet, oldSnapshot bool) (run backlogRun, err error) {
	last := set.targets + afterwards
	t := set.trial(last)
	p, err := g.copyOf(ctx, data, t, fullDuty, openWorker)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, p.drop()) }()
	worker := p.workers[0]
	if oldSnapshot {
		release, err := holdSnapshot(ctx, p.url)
		if err != nil {
			return run, err
		}
		defer release()
	}
	forgetPeak()
	began := time.Now()
	if run.passes, err = worker.drain(ctx); err != nil {
		return run, err
	}
	run.took, run.peak = time.Since(began), memory("/proc/self/status", "VmHWM:")
	run.children, run.queue = t.watch.take()
	for id := set.targets + 1; id <= last; id++ {
		if _, err := p.conn.Exec(ctx, "DELETE FROM parents WHERE id = $1", id); err != nil {
			return run, fmt.Errorf("delete parent: %w", err)
		}
		if _, err := worker.drain(ctx); err != nil {
			return run, err
		}
	}
	_, run.after = t.watch.take()
	return run, p.check(ctx)
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

// Text writes a table.
func (r *ScaleReport) Text(w io.Writer) {
	_, _ = fmt.Fprintln(w, "tombstones\told snapshot\tus/row\tratio to smallest\tspeed to no snapshot\t"+
		"queue p50 ms\tp99 ms\tmax ms\tlater queue p50 ms\tmax ms\tstatement p99 ms\tpeak RSS MiB\tpasses")
	for _, s := range r.Sizes {
		snapshot, speed, peak := "no", "", ""
		if s.OldSnapshot {
			snapshot = "yes"
		}
		if s.SpeedRatio != nil {
			speed = fmt.Sprintf("%.2f", *s.SpeedRatio)
		}
		if s.PeakRSSBytes != nil {
			peak = fmt.Sprintf("%.1f", float64(*s.PeakRSSBytes)/(1<<20))
		}
		_, _ = fmt.Fprintf(w, "%d\t%s\t%.2f\t%.2f\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t%d\n",
			s.Tombstones, snapshot, s.MicrosecondsPerRow, s.Ratio, speed, s.QueueMS.P50, s.QueueMS.P99, s.QueueMS.Max,
			s.AfterQueueMS.P50, s.AfterQueueMS.Max, s.StatementMS.P99, peak, s.Passes)
	}
	_, _ = fmt.Fprintf(w, "\none child per tombstone; median of %d rounds, from %d tombstones on one; "+
		"later: passes for %d parents deleted one by one after the backlog\n",
		scaleRounds, bigBacklog, afterwards)
	_, _ = fmt.Fprintf(w, "memory is that of this process, the benchmark included; pace %s; %s\n", r.Pace, r.Server)
}
