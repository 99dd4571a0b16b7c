package yamlfile

import (
	"regexp"
	"strings"

	"sexton/internal/problem"
)

// Expand replaces ${NAME} in every text that came from a file; $${ stands for a literal ${. A text with a
// variable in it counts as untyped, so that limit: ${LIMIT} may be a number. Keys are left alone.
func (n *Node) Expand(lookup func(name string) (value string, set bool)) problem.List {
	var problems problem.List
	e := expander{lookup: lookup, name: regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`), problems: &problems}
	e.node(n, "")
	return problems
}

type expander struct {
	lookup   func(string) (string, bool)
	name     *regexp.Regexp
	problems *problem.List
}

func (e *expander) node(n *Node, path string) {
	for i, item := range n.Items {
		e.node(item, joinIndex(path, i))
	}
	for _, field := range n.Fields {
		e.node(field.Value, Join(path, field.Key))
	}
	if n.Kind == Text && n.Place.Source == "" && strings.Contains(n.Text, "${") {
		e.text(n, path)
	}
}

func (e *expander) text(n *Node, path string) {
	var out strings.Builder
	for rest := n.Text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "$${"):
			out.WriteString("${")
			rest = rest[3:]
		case strings.HasPrefix(rest, "${"):
			name, after, closed := strings.Cut(rest[2:], "}")
			rest = after
			if !closed || !e.name.MatchString(name) {
				e.problems.Add(n.Place.Problem(path, "${ does not begin a variable such as ${NAME}", "write $${ for a literal ${"))
				n.Kind = invalid
				return
			}
			value, set := e.lookup(name)
			if !set {
				e.problems.Add(n.Place.Problem(path, "the environment variable "+name+" is not set", ""))
				n.Kind = invalid
			}
			out.WriteString(value)
			n.Untyped = true
		default:
			next := 1 + strings.Index(rest[1:]+"$", "$")
			out.WriteString(rest[:next])
			rest = rest[next:]
		}
	}
	n.Text = out.String()
}
