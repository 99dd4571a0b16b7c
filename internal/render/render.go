// Package render returns texts for values: lists, counts, times, durations and tables for
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

// Each calls the function to for each value and returns the results in order. It returns
// an empty slice for nil, because a nil slice would be null in JSON and SQL arguments.
func Each[T, U any](values []T, to func(T) U) []U {
	results := make([]U, len(values))
	for i, value := range values {
		results[i] = to(value)
	}
	return results
}

// Table writes a table with aligned columns: the heading, unless it is empty, and then
// the cells of each row. Tabs separate the cells of the heading. A missing or empty cell
// is a dash.
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

// List writes a table. If there are no rows, it writes the text none instead, unless that
// is empty.
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

// Age returns the time since t, such as "5m0s ago", or "never" if t is nil.
func Age(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return Span(time.Since(*t)) + " ago"
}

// Span returns a duration in seconds, and from two days on in days and hours. A negative
// duration counts as zero: two clocks that differ can produce one.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	if d = max(0, d.Round(time.Second)); d < 2*day {
		return d.String()
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// Duration returns a duration in milliseconds, from one second on in seconds, and from
// ten seconds on like Span.
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

// Cell returns a text as one line for a table, or a dash if the text is missing.
func Cell(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return strings.NewReplacer(";\n", "; ", "\n", "; ", "\r", " ", "\t", " ", "\v", " ", "\f", " ").Replace(*s)
}

// Time returns a time in UTC, or a dash if it is missing.
func Time(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// Listed joins names with commas.
func Listed(names []string) string { return strings.Join(names, ", ") }

// Counted returns a number with its noun, such as "1 trigger" or "2 triggers".
func Counted[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%s %ss", Grouped(int64(n)), noun)
}

// Grouped returns a number with commas between groups of three digits.
func Grouped(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Capped returns a count, with a plus sign if the count stopped at a limit (more).
func Capped(n int64, more bool) string {
	if more {
		return Grouped(n) + "+"
	}
	return Grouped(n)
}

// AtLeast returns the prefix "at least " for a count that stopped at a limit (more), or
// "".
func AtLeast(more bool) string {
	if more {
		return "at least "
	}
	return ""
}
