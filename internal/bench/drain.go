package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

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

	Contenders []DrainContender `json:"contenders"`

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

// DrainContender is one way to get rid of children, and what it took.
type DrainContender struct {
	Contender

	// ParentMS is the DELETE of all parents in one statement.
	ParentMS float64 `json:"parent_delete_ms"`
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

	rounds, rows, err := g.rounds(ctx, data, set, o.Rounds)
	if err != nil {
		return DrainSet{}, err
	}
	out := DrainSet{Set: set.name, Parents: set.doomed, Rows: rows}
	for _, c := range set.contenders() {
		var parents []time.Duration
		for _, m := range rounds[c.name] {
			parents = append(parents, m.begun)
		}
		out.Contenders = append(out.Contenders, DrainContender{summary(c.name, rows, rounds[c.name]), latency.Milliseconds(median(parents))})
	}
	out.compare()
	if o.Foreground {
		out.Foreground, err = g.foreground(ctx, data, set, o.Rounds, o.Scale, o.Duty)
	}
	return out, err
}

// of returns the contender of that name.
func (s *DrainSet) of(name string) DrainContender {
	for _, c := range s.Contenders {
		if c.Name == name {
			return c
		}
	}
	return DrainContender{}
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
