package bench

import (
	"context"
	"fmt"
	"io"

	"sexton/internal/latency"
)

// DrainReport compares ways to get rid of the children of deleted parents.
type DrainReport struct {
	Head

	Pace string     `json:"pace"`
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
func Drain(ctx context.Context, g *Ground, o Options) (_ Report, err error) {
	r := &DrainReport{Pace: g.Pace}
	if r.Head, err = g.head(ctx, "drain", o); err != nil {
		return nil, err
	}
	r.Sets, err = compareSets(ctx, g, o, newDataSet, func(set dataSet, found comparison) DrainSet {
		out := DrainSet{Set: set.name, Parents: set.doomed, Rows: found.rows, Foreground: found.foreground}
		for _, c := range found.contenders {
			out.Contenders = append(out.Contenders, DrainContender{c, latency.Milliseconds(c.begun)})
		}
		ours, native := found.of(sexton), found.of(nativeCascade)
		out.RatioOneStatement = ratio(ours.RowsPerSecond, found.of(oneStatement).RowsPerSecond)
		out.RatioNative = ratio(ours.RowsPerSecond, native.RowsPerSecond)
		out.RatioInList = ratio(ours.RowsPerSecond, found.of(inList).RowsPerSecond)
		out.RatioParents = ratio(latency.Milliseconds(ours.begun), latency.Milliseconds(native.begun))
		out.RatioWAL = ratio(float64(ours.WALBytes), float64(native.WALBytes))
		return out
	})
	return r, err
}

// Text writes what was measured, the ratios, and the foreground where it was asked for.
func (r *DrainReport) Text(w io.Writer) {
	_, _ = fmt.Fprint(w, "set\tcontender\trows/s\tparents ms\tWAL MB\t"+statementsHead)
	for _, s := range r.Sets {
		for _, c := range s.Contenders {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%.0f\t%.1f\t%.1f\t%s", s.Set, words(c.Name), c.RowsPerSecond, c.ParentMS, float64(c.WALBytes)/1e6, c.statements())
		}
	}
	_, _ = fmt.Fprintln(w, "\nset\tsexton / one statement\t/ native\t/ in list\tparents / native\tWAL / native\trows")
	var loads []underLoad
	for _, s := range r.Sets {
		_, _ = fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.4f\t%.2f\t%d\n", s.Set, s.RatioOneStatement, s.RatioNative, s.RatioInList,
			s.RatioParents, s.RatioWAL, s.Rows)
		loads = append(loads, underLoad{s.Set, s.Foreground})
	}
	r.ending(w, "", ", pace "+r.Pace+", limits of a pass lifted",
		"in list: 1,000 parents per IN list, LIMIT 1,000 (updates 500), skipping and waiting pass, no sequential scans\n",
		"half of the parents deleted", loads)
}
