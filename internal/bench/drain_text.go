package bench

import (
	"fmt"
	"io"
	"strings"
)

// Text writes what was measured, the ratios, and the foreground where it was asked for.
func (r *DrainReport) Text(w io.Writer) {
	_, _ = fmt.Fprintln(w, "set\tcontender\trows/s\tparents ms\tWAL MB\tstatements\tp50 ms\tp99 ms\tmax ms")
	for _, s := range r.Sets {
		for _, c := range s.Contenders {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%.0f\t%.1f\t%.1f\t%d\t%.1f\t%.1f\t%.1f\n", s.Set, words(c.Name), c.RowsPerSecond,
				c.ParentMS, float64(c.WALBytes)/1e6, c.Statements, c.StatementMS.P50, c.StatementMS.P99, c.StatementMS.Max)
		}
	}
	_, _ = fmt.Fprintln(w, "\nset\tsexton / one statement\t/ native\t/ in list\tparents / native\tWAL / native\trows")
	for _, s := range r.Sets {
		_, _ = fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.4f\t%.2f\t%d\n", s.Set, s.RatioOneStatement, s.RatioNative, s.RatioInList,
			s.RatioParents, s.RatioWAL, s.Rows)
	}
	var tables [][]Foreground
	if r.Duty != nil {
		_, _ = fmt.Fprint(w, foregroundHead)
		for _, s := range r.Sets {
			foregroundText(w, s.Set, s.Foreground)
			tables = append(tables, s.Foreground)
		}
	}
	_, _ = fmt.Fprintf(w, "\nmedian of %d interleaved rounds, each on a fresh copy of the data; scale %g, pace %s, limits of a pass lifted; %s\n",
		r.Rounds, r.Scale, r.Pace, r.Server)
	_, _ = fmt.Fprintln(w, "in list: 1,000 parents per IN list, LIMIT 1,000 (updates 500), skipping and waiting pass, no sequential scans")
	if r.Duty != nil {
		foregroundNote(w, "half of the parents deleted", *r.Duty, tables...)
	}
}

func words(name string) string { return strings.ReplaceAll(name, "_", " ") }
