package yamlfile

import (
	"strconv"
	"strings"

	"sexton/internal/problem"
)

// Kind is the shape of a node.
type Kind int

// The kinds. Everything that is neither a list nor a mapping is a scalar, told apart by how it is written.
const (
	Null Kind = iota
	Bool
	Int
	Float
	Text
	Sequence
	Mapping
	// invalid marks a value that has been reported already and is not looked at again.
	invalid
)

// describe names a kind as the object of "must be …, not …".
func (k Kind) describe() string {
	switch k {
	case Null:
		return "nothing"
	case Bool:
		return "true or false"
	case Int, Float:
		return "a number"
	case Text:
		return "a text"
	case Sequence:
		return "a list"
	default:
		return "a mapping"
	}
}

// Place says where a value was written: a position in a file, or the name of a variable or flag.
type Place struct {
	Position problem.Position
	// Source is the variable or flag, such as "SEXTON_JOBS__SCHEMA" or "--database-url"; empty for a file.
	Source string
}

// Problem words a finding about the value at this place. The key is the value's path in the document;
// where the value came from a variable or flag, its name stands instead.
func (p Place) Problem(key, message, fix string) problem.Problem {
	if p.Source != "" {
		key = p.Source
	}
	return problem.Problem{Severity: problem.Error, Position: p.Position, Key: key, Message: message, Fix: fix}
}

// Node is one value of a document.
type Node struct {
	Kind  Kind
	Place Place
	// Text is the text of a scalar, as written and without its quotes.
	Text string
	// Quoted tells a text in quotes, which is never a number, from a plain one.
	Quoted bool
	// Untyped marks text that carries no type of its own, because it came through a variable: the key
	// that it is for decides how it is read.
	Untyped bool
	// Items are the values of a sequence, Fields the entries of a mapping, both in order of writing.
	Items  []*Node
	Fields []Field
}

// Field is one entry of a mapping.
type Field struct {
	Key   string
	Place Place
	Value *Node
}

// Get returns the value under key, or nil where n is no mapping or has no such key.
func (n *Node) Get(key string) *Node {
	if n == nil {
		return nil
	}
	for i := range n.Fields {
		if n.Fields[i].Key == key {
			return n.Fields[i].Value
		}
	}
	return nil
}

// Set puts value at path, making the mappings on the way where they are missing or empty. Where something
// else stands in the way it changes nothing: Decode reports that something by its own place.
func (n *Node) Set(path []string, value *Node) {
	if n.Kind == Null {
		n.Kind = Mapping
	}
	if n.Kind != Mapping || len(path) == 0 {
		return
	}
	for i := range n.Fields {
		if n.Fields[i].Key != path[0] {
			continue
		}
		if len(path) == 1 {
			n.Fields[i].Place, n.Fields[i].Value = value.Place, value
			return
		}
		n.Fields[i].Value.Set(path[1:], value)
		return
	}
	child := value
	if len(path) > 1 {
		child = &Node{Kind: Mapping, Place: value.Place}
		child.Set(path[1:], value)
	}
	n.Fields = append(n.Fields, Field{Key: path[0], Place: value.Place, Value: child})
}

// Remove drops key from a mapping, if it is there.
func (n *Node) Remove(key string) {
	if n == nil {
		return
	}
	for i := range n.Fields {
		if n.Fields[i].Key == key {
			n.Fields = append(n.Fields[:i], n.Fields[i+1:]...)
			return
		}
	}
}

// Join appends a key to a path: "jobs" and "schema" give "jobs.schema". A key that is no plain word is
// quoted, and one that looks like a connection string, written in the wrong place, is not repeated.
func Join(path, key string) string {
	shown := key
	switch {
	case strings.Contains(key, "://") || strings.Contains(key, "@") || strings.Contains(key, "="):
		shown = "…"
	case !isWord(key):
		shown = strconv.Quote(key)
	}
	if path == "" {
		return shown
	}
	return path + "." + shown
}

func joinIndex(path string, i int) string {
	return path + "[" + strconv.Itoa(i) + "]"
}

func isWord(s string) bool {
	for _, r := range s {
		if r <= ' ' || strings.ContainsRune(`"'[]{}:,`, r) || !strconv.IsPrint(r) {
			return false
		}
	}
	return s != ""
}
