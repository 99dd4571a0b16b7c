package yamlfile

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"sexton/internal/problem"
)

// The limits are far beyond any file that a person writes: GitLab's 340 definitions take
// 35 kB.
const (
	maxSize  = 1 << 20
	maxDepth = 64
)

// Parse reads one YAML document whose top level is a mapping; an empty file is an empty
// mapping. It returns what it understood together with everything that it did not; the
// document is nil if that is nothing.
func Parse(file string, data []byte) (*Document, problem.List) {
	d := &Document{file: file, sources: map[*yaml.Node]string{}}
	var problems problem.List
	d.Root, problems = d.parse(data, "")
	if d.Root == nil {
		return nil, problems
	}
	if d.Root.Kind != yaml.MappingNode {
		problems.Add(d.Position(d.Root).Problem("", "the top level must be a mapping of keys", ""))
		return nil, problems
	}
	return d, problems
}

// parse reads the text of a file or, if source is not empty, of the variable or flag of
// that name.
func (d *Document) parse(data []byte, source string) (*yaml.Node, problem.List) {
	r := resolver{Document: d, source: source}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(data) > maxSize {
		r.fail(&yaml.Node{Line: 1, Column: 1}, source, "the file has "+strconv.Itoa(len(data))+" bytes; the limit is "+
			strconv.Itoa(maxSize), "")
		return nil, r.problems
	}
	// YAML does not allow NUL either.
	if i := bytes.IndexByte(bytes.ToValidUTF8(data, []byte{0}), 0); i >= 0 {
		line := bytes.Count(data[:i], []byte("\n")) + 1
		column := utf8.RuneCount(data[bytes.LastIndexByte(data[:i], '\n')+1:i]) + 1
		r.fail(&yaml.Node{Line: line, Column: column}, source, "the file is not valid UTF-8 text", "")
		return nil, r.problems
	}
	roots, err := readAll(data)
	if err != nil {
		line, message := syntaxError(data, err)
		r.fail(&yaml.Node{Line: line}, source, message, "")
		return nil, r.problems
	}
	if len(roots) == 0 {
		return &yaml.Node{Kind: yaml.MappingNode, Line: 1, Column: 1}, nil
	}
	if len(roots) > 1 {
		r.fail(roots[1], source, "a second document begins here", "keep one document per file")
	}
	return r.node(roots[0], source, 0), r.problems
}

// readAll returns the roots of all documents that are not empty.
func readAll(data []byte) ([]*yaml.Node, error) {
	// The library knows YAML 1.1 only, and what 1.2 changes is of no matter here.
	if rest, ok := bytes.CutPrefix(data, []byte("%YAML 1.2")); ok {
		data = append([]byte("%YAML 1.1"), rest...)
	}
	var roots []*yaml.Node
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return nil, err
		}
		if root := document.Content[0]; root.Tag != tagNull {
			roots = append(roots, root)
		}
	}
}

// syntaxError takes the line out of an error of the library, which names none for the
// first line and counts from 0 where its parser, rather than its scanner, complains. The
// messages repeat nothing of the file.
func syntaxError(data []byte, err error) (line int, message string) {
	if strings.HasPrefix(err.Error(), "yaml: unknown anchor ") {
		// This error has no line: the shortest beginning of the file with the same error
		// ends in it.
		lines := slices.Collect(bytes.Lines(data))
		return 1 + sort.Search(len(lines)-1, func(i int) bool {
			_, short := readAll(bytes.Join(lines[:i+1], nil))
			return short != nil && short.Error() == err.Error()
		}), noAliases
	}
	parts := regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`).FindStringSubmatch(err.Error())
	if parts == nil {
		return 1, "YAML syntax: the text is not YAML"
	}
	line, message = 1, parts[2]
	if number, err := strconv.Atoi(parts[1]); err == nil {
		line = number
	}
	switch {
	case parts[1] != "" && regexp.MustCompile(`^did not find expected (key|node|'|<)`).MatchString(message):
		line++
	case message == "found unexpected end of stream":
		message = "a quoted text has no end"
	}
	return line, "YAML syntax: " + message
}

// noAliases is what is wrong with an alias or a merge key.
const noAliases = "aliases and merge keys are not supported; write the value out"

// resolver makes the tree of a Document.
type resolver struct {
	*Document

	source   string
	problems problem.List
	// deep reports that a value is nested too deeply, which is reported once.
	deep bool
}

// fail reports n and returns what takes its place.
func (r *resolver) fail(n *yaml.Node, path, message, fix string) *yaml.Node {
	position := r.Position(n)
	if r.source != "" {
		position = Position{Source: path}
	}
	r.problems.Add(position.Problem(path, message, fix))
	return &yaml.Node{Line: n.Line, Column: n.Column}
}

func (r *resolver) node(n *yaml.Node, path string, depth int) *yaml.Node {
	out := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Style: n.Style, Value: n.Value, Line: n.Line, Column: n.Column}
	switch {
	case n.Kind == yaml.AliasNode:
		return r.fail(n, path, noAliases, "")
	case depth > maxDepth && r.deep:
		return &yaml.Node{}
	case depth > maxDepth:
		r.deep = true
		return r.fail(n, r.source, "more than "+strconv.Itoa(maxDepth)+" levels of nesting", "")
	case n.Style&yaml.TaggedStyle != 0 && (n.Tag != tagText || n.Kind != yaml.ScalarNode):
		return r.fail(n, path, "tags are not supported, except !!str before a scalar", "")
	case n.Kind == yaml.MappingNode:
		r.mapping(out, n, path, depth)
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			out.Content = append(out.Content, r.node(item, joinIndex(path, i), depth+1))
		}
	case n.Tag == tagBool:
		out.Value = strings.ToLower(n.Value)
	case n.Tag != tagNull && n.Tag != tagInt && n.Tag != tagFloat:
		out.Tag = tagText // Dates are texts here.
	}
	if r.source != "" {
		r.sources[out] = path
	}
	return out
}

func (r *resolver) mapping(out, n *yaml.Node, path string, depth int) {
	lines := map[string]int{}
	for pair := range slices.Chunk(n.Content, 2) {
		key := *pair[0]
		at := Join(path, key.Value)
		switch {
		case key.Tag == "!!merge":
			r.fail(&key, path, noAliases, "")
		case key.Kind != yaml.ScalarNode:
			r.fail(&key, path, "a key must be a plain text", "")
		case lines[key.Value] > 0:
			r.fail(&key, at, "the key is given twice, first in line "+strconv.Itoa(lines[key.Value]), "")
		default:
			lines[key.Value] = key.Line
			value := r.node(pair[1], at, depth+1)
			// What stands in lines of its own, or nowhere, is best found by its key.
			if value.Tag == tagNull || value.Kind == yaml.MappingNode && pair[1].Style&yaml.FlowStyle == 0 {
				value.Line, value.Column = key.Line, key.Column
			}
			if r.source != "" {
				r.sources[&key] = at
			}
			out.Content = append(out.Content, &key, value)
		}
	}
}
