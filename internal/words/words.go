// Package words renders counts, lists and times for messages and tables.
package words

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/fault"
	"sexton/internal/problem"
)

// Age is how long ago something was, for people.
func Age(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return time.Since(*at).Round(time.Second).String() + " ago"
}

// Cell fits a text that may be missing, or have several lines, into one cell of a table.
func Cell(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return strings.NewReplacer("\n", "; ", "\t", " ").Replace(*s)
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
	return fmt.Sprintf("%d %ss", n, noun)
}

// AtLeast is the prefix of a count that stopped at its cap.
func AtLeast(more bool) string {
	if more {
		return "at least "
	}
	return ""
}

// ErrorText renders how often an error came up in a pass.
func ErrorText(e fault.Counts) string {
	text := fault.Fault{Table: e.Table, SQLState: e.SQLState, Message: e.Message}.Text()
	return fmt.Sprintf("%s (%s)", text, Counted(e.Count, "time"))
}
