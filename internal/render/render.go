// Package render makes texts of values: lists, counts, times, durations and tables for
// messages and the terminal. It depends on no other package of the program.
package render

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Each returns the results of to for all values, in their order. It returns an empty
// slice for nil, because JSON and SQL arguments would be null otherwise.
func Each[T, U any](values []T, to func(T) U) []U {
	results := make([]U, len(values))
	for i, value := range values {
		results[i] = to(value)
	}
	return results
}

// Table writes a table with aligned columns: a heading with tabs between its cells, unless
// it is empty, then the cells of each row. A missing or empty cell is a dash.
func Table[T any](w io.Writer, heading string, rows []T, cells func(T) []any) {
	aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if heading != "" {
		_, _ = fmt.Fprintln(aligned, heading)
	}
	for _, row := range rows {
		_, _ = fmt.Fprintln(aligned, strings.Join(Each(cells(row), text), "\t"))
	}
	_ = aligned.Flush()
}

// List writes a table or, if there are no rows, the text none unless it is empty.
func List[T any](w io.Writer, none, heading string, rows []T, cells func(T) []any) {
	switch {
	case len(rows) > 0:
		Table(w, heading, rows, cells)
	case none != "":
		_, _ = fmt.Fprintln(w, none)
	}
}

func text(cell any) string {
	switch cell := cell.(type) {
	case *string:
		return Cell(cell)
	case *time.Time:
		return Time(cell)
	case time.Time:
		return Time(&cell)
	}
	return Cell(new(fmt.Sprint(cell)))
}

// Age returns how long ago a time was.
func Age(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return Span(time.Since(*t)) + " ago"
}

// Span renders a duration in seconds, and in days and hours from two days on. A negative
// duration, which two clocks that differ can produce, counts as zero.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	if d = max(0, d.Round(time.Second)); d < 2*day {
		return d.String()
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// Duration renders a duration that may be far below a second.
func Duration(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d.Round(100*time.Microsecond))/1e6, 'f', -1, 64) + " ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	default:
		return Span(d)
	}
}

// Cell renders a text as one line for a table, and a missing text as a dash.
func Cell(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return strings.NewReplacer(";\n", "; ", "\n", "; ", "\r", " ", "\t", " ", "\v", " ", "\f", " ").Replace(*s)
}

// Time renders a time, or a dash if it is missing.
func Time(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// Listed joins names with commas.
func Listed(names []string) string { return strings.Join(names, ", ") }

// Counted renders "1 trigger", "2 triggers".
func Counted[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%s %ss", Grouped(int64(n)), noun)
}

// Grouped renders a number with commas between groups of three digits.
func Grouped(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Capped renders a count, with a plus sign if it stopped at a limit.
func Capped(n int64, more bool) string {
	if more {
		return Grouped(n) + "+"
	}
	return Grouped(n)
}

// AtLeast returns the prefix of a count that stopped at a limit.
func AtLeast(more bool) string {
	if more {
		return "at least "
	}
	return ""
}
