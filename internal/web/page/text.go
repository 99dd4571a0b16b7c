package page

import (
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"sexton/internal/operator"
	"sexton/internal/render"
)

// plural returns the unit in the singular or plural form for n.
func plural(n int64, unit string) string { return verb(n, unit, unit+"s") }

// span formats a duration with at most two units, such as "2 h 5 min".
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = d.Abs(); {
	case d < 950*time.Millisecond:
		return "under a second"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return two(d, time.Minute, "min", time.Second, "s")
	case d < day:
		return two(d, time.Hour, "h", time.Minute, "min")
	default:
		return two(d, day, "d", time.Hour, "h")
	}
}

func two(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// took formats the duration of a run, which is usually far below a second.
func took(d time.Duration) string {
	if d < time.Second {
		return render.Duration(d)
	}
	return span(d)
}

// moment is a time in several formats, for one HTML element.
type moment struct {
	// Machine is for the datetime attribute, Exact for the tooltip, and Relative for the
	// text.
	Machine, Exact, Relative string
}

// momentAt formats the time at relative to now.
func momentAt(now, at time.Time) moment {
	at = at.UTC()
	m := moment{Machine: at.Format(time.RFC3339), Exact: at.Format("2006-01-02 15:04:05 UTC")}
	switch distance := at.Sub(now); {
	case distance > time.Second:
		m.Relative = "in " + whole(distance)
	case distance > 0:
		m.Relative = "now"
	case distance > -time.Second:
		m.Relative = "just now"
	default:
		m.Relative = whole(distance) + " ago"
	}
	return m
}

// whole formats a duration in whole seconds, because fractions would change with every
// refresh.
func whole(d time.Duration) string { return span(d.Abs().Truncate(time.Second)) }

// sentence returns the text with a capital first letter.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 || first == utf8.RuneError {
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}

// briefLength is the maximum length of texts from other programs, in characters. An error
// can contain a whole statement, and a change can name a thousand IDs. The limit keeps
// the page small, which browsers fetch every two seconds.
const briefLength = 280

// brief truncates a text to briefLength characters.
func brief(text string) string {
	if utf8.RuneCountInString(text) <= briefLength {
		return text
	}
	return string([]rune(text)[:briefLength]) + "…"
}

// outcomeText returns the outcome of a run for people.
func outcomeText(outcome string) string {
	switch outcome {
	case "over_limit":
		return "reached its limit"
	case operator.NoProgress:
		return "no progress"
	}
	return outcome
}
