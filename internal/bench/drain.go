package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/latency"
)

// DrainOptions says what to measure.
type DrainOptions struct {
	// Sets are among DrainSets; Scale is a fraction of their full size.
	Sets  []string
	Scale float64
	// Rounds are how often each contender works; they take turns in who begins.
	Rounds int
	// Foreground also measures what clients feel that use the child tables meanwhile.
	Foreground bool
	// Duty is the share of its time that the worker may work beside them, in percent; without them it is all.
	Duty int
}

// DrainReport compares ways to get rid of the children of deleted parents.
type DrainReport struct {
	Benchmark string  `json:"benchmark"`
	Server    Server  `json:"server"`
	Scale     float64 `json:"scale"`
	Rounds    int     `json:"rounds"`
	Pace      string  `json:"pace"`
	// Duty is that of the worker beside the foreground load, in percent; null where that was not asked for.
	Duty *int       `json:"foreground_duty"`
	Sets []DrainSet `json:"sets"`
}

// DrainSet is the comparison on one data set. All ratios are those of Sexton's median to another one's.
type DrainSet struct {
	Set string `json:"set"`
	// Parents are deleted, Rows are their children.
	Parents int64 `json:"parents"`
	Rows    int64 `json:"rows"`

	Contenders []Contender `json:"contenders"`

	// The first three compare rows per second: more is better.
	RatioOneStatement float64 `json:"ratio_to_one_statement"`
	RatioNative       float64 `json:"ratio_to_native"`
	RatioInList       float64 `json:"ratio_to_in_list"`
	// RatioParents compares how long the application waits for its DELETE, and holds its locks.
	RatioParents float64 `json:"ratio_parent_delete_to_native"`
	RatioWAL     float64 `json:"ratio_wal_to_native"`

	// Foreground is null where it was not asked for.
	Foreground []Foreground `json:"foreground"`
}

