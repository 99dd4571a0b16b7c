package bench

import (
	"context"
	"errors"
	"fmt"
	"io"

	"sexton/internal/sample"
)

// GhostOptions says what to measure.
type GhostOptions struct {
	// Sets are among GhostSets; Scale is a fraction of their full size.
	Sets  []string
	Scale float64
	// Rounds are how often each contender works; they take turns in who begins.
	Rounds int
	// Foreground also measures what clients feel that use the same notes meanwhile.
	Foreground bool
	// Duty is the share of its time that the worker may work beside them, in percent; without them it is all.
	Duty int
}

// GhostReport compares ways to move what users have written to the ghost user.
type GhostReport struct {
	Benchmark string  `json:"benchmark"`
	Server    Server  `json:"server"`
	Scale     float64 `json:"scale"`
	Rounds    int     `json:"rounds"`
	// Target is the time in milliseconds that Sexton's statements are steered to; 0 are its fixed sizes.
	Target float64 `json:"target_ms"`
	// Duty is that of the worker beside the foreground load, in percent; null where that was not asked for.
	Duty *int       `json:"foreground_duty"`
	Sets []GhostSet `json:"sets"`
}

// GhostSet is the comparison on one data set. All ratios are those of Sexton's median to another one's.
type GhostSet struct {
	Set string `json:"set"`
	// Users are deleted, Rows moved. The others only move rows, Sexton also deletes the users.
	Users int64 `json:"users"`
	Rows  int64 `json:"rows"`

	Contenders []Contender `json:"contenders"`

	// The first two compare rows per second: more is better.
	RatioOneStatement float64 `json:"ratio_to_one_statement"`
	RatioOriginal     float64 `json:"ratio_to_original"`
	RatioWAL          float64 `json:"ratio_wal_to_one_statement"`

	// Foreground is null where it was not asked for.
	Foreground []Foreground `json:"foreground"`
}

// Ghost deletes users and measures how their rows pass to the ghost user: by Sexton, by one statement per table, and by
// statements of the original's shape. After every one it checks that exactly the right rows are the ghost's. The
// ground has to be one of the job that deletes users; target is that of its statements, in milliseconds.
func Ghost(ctx context.Context, g *Ground, target float64, o GhostOptions) (Report, error) {
	r := &GhostReport{Benchmark: "ghost", Scale: o.Scale, Rounds: o.Rounds, Target: target}
	var err error
	if r.Server, err = (&Site{Pool: g.Admin}).server(ctx); err != nil {
		return nil, err
	}
	if o.Foreground {
		r.Duty = &o.Duty
	}
	for _, name := range o.Sets {
		set, err := newUserSet(name, o.Scale)
		if err != nil {
			return nil, err
		}
		found, err := g.ghostSet(ctx, set, o)
		if err != nil {
			return nil, fmt.Errorf("measure data set %s: %w", name, err)
		}
		r.Sets = append(r.Sets, found)
	}
	return r, nil
}

func (g *Ground) ghostSet(ctx context.Context, set userSet, o GhostOptions) (_ GhostSet, err error) {
	var made int64
	for _, t := range set.tables {
		made += set.rows(t)
	}
	g.Progress("%s: making %d rows", set.name, made)
	data, err := g.template(ctx, sample.Schema(), "", set.fill()...)
	if err != nil {
		return GhostSet{}, err
	}
	defer func() { err = errors.Join(err, data.drop()) }()

	rounds, rows, err := g.rounds(ctx, data, set, o.Rounds)
	if err != nil {
		return GhostSet{}, err
	}
	out := GhostSet{Set: set.name, Users: set.doomed, Rows: rows}
	of := map[string]Contender{}
	for _, c := range set.contenders() {
		of[c.name] = summary(c.name, rows, rounds[c.name])
		out.Contenders = append(out.Contenders, of[c.name])
	}
	ours, raw := of[sexton], of[oneStatement]
	out.RatioOneStatement = ratio(ours.RowsPerSecond, raw.RowsPerSecond)
	out.RatioOriginal = ratio(ours.RowsPerSecond, of[original].RowsPerSecond)
	out.RatioWAL = ratio(float64(ours.WALBytes), float64(raw.WALBytes))
	if o.Foreground {
		out.Foreground, err = g.foreground(ctx, data, set, o.Rounds, o.Scale, o.Duty)
	}
	return out, err
}

// Text writes what was measured, the ratios, and the foreground where it was asked for.
func (r *GhostReport) Text(w io.Writer) {
	_, _ = fmt.Fprintln(w, "set\tcontender\trows/s\tWAL MB\tstatements\tp50 ms\tp99 ms\tmax ms")
	for _, s := range r.Sets {
		for _, c := range s.Contenders {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%.0f\t%.1f\t%d\t%.1f\t%.1f\t%.1f\n", s.Set, words(c.Name), c.RowsPerSecond,
				float64(c.WALBytes)/1e6, c.Statements, c.StatementMS.P50, c.StatementMS.P99, c.StatementMS.Max)
		}
	}
	_, _ = fmt.Fprintln(w, "\nset\tsexton / one statement\t/ original\tWAL / one statement\tusers\trows")
	for _, s := range r.Sets {
		_, _ = fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%d\t%d\n", s.Set, s.RatioOneStatement, s.RatioOriginal, s.RatioWAL, s.Users, s.Rows)
	}
	var tables [][]Foreground
	if r.Duty != nil {
		_, _ = fmt.Fprint(w, foregroundHead)
		for _, s := range r.Sets {
			foregroundText(w, s.Set, s.Foreground)
			tables = append(tables, s.Foreground)
		}
	}
	steered := fmt.Sprintf("statements steered to %g ms", r.Target)
	if r.Target == 0 {
		steered = "statements of fixed sizes"
	}
	_, _ = fmt.Fprintf(w, "\nmedian of %d interleaved rounds, each on a fresh copy of the data; scale %g, %s; %s\n", r.Rounds, r.Scale, steered, r.Server)
	_, _ = fmt.Fprintln(w, "original: LIMIT 50 per statement and transaction, no sequential scans; it and one statement move rows only, "+
		"Sexton also deletes the users")
	if r.Duty != nil {
		foregroundNote(w, "half of the users deleted, at least one", *r.Duty, tables...)
	}
}
