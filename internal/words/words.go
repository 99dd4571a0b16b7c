// Package words renders counts, lists and times for messages and tables.
package words

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/each"
	"sexton/internal/problem"
)

// Separator stands between the cells of a line. It is none of the characters that texts
// and names have.
const Separator = "\x1f"

// Table writes the lines of a table, for the terminal to align: a heading, whose cells a
// tab separates, then the cells of each row. A cell that may be missing is a pointer, and
// rendered by Cell or Moment.
func Table[T any](w io.Writer, heading string, rows []T, cells func(T) []any) {
	Heading(w, heading)
	Rows(w, rows, cells)
}

// Heading begins a table.
func Heading(w io.Writer, heading string) {
	_, _ = fmt.Fprintln(w, strings.ReplaceAll(heading, "\t", Separator))
}

// Rows writes further lines of a table.
func Rows[T any](w io.Writer, rows []T, cells func(T) []any) {
	for _, row := range rows {
		line := each.Of(cells(row), render)
		_, _ = fmt.Fprintln(w, strings.Join(line, Separator))
	}
}

// List is Table for rows that there may be none of: then it writes the text none, if
// there is one.
func List[T any](w io.Writer, none, heading string, rows []T, cells func(T) []any) {
	switch {
	case len(rows) > 0:
		Table(w, heading, rows, cells)
	case none != "":
		_, _ = fmt.Fprintln(w, none)
	}
}

func render(cell any) string {
	switch cell := cell.(type) {
	case *string:
		return Cell(cell)
	case *time.Time:
		return Moment(cell)
	case time.Time:
		return Moment(&cell)
	}
	return oneLine(fmt.Sprint(cell))
}

// Age is how long ago something was, for people.
func Age(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return Span(time.Since(*at)) + " ago"
}

// Span is a length of time for people: in days from the second one on. Clocks differ, so
// that the beginning may lie ahead: then it is none.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	if d = max(0, d.Round(time.Second)); d < 2*day {
		return d.String()
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// Took is a length of time that may be far below a second, for people.
func Took(d time.Duration) string {
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

// Cell fits a text that may be missing, or have several lines, into one cell of a table.
func Cell(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return oneLine(*s)
}

func oneLine(s string) string {
	return strings.NewReplacer(";\n", "; ", "\n", "; ", "\t", " ", Separator, " ").Replace(s)
}

// Moment is a time for people, or a dash.
func Moment(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

// Instant renders a time that may be infinite.
func Instant(at pgtype.Timestamptz) string {
	if at.InfinityModifier != pgtype.Finite {
		return at.InfinityModifier.String()
	}
	return at.Time.UTC().Format(time.RFC3339)
}

// Listed joins names for a sentence.
func Listed(names []string) string { return strings.Join(names, ", ") }

// Meant asks for the one of several names that word was probably meant to be.
func Meant(word string, names []string) string {
	if near := problem.Nearest(word, names); near != "" && len(names) > 1 {
		return "; did you mean " + near + "?"
	}
	return ""
}

// Counted renders "1 trigger", "2 triggers".
func Counted[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%s %ss", Grouped(int64(n)), noun)
}

// Grouped writes a number with a comma before every three digits.
func Grouped(n int64) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// Capped renders a count that stopped at its cap if there are more.
func Capped(n int64, more bool) string {
	if more {
		return Grouped(n) + "+"
	}
	return Grouped(n)
}

// AtLeast is the prefix of a count that stopped at its cap.
func AtLeast(more bool) string {
	if more {
		return "at least "
	}
	return ""
}

// ErrorText renders how often an error came up in a pass.
func ErrorText(e batch.FaultCounts) string {
	text := batch.Fault{Table: e.Table, SQLState: e.SQLState, Message: e.Message}.Text()
	return fmt.Sprintf("%s (%s)", text, Counted(e.Count, "time"))
}