// Contender is one way, and what it took.
type Contender struct {
	Contender string `json:"contender"`
	// Seconds are from the first statement after the parents' DELETE to the last child; native has that DELETE alone.
	Seconds       float64 `json:"seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
	// ParentMS is the DELETE of all parents in one statement.
	ParentMS float64 `json:"parent_delete_ms"`
	// WALBytes are all that the server wrote meanwhile, that DELETE and the tombstones included.
	WALBytes int64 `json:"wal_bytes"`
	// Statements are those on child tables in one round, StatementMS how long they took in all rounds. Of
	// Sexton's it is the whole transaction, from BEGIN to COMMIT.
	Statements  int                 `json:"statements"`
	StatementMS latency.Percentiles `json:"statement_ms"`
}

// measured is what one round tells of one contender.
type measured struct {
	took, parents time.Duration
	wal           int64
	times         []time.Duration
}

// plot is the copy of the data that a contender works on.
type plot struct {
	ground *Ground
	set    dataSet
	url    string
	conn   *pgx.Conn
	// duty, worker and watch are Sexton's alone.
	duty   int
	worker *Worker
	watch  stopwatch
}

// Drain deletes parents and measures how their children go: by Sexton, by one statement, by ON DELETE CASCADE
// or SET NULL, and by statements of the original's shape. After every one it checks that exactly the right
// rows are gone.
func Drain(ctx context.Context, g *Ground, o DrainOptions) (Report, error) {
	r := &DrainReport{Benchmark: "drain", Scale: o.Scale, Rounds: o.Rounds, Pace: g.Pace}
	var err error
	if r.Server, err = (&Site{Pool: g.Admin}).server(ctx); err != nil {
		return nil, err
	}
	if o.Foreground {
		r.Duty = &o.Duty
	}
	for _, name := range o.Sets {
		set, err := newDataSet(name, o.Scale)
		if err != nil {
			return nil, err
		}
		found, err := g.drainSet(ctx, set, o)
		if err != nil {
			return nil, fmt.Errorf("measure data set %s: %w", name, err)
		}
		r.Sets = append(r.Sets, found)
	}
	return r, nil
}

func (g *Ground) drainSet(ctx context.Context, set dataSet, o DrainOptions) (_ DrainSet, err error) {
	g.Progress("%s: making %d rows", set.name, set.rows*int64(len(set.tables)))
	data, err := g.template(ctx, set.create(), set.definitions(), set.fill()...)
	if err != nil {
		return DrainSet{}, err
	}
	defer func() { err = errors.Join(err, data.drop()) }()

	out := DrainSet{Set: set.name, Parents: set.doomed}
	all := contenders()
	rounds := map[string][]measured{}
	for round := range o.Rounds {
		for i := range all {
			c := all[(i+round)%len(all)]
			g.Progress("%s: round %d of %d, %s", set.name, round+1, o.Rounds, c.name)
			m, rows, err := g.measure(ctx, data, set, c, set.doomed, nil)
			if err != nil {
				return DrainSet{}, fmt.Errorf("%s: %w", c.name, err)
			}
			rounds[c.name] = append(rounds[c.name], m)
			out.Rows = rows
		}
	}
	for _, c := range all {
		out.Contenders = append(out.Contenders, summary(c.name, out.Rows, rounds[c.name]))
	}
	out.compare()
	if o.Foreground {
		out.Foreground, err = g.foreground(ctx, data, set, o)
	}
	return out, err
}

// measure lets a contender work on a fresh copy after parents 1 … doomed are deleted. It returns also how many
// children they had. The load beside it, if any, is put on the same copy.
func (g *Ground) measure(ctx context.Context, data *template, set dataSet, c contender, doomed int64, beside *load) (m measured, rows int64, err error) {
	p := &plot{ground: g, set: set, duty: fullDuty}
	if beside != nil {
		p.duty = beside.duty
	}
	url, conn, drop, err := g.copyOf(ctx, data)
	if err != nil {
		return m, 0, err
	}
	p.url, p.conn = url, conn
	defer func() { err = errors.Join(err, drop()) }()
	before, err := set.content(ctx, conn, doomed)
	if err != nil {
		return m, 0, err
	}
	if c.prepare != nil {
		if err := c.prepare(ctx, p); err != nil {
			return m, 0, err
		}
	}
	if p.worker != nil {
		defer p.worker.Close()
	}
	if err := settle(ctx, conn); err != nil {
		return m, 0, err
	}
	if beside != nil {
		err = beside.during(ctx, url, func(ctx context.Context) error { return p.run(ctx, c, doomed, &m) })
	} else {
		err = p.run(ctx, c, doomed, &m)
	}
	if err != nil {
		return m, 0, err
	}
	if c.name == sexton {
		if err := noTombstones(ctx, conn); err != nil {
			return m, 0, err
		}
	}
	return m, orphans(before), set.check(ctx, conn, before, doomed)
}

// run is what is measured.
func (p *plot) run(ctx context.Context, c contender, doomed int64, m *measured) error {
	start, err := walPosition(ctx, p.conn)
	if err != nil {
		return err
	}
	if doomed > 0 {
		if _, m.parents, err = timed(ctx, p.conn, "DELETE FROM parents WHERE id <= $1", doomed); err != nil {
			return fmt.Errorf("delete parents: %w", err)
		}
	}
	if c.ready != nil {
		if err := c.ready(ctx, p); err != nil {
			return err
		}
	}
	m.took, m.times = m.parents, []time.Duration{m.parents}
	if c.drain != nil {
		began := time.Now()
		if m.times, err = c.drain(ctx, p); err != nil {
			return err
		}
		m.took = time.Since(began)
	}
	end, err := walPosition(ctx, p.conn)
	m.wal = end - start
	return err
}

// summary takes the median of the rounds.
func summary(name string, rows int64, rounds []measured) Contender {
	var took, parents, times []time.Duration
	var wal []int64
	for _, m := range rounds {
		took, parents, wal = append(took, m.took), append(parents, m.parents), append(wal, m.wal)
		times = append(times, m.times...)
	}
	middle := median(took)
	return Contender{
		Contender: name, Seconds: round(middle.Seconds(), 4), RowsPerSecond: round(float64(rows)/middle.Seconds(), 0),
		ParentMS: latency.Milliseconds(median(parents)), WALBytes: median(wal),
		Statements: len(times) / len(rounds), StatementMS: latency.Of(times),
	}
}

// of returns the contender of that name.
func (s *DrainSet) of(name string) Contender {
	for _, c := range s.Contenders {
		if c.Contender == name {
			return c
		}
	}
	return Contender{}
}

// compare holds Sexton against the others.
func (s *DrainSet) compare() {
	ours, native := s.of(sexton), s.of(nativeCascade)
	s.RatioOneStatement = ratio(ours.RowsPerSecond, s.of(oneStatement).RowsPerSecond)
	s.RatioNative = ratio(ours.RowsPerSecond, native.RowsPerSecond)
	s.RatioInList = ratio(ours.RowsPerSecond, s.of(inList).RowsPerSecond)
	s.RatioParents = ratio(ours.ParentMS, native.ParentMS)
	s.RatioWAL = ratio(float64(ours.WALBytes), float64(native.WALBytes))
}
