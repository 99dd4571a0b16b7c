package demo

import (
	"fmt"
	"io"
	"math"
	"time"
)

// Summary is what a demo ends with.
type Summary struct {
	RowsLoaded int64 `json:"rows_loaded"`
	// ParentsDeleted are those that the application deleted itself; what went along by real foreign keys, and
	// parents among the children, are in the job's own count.
	ParentsDeleted    int64 `json:"parents_deleted"`
	ChildrenDeleted   int64 `json:"children_deleted"`
	ChildrenNullified int64 `json:"children_nullified"`
	// ChildrenUpdated got a value other than NULL.
	ChildrenUpdated int64 `json:"children_updated"`
	// OrphansLeft are counted by anti-joins of their own, after everything is drained; null where it is not.
	OrphansLeft *int64 `json:"orphans_left"`
	// P50LatencyMS and P99LatencyMS are from the commit of a parent's deletion to the end of its clean-up.
	P50LatencyMS float64 `json:"p50_latency_ms"`
	P99LatencyMS float64 `json:"p99_latency_ms"`
	Seconds      float64 `json:"seconds"`
	// Jobs has one object per kind of job.
	Jobs map[string]Totals `json:"jobs"`
}

func (s State) summary(site Site, took time.Duration) Summary {
	out := Summary{
		RowsLoaded: site.Rows, ParentsDeleted: s.ParentsDeleted, ChildrenDeleted: sum(s.Cleaned.Deleted),
		P50LatencyMS: s.Latency.P50, P99LatencyMS: s.Latency.P99, Seconds: math.Round(took.Seconds()*1e3) / 1e3,
		Jobs: map[string]Totals{site.Kind: s.Cleaned},
	}
	for table, n := range s.Cleaned.Updated {
		if updatedTo(site.Definitions, table) {
			out.ChildrenUpdated += n
		} else {
			out.ChildrenNullified += n
		}
	}
	return out
}

// Text writes the summary for people.
func (s Summary) Text(w io.Writer) error {
	text := fmt.Sprintf("\n%s parents deleted, %s children deleted, %s nullified, %s updated in %.1f s\nfrom commit to clean: p50 %.1f ms, p99 %.1f ms\n",
		grouped(s.ParentsDeleted), grouped(s.ChildrenDeleted), grouped(s.ChildrenNullified), grouped(s.ChildrenUpdated),
		s.Seconds, s.P50LatencyMS, s.P99LatencyMS)
	if s.OrphansLeft != nil {
		text += fmt.Sprintf("orphans left: %d\n", *s.OrphansLeft)
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("print summary: %w", err)
	}
	return nil
}
