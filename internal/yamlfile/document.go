package yamlfile

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"sexton/internal/problem"
)

// The tags of scalars.
const (
	tagNull  = "!!null"
	tagBool  = "!!bool"
	tagInt   = "!!int"
	tagFloat = "!!float"
	tagText  = "!!str"
	// tagUntyped marks text that came through a variable: its key decides how it is read.
	tagUntyped = "!untyped"
)

// Document is the content of a file together with the values that variables and flags
// have laid over it.
type Document struct {
	// Root is a mapping. A node of kind 0 is a value that has been reported already.
	Root *yaml.Node
	// Variable looks up the NAME of a ${NAME} in the file; nil leaves all texts as they
	// are.
	Variable func(name string) (value string, set bool)

	file string
	// sources names the variable or flag of each node that is not from the file.
	sources map[*yaml.Node]string
}

// Position is where a value was given: in a file, or by a variable or flag.
type Position struct {
	Position problem.Position
	// Source is the variable or flag, such as "SEXTON_JOBS__SCHEMA" or "--database-url";
	// empty for a file.
	Source string
}

// Problem words a finding about the value at this position. The key is the value's path
// in the document; the name of a variable or flag takes its place.
func (p Position) Problem(key, message, fix string) problem.Problem {
	if p.Source != "" {
		key = p.Source
	}
	return problem.Problem{Severity: problem.Error, Position: p.Position, Key: key, Message: message, Fix: fix}
}

// Position returns the position of a key or value of the document.
func (d *Document) Position(n *yaml.Node) Position {
	if source := d.sources[n]; source != "" {
		return Position{Source: source}
	}
	return Position{Position: problem.Position{File: d.file, Line: n.Line, Column: n.Column}}
}

// Override puts the text of the variable or flag called source at path, making the
// mappings on the way where they are missing or empty. Where something else stands in the
// way it changes nothing: Decode reports that something by its own place. A list is
// written with commas, a.yml,b.yml, or, if it is a list of mappings, as in YAML, [{table:
// t}]; everything else is taken as it is.
func (d *Document) Override(source, text string, list bool, path ...string) problem.List {
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: tagUntyped, Value: text}
	var problems problem.List
	if list && strings.HasPrefix(strings.TrimSpace(text), "[") {
		if value, problems = d.parse([]byte(text), source); len(problems) > 0 {
			value = &yaml.Node{}
		}
	}
	d.sources[value] = source
	d.set(d.Root, path, source, value)
	return problems
}

func (d *Document) set(n *yaml.Node, path []string, source string, value *yaml.Node) {
	for i, key := range path {
		if n.Tag == tagNull {
			*n = yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column}
		}
		if n.Kind != yaml.MappingNode {
			return
		}
		at := find(n, key)
		if at < 0 {
			at = len(n.Content)
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: tagText, Value: key},
				&yaml.Node{Kind: yaml.MappingNode})
			d.sources[n.Content[at]], d.sources[n.Content[at+1]] = source, source
		}
		if i == len(path)-1 {
			d.sources[n.Content[at]], n.Content[at+1] = source, value
			return
		}
		n = n.Content[at+1]
	}
}

// find returns the index of a key in the content of a mapping, or -1.
func find(n *yaml.Node, key string) int {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// Join appends a key to a path: "jobs" and "schema" give "jobs.schema". A key that is no
// plain word is quoted, and one that looks like a connection string, written in the wrong
// place, is not repeated.
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
