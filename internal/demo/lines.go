package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Lines is the view for pipes and files: one line a second.
type Lines struct {
	w io.Writer
	// tenths is how much of the load has been told.
	tenths int64
}

// NewLines returns a view that writes to w.
func NewLines(w io.Writer) *Lines { return &Lines{w: w} }

// Interval is the pause between two lines.
func (*Lines) Interval() time.Duration { return time.Second }

// Loaded writes a line for every tenth of the rows.
func (l *Lines) Loaded(done, total int64) {
	if tenths := 10 * done / max(total, 1); tenths > l.tenths {
		l.tenths = tenths
		_, _ = fmt.Fprintf(l.w, "loading sample data: %s of %s rows\n", grouped(done), grouped(total))
	}
}

// Show writes one line.
func (l *Lines) Show(s State) {
	_, _ = fmt.Fprintf(l.w, "%3.0f s | deleted %s | tombstones: %s | children: %s | commit to clean: %s | %s\n",
		s.Elapsed.Seconds(), s.application(), s.tombstones(), s.children(), s.times(), s.Activity)
}

// Close does nothing: all lines are written.
func (*Lines) Close() {}

func (s State) application() string {
	text := fmt.Sprintf("%s of %s parents", grouped(s.ParentsDeleted), grouped(s.ParentsPlanned))
	if s.ApplicationDone {
		text += ", no more to come"
	}
	return text
}

func (s State) tombstones() string {
	text := "backlog " + grouped(s.Backlog)
	if s.Backlog > 0 {
		text += fmt.Sprintf(" (oldest %.1f s)", s.Oldest.Seconds())
	}
	return text + fmt.Sprintf(", %s arrived, %s paid off", grouped(s.Cleaned.Tombstones+s.Backlog), grouped(s.Cleaned.Tombstones))
}

func (s State) children() string {
	return fmt.Sprintf("%s deleted, %s nullified or updated, %s rows/s",
		grouped(sum(s.Cleaned.Deleted)), grouped(sum(s.Cleaned.Updated)), grouped(int64(s.RowsPerSecond)))
}

func (s State) times() string {
	if s.Latency.Max == 0 {
		return "-"
	}
	return fmt.Sprintf("p50 %.0f ms, p99 %.0f ms", s.Latency.P50, s.Latency.P99)
}

// tables lists the tables that lost most rows.
func (s State) tables(most int) string {
	names := make([]string, 0, len(s.Cleaned.Deleted))
	for name := range s.Cleaned.Deleted {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := s.Cleaned.Deleted[b] - s.Cleaned.Deleted[a]; d != 0 {
			return int(d)
		}
		return strings.Compare(a, b)
	})
	parts := make([]string, 0, most)
	for _, name := range names[:min(most, len(names))] {
		parts = append(parts, name+" "+grouped(s.Cleaned.Deleted[name]))
	}
	return strings.Join(parts, "  ")
}

// grouped writes a number with a comma before every three digits.
func grouped(n int64) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
