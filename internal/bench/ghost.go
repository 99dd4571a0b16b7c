package bench

import (
	"context"
	"fmt"
	"io"
)

// GhostReport compares ways to move what users have written to the ghost user.
type GhostReport struct {
	Head

	// Target is the time in milliseconds that Sexton's statements are steered to; 0 are its fixed sizes.
	Target float64    `json:"target_ms"`
	Sets   []GhostSet `json:"sets"`
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
func Ghost(ctx context.Context, g *Ground, target float64, o Options) (_ Report, err error) {
	r := &GhostReport{Target: target}
	if r.Head, err = g.head(ctx, "ghost", o); err != nil {
		return nil, err
	}
	r.Sets, err = compareSets(ctx, g, o, newUserSet, func(set userSet, found comparison) GhostSet {
		ours, raw := found.of(sexton), found.of(oneStatement)
		return GhostSet{
			Set: set.name, Users: set.doomed, Rows: found.rows, Contenders: found.contenders, Foreground: found.foreground,
			RatioOneStatement: ratio(ours.RowsPerSecond, raw.RowsPerSecond),
			RatioOriginal:     ratio(ours.RowsPerSecond, found.of(original).RowsPerSecond),
			RatioWAL:          ratio(float64(ours.WALBytes), float64(raw.WALBytes)),
		}
	})
	return r, err
}

// Text writes what was measured, the ratios, and the foreground where it was asked for.
func (r *GhostReport) Text(w io.Writer) {
	_, _ = fmt.Fprint(w, "set\tcontender\trows/s\tWAL MB\t"+statementsHead)
	for _, s := range r.Sets {
		for _, c := range s.Contenders {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%.0f\t%.1f\t%s", s.Set, words(c.Name), c.RowsPerSecond, float64(c.WALBytes)/1e6, c.statements())
		}
	}
	_, _ = fmt.Fprintln(w, "\nset\tsexton / one statement\t/ original\tWAL / one statement\tusers\trows")
	var loads []underLoad
	for _, s := range r.Sets {
		_, _ = fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%d\t%d\n", s.Set, s.RatioOneStatement, s.RatioOriginal, s.RatioWAL, s.Users, s.Rows)
		loads = append(loads, underLoad{s.Set, s.Foreground})
	}
	steered := fmt.Sprintf(", statements steered to %g ms", r.Target)
	if r.Target == 0 {
		steered = ", statements of fixed sizes"
	}
	r.ending(w, "", steered, "original: LIMIT 50 per statement and transaction, no sequential scans; it and one statement move rows only, "+
		"Sexton also deletes the users\n", "half of the users deleted, at least one", loads)
}
