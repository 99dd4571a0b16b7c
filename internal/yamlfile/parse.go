package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"sexton/internal/problem"
)

// maxSize is the size limit of a file in bytes. GitLab's 340 definitions take 35 kB.
const maxSize = 1 << 20

// The kinds of a Node have the names that error messages use. A value whose error was
// already reported has no kind.
const (
	Null    = "nothing"
	boolean = "true or false"
	integer = "a whole number"
	decimal = "a fraction"
	text    = "a string"
	List    = "a list"
	Mapping = "a mapping"
)

// Position is the origin of a value: a file, a variable or a flag.
type Position struct {
	problem.Position
	// Source is the variable or flag, such as "SEXTON_JOBS__OWNER". It is empty for a
	// file.
	Source string
}

// Problem returns a finding about the value at this position. The key is the path of the
// value; the name of a variable or flag replaces it.
func (p Position) Problem(key, message, fix string) problem.Problem {
	if p.Source != "" {
		key = p.Source
	}
	return problem.Problem{Position: p.Position, Key: key, Message: message, Fix: fix}
}

// Node is a value, or an entry of a mapping.
type Node struct {
	Position
	// Key is the key of the entry. KeyPosition is the position of the key. Key and
	// KeyPosition are empty if the value is not in a mapping.
	Key         string
	KeyPosition Position
	Kind        string
	// Items are the entries of a list or mapping.
	Items []*Node

	text string
	// quoted is true if the text is in quotes in the file. untyped is true if the text
	// came from a variable, so that the type of the field decides whether the text is a
	// number, for example.
	quoted, untyped bool
}

// ReadFile reads a file. Unlike those of os.ReadFile, its errors do not contain the path.
func ReadFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if pathError, ok := errors.AsType[*os.PathError](err); ok {
		err = pathError.Err
	}
	return data, err
}

// Parse reads one YAML document with a mapping at the top level; an empty file is an
// empty mapping. It returns nil if the file has no such mapping.
func Parse(file string, data []byte) (*Node, problem.List) {
	r := reader{file: file}
	root := r.parse(data, "")
	switch root.Kind {
	case Mapping:
		return root, r.problems
	case Null:
		root.Kind = Mapping
		return root, r.problems
	case "":
	default:
		r.fail(root.Position, "", "the top level must be a mapping of keys", "")
	}
	return nil, r.problems
}

// reader turns the syntax tree of a file, or of the text of a variable, into Nodes.
type reader struct {
	file     string
	variable bool
	problems problem.List
}

// position returns the position of a line and column in a file. In the text of a
// variable, it returns the path of the value instead, which begins with the name of the
// variable.
func (r *reader) position(line, column int, path string) Position {
	if r.variable {
		return Position{Source: path}
	}
	return Position{Position: problem.Position{File: r.file, Line: line, Column: column}}
}

// fail adds a problem with a value, and returns a node without a kind that replaces the
// value.
func (r *reader) fail(at Position, path, message, fix string) *Node {
	r.problems.Add(at.Problem(path, message, fix))
	return &Node{Position: at}
}

func (r *reader) parse(data []byte, path string) *Node {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	start := r.position(1, 1, path)
	if len(data) > maxSize {
		return r.fail(start, path, fmt.Sprintf("the file has %d bytes; the limit is %d", len(data), maxSize), "")
	}
	// YAML does not allow NUL.
	valid, _, _ := bytes.Cut(bytes.ToValidUTF8(data, []byte{0}), []byte{0})
	if len(valid) < len(data) {
		column := utf8.RuneCount(valid[bytes.LastIndexByte(valid, '\n')+1:]) + 1
		return r.fail(r.position(bytes.Count(valid, []byte("\n"))+1, column, path), path, "the file is not valid UTF-8 text", "")
	}
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if syntax, ok := errors.AsType[yaml.Error](err); ok {
		// Some messages end with a quoted part of the file, which may be a secret.
		message, _, _ := strings.Cut(syntax.GetMessage(), `"`)
		at := syntax.GetToken().Position
		return r.fail(r.position(at.Line, at.Column, path), path, "YAML syntax: "+strings.TrimRight(message, ": "), "")
	}
	root := &Node{Position: start, Kind: Null}
	for _, document := range file.Docs {
		switch document.Body.(type) {
		case nil, *ast.DirectiveNode, *ast.NullNode:
			continue
		}
		next := r.node(document.Body, path)
		if root.Kind != Null {
			r.fail(next.Position, path, "a second document begins here", "keep one document per file")
			break
		}
		root = next
	}
	return root
}

