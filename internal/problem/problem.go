// Package problem collects the problems of configuration and definitions, so that one run
// reports all of them, each with its position, key and fix. The entry points are List and
// Problem.
package problem

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sexton/internal/render"
)

// Position is a position in a file. Line and Column count from 1. If Line is 0, the
// position is the complete file. If File is empty, the problem is about an environment
// variable or a flag, which Problem.Key names.
type Position struct {
	File   string
	Line   int
	Column int
}

// String returns file:line:column without the unknown parts.
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

// Severity determines whether a problem stops the program.
type Severity string

// An Error stops the program before it changes anything. Warning and Info are only
// printed.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

// Problem is one problem of the configuration or the definitions.
type Problem struct {
	Severity Severity
	Position Position
	// Key is the path of the offending key, such as "databases.main.pace" or
	// "issues[2].on_delete".
	Key string
	// Message describes the problem, in lower case and without a period.
	Message string
	// Fix describes the correction. It is empty if the message contains the correction.
	Fix string
}

// String returns "file:line:column: key: message (fix)".
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

// List holds the problems of a run. The zero value is ready to use.
type List []Problem

// Errorf adds a problem of severity Error without a fix.
func (l *List) Errorf(pos Position, key, format string, args ...any) {
	l.Add(Problem{Severity: Error, Position: pos, Key: key, Message: fmt.Sprintf(format, args...)})
}

// Add appends problems. An empty severity counts as Error.
func (l *List) Add(problems ...Problem) {
	for _, p := range problems {
		if p.Severity == "" {
			p.Severity = Error
		}
		*l = append(*l, p)
	}
}

// Err returns the problems of severity Error as a List, sorted by position. It returns
// nil if there are none.
func (l List) Err() error {
	errs := l.Only(Error)
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// Only returns the problems of one severity, sorted by position.
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

// Error returns one line per problem.
func (l List) Error() string {
	return strings.Join(render.Each(l, Problem.String), "\n")
}

// Nearest returns the candidate that is most similar to word, or "" if no candidate is
// similar.
func Nearest(word string, candidates []string) string {
	// One letter, or up to a third of the letters, may differ. With more, short words
	// would match anything.
	best, bestDistance := "", max(1, len(word)/3)+1
	for _, candidate := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// Meant returns the fix for an unknown name: a question that suggests the nearest
// candidate or, if no candidate is similar, the text in the parameter otherwise.
func Meant(name string, candidates []string, otherwise string) string {
	if near := Nearest(name, candidates); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return otherwise
}

// Suggestion returns a clause that names the nearest of several names. It returns "" if
// there is only one name or none is similar.
func Suggestion(word string, names []string) string {
	if near := Nearest(word, names); near != "" && len(names) > 1 {
		return "; did you mean " + near + "?"
	}
	return ""
}

// distance returns the edit distance of two words. A swap of adjacent letters counts as
// one edit.
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

// Doing wraps an error with the failed operation. It returns nil if err is nil.
func Doing(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), err)
}
