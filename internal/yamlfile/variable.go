package yamlfile

import (
	"reflect"
	"slices"
	"strings"

	"sexton/internal/problem"
)

// Leaf is a key that holds a value rather than further keys.
type Leaf struct {
	// Path leads to it; "*" stands for a name that the file chooses.
	Path []string
	List bool
}

// Leaves lists the leaves of v, a struct as Decode fills it, in its order.
func Leaves(v any) []Leaf {
	return leaves(reflect.TypeOf(v), nil)
}

func leaves(t reflect.Type, path []string) []Leaf {
	var out []Leaf
	for _, s := range fieldsOf(t) {
		at := append(slices.Clone(path), s.key)
		field := t.Field(s.index).Type
		switch {
		case s.keyed:
			out = append(out, leaves(field.Elem(), append(at, "*"))...)
		case field.Kind() == reflect.Struct && field != reflect.TypeFor[Literal]():
			out = append(out, leaves(field, at)...)
		default:
			out = append(out, Leaf{Path: at, List: field.Kind() == reflect.Slice})
		}
	}
	return out
}

// FromVariable makes a node of what the variable or flag called source holds. A list is written with commas,
// a.yml,b.yml, or, if it is a list of mappings, as in YAML, [{table: t}]; everything else is taken as it is.
func FromVariable(source, text string, list bool) (*Node, problem.List) {
	if !list || !strings.HasPrefix(strings.TrimSpace(text), "[") {
		return &Node{Kind: Text, Text: text, Untyped: true, Place: Place{Source: source}}, nil
	}
	var problems problem.List
	node := parse("", []byte(text), &problems)
	for i := range problems {
		problems[i].Key = source + problems[i].Key
		problems[i].Position = problem.Position{}
	}
	if node == nil || len(problems) > 0 {
		return &Node{Kind: invalid, Place: Place{Source: source}}, problems
	}
	node.rebase(source)
	return node, nil
}

// rebase makes n and everything in it come from source. Key paths go on in the name, so that a message
// about SEXTON_GHOST_USERS__MOVE[0].table says which entry it means.
func (n *Node) rebase(source string) {
	n.Place = Place{Source: source}
	for i, item := range n.Items {
		item.rebase(joinIndex(source, i))
	}
	for i := range n.Fields {
		at := Join(source, n.Fields[i].Key)
		n.Fields[i].Place = Place{Source: at}
		n.Fields[i].Value.rebase(at)
	}
}
