// Package problem collects what is wrong with configuration and definitions, so that one
// run reports all of it, each finding with its place, its key and the way out.
package problem

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sexton/internal/render"
)

// Position is a place in a file that a person wrote. Line and Column count from 1; a zero
// Line means that the finding concerns the file as a whole, an empty File that it came
// from no file (an environment variable, a flag), which Key then names.
type Position struct {
	File   string
	Line   int
	Column int
}

// String renders file:line:column, leaving out what is unknown.
func (p Position) String() string {
	switch {
	case p.File == "":
		return ""
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	default:
		return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	}
}

// Severity says whether a finding stops the program.
type Severity string

// The severities. Errors stop before anything runs; warnings and information are shown
// only.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

// Problem is one finding.
type Problem struct {
	Severity Severity
	Position Position
	// Key is the path of the offending key, such as "databases.main.pace" or
	// "issues[2].on_delete".
	Key string
	// Message says what is wrong, in lower case and without a full stop.
	Message string
	// Fix says what to do about it; empty where the message says it already.
	Fix string
}

// String renders "file:line:column: key: message (fix)".
func (p Problem) String() string {
	parts := make([]string, 0, 3)
	if place := p.Position.String(); place != "" {
		parts = append(parts, place)
	}
	if p.Key != "" {
		parts = append(parts, p.Key)
	}
	text := strings.Join(append(parts, p.Message), ": ")
	if p.Fix != "" {
		text += " (" + p.Fix + ")"
	}
	return text
}

// List is a set of findings. The zero value is ready to use.
type List []Problem

// Errorf adds a finding of severity Error without a fix.
func (l *List) Errorf(pos Position, key, format string, args ...any) {
	l.Add(Problem{Severity: Error, Position: pos, Key: key, Message: fmt.Sprintf(format, args...)})
}

// Add appends findings; an empty severity counts as Error.
func (l *List) Add(problems ...Problem) {
	for _, p := range problems {
		if p.Severity == "" {
			p.Severity = Error
		}
		*l = append(*l, p)
	}
}

// Err returns the errors of the list, sorted by place, as one error of type List, or nil
// where there are none. Warnings and information are left out.
func (l List) Err() error {
	errs := l.Only(Error)
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// Only returns the findings of one severity, sorted by place.
func (l List) Only(severity Severity) List {
	var out List
	for _, p := range l {
		if p.Severity == severity {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b Problem) int {
		one, two := a.Position, b.Position
		return cmp.Or(strings.Compare(one.File, two.File), one.Line-two.Line, one.Column-two.Column)
	})
	return out
}

// Error renders one finding per line.
func (l List) Error() string {
	return strings.Join(render.Each(l, Problem.String), "\n")
}

// Nearest returns the candidate that word was probably meant to be, or "" where none is
// close.
func Nearest(word string, candidates []string) string {
	// A third of the letters may differ; more, and short words would resemble anything.
	best, bestDistance := "", max(1, len(word)/3)+1
	for _, candidate := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// Meant is the fix for a name that does not exist: the nearest of the candidates or,
// where none is close, something else.
func Meant(name string, candidates []string, otherwise string) string {
	if near := Nearest(name, candidates); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return otherwise
}

// Suggestion returns a clause that names the nearest of several names, or "" if there is
// only one name or none is close.
func Suggestion(word string, names []string) string {
	if near := Nearest(word, names); near != "" && len(names) > 1 {
		return "; did you mean " + near + "?"
	}
	return ""
}

// distance is the edit distance with neighbouring letters swapped counting as one edit.
func distance(a, b string) int {
	ra, rb := []rune(a), []rune(b)
	rows := make([][]int, len(ra)+1)
	for i := range rows {
		rows[i] = make([]int, len(rb)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(ra); i++ {
		for j := 1; j <= len(rb); j++ {
			cost := 1
			if ra[i-1] == rb[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(ra)][len(rb)]
}

// Doing adds to an error what was being done. Nil stays nil.
func Doing(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), err)
}