func (r *reader) node(from ast.Node, path string) *Node {
	at := from.GetToken().Position
	n := &Node{Position: r.position(at.Line, at.Column, path)}
	switch from := from.(type) {
	case *ast.MappingNode:
		n.Kind = Mapping
		if len(from.Values) > 0 && !from.IsFlowStyle {
			n.Position = r.key(from.Values[0].Key, path)
		}
		for _, entry := range from.Values {
			r.entry(n, entry, path)
		}
	case *ast.SequenceNode:
		n.Kind = List
		for i, item := range from.Values {
			n.Items = append(n.Items, r.node(item, joinIndex(path, i)))
		}
	case *ast.NullNode:
		n.Kind = Null
	case *ast.BoolNode:
		n.Kind, n.text = boolean, strconv.FormatBool(from.Value)
	case *ast.IntegerNode:
		n.Kind, n.text = integer, fmt.Sprint(from.Value)
		if from.Token.Type == token.OctetIntegerType {
			// YAML 1.1 reads 010 as eight, and YAML 1.2 as ten. So Sexton refuses it as a
			// number and accepts it as a string.
			n.Kind, n.text = text, from.Token.Value
		}
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.Kind = decimal
	case *ast.StringNode:
		n.Kind, n.text, n.quoted = text, from.Value, from.Token.Type != token.StringType
	case *ast.LiteralNode:
		n.Kind, n.text, n.quoted = text, from.Value.Value, true
	default:
		return r.fail(n.Position, path, "tags, anchors and aliases are not supported", "write the value out")
	}
	return n
}

// entry adds an entry of the syntax tree to a mapping.
func (r *reader) entry(n *Node, from *ast.MappingValueNode, path string) {
	scalar, ok := from.Key.(ast.ScalarNode)
	if question, explicit := from.Key.(*ast.MappingKeyNode); explicit {
		scalar, ok = question.Value.(ast.ScalarNode)
	}
	if !ok || from.Key.IsMergeKey() {
		r.fail(r.key(from.Key, path), path, "a key must be a plain string", "")
		return
	}
	key := scalar.GetToken().Value
	path = Join(path, key)
	at := r.key(from.Key, path)
	if i := n.index(key); i >= 0 {
		r.fail(at, path, fmt.Sprintf("the key is given twice, first in line %d", n.Items[i].KeyPosition.Line), "")
		return
	}
	value := r.node(from.Value, path)
	value.Key, value.KeyPosition = key, at
	// If a value is missing, or is a mapping that begins on the next line, errors have
	// the position of the key.
	if mapping, block := from.Value.(*ast.MappingNode); value.Kind == Null || block && !mapping.IsFlowStyle {
		value.Position = at
	}
	n.Items = append(n.Items, value)
}

func (r *reader) key(key ast.MapKeyNode, path string) Position {
	at := key.GetToken().Position
	return r.position(at.Line, at.Column, path)
}

// index returns the index of the entry with a key, or -1.
func (n *Node) index(key string) int {
	return slices.IndexFunc(n.Items, func(entry *Node) bool { return entry.Key == key })
}

// Set replaces the value at path by the text of a variable or flag. Missing and empty
// mappings in the path are created. If a parent is not a mapping, nothing is changed, and
// Decode reports the parent.
func (n *Node) Set(source, value string, path ...string) {
	position := Position{Source: source}
	for _, key := range path {
		if n.Kind == Null {
			n.Kind = Mapping
		}
		if n.Kind != Mapping {
			return
		}
		i := n.index(key)
		if i < 0 {
			i = len(n.Items)
			n.Items = append(n.Items, &Node{Position: position, Key: key, KeyPosition: position, Kind: Null})
		}
		n = n.Items[i]
	}
	*n = Node{Position: position, Key: n.Key, KeyPosition: position, Kind: text, text: value, untyped: true}
}

// Join appends a key to a path: "jobs" and "owner" give "jobs.owner". A key with
// special characters is quoted. A key that looks like a misplaced connection string is
// replaced by an ellipsis.
func Join(path, key string) string {
	shown := key
	switch {
	case strings.Contains(key, "://") || strings.ContainsAny(key, "@="):
		shown = "…"
	case key == "" || strings.ContainsFunc(key, func(r rune) bool {
		return r <= ' ' || strings.ContainsRune(`"'[]{}:,`, r) || !strconv.IsPrint(r)
	}):
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
