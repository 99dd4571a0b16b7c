package yamlfile

import (
	"bytes"
	"errors"
	"regexp"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"sexton/internal/problem"
)

const (
	// maxSize keeps the parser, which is quadratic in the number of keys, within seconds. GitLab's 340
	// definitions take 35 kB.
	maxSize = 1 << 20
	// maxDepth is far beyond any document that has a meaning here.
	maxDepth = 64
)

// Parse reads one YAML document whose top level is a mapping; an empty document is an empty mapping. It
// returns what it understood together with everything that it did not; the node is nil where that is nothing.
func Parse(file string, data []byte) (*Node, problem.List) {
	var problems problem.List
	root := parse(file, data, &problems)
	if root == nil {
		return nil, problems
	}
	if root.Kind != Mapping {
		problems.Add(root.Place.Problem("", "the top level must be a mapping of keys", ""))
		return nil, problems
	}
	return root, problems
}

func parse(file string, data []byte, problems *problem.List) *Node {
	at := func(line, column int) problem.Position {
		return problem.Position{File: file, Line: line, Column: column}
	}
	if len(data) > maxSize {
		problems.Errorf(at(1, 1), "", "the file has %d bytes; the limit is %d", len(data), maxSize)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if line, column, ok := firstInvalid(data); ok {
		problems.Errorf(at(line, column), "", "the file is not valid UTF-8 text")
		return nil
	}
	tokens := lexer.Tokenize(string(data))
	if deep := tooDeep(tokens); deep != nil {
		problems.Errorf(at(deep.Line, deep.Column), "", "more than %d levels of nesting", maxDepth)
		return nil
	}
	tree, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		line, column, message := syntaxError(err)
		problems.Errorf(at(line, column), "", "YAML syntax: %s", message)
		return nil
	}

	c := converter{file: file, problems: problems, anchors: map[string]*Node{}}
	var root *Node
	for _, doc := range tree.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType {
			continue
		}
		if root != nil {
			problems.Add(c.place(doc.Body).Problem("", "a second document begins here", "keep one document per file"))
			break
		}
		root = c.node(doc.Body, "")
	}
	if root == nil || root.Kind == Null {
		return &Node{Kind: Mapping, Place: Place{Position: at(1, 1)}}
	}
	return root
}

// firstInvalid finds the first byte that is no UTF-8 or is NUL, which YAML does not allow either.
func firstInvalid(data []byte) (line, column int, found bool) {
	line, column = 1, 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == 0 || r == utf8.RuneError && size == 1 {
			return line, column, true
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
		data = data[size:]
	}
	return 0, 0, false
}

// tooDeep returns where the nesting passes maxDepth. It looks at tokens, because the parser itself needs
// memory that grows with the square of the depth.
func tooDeep(tokens token.Tokens) *token.Position {
	flow, tags := 0, 0
	var blocks []int
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow = max(0, flow-1)
		case token.TagType:
			tags++
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType:
			tags = 0
			if flow > 0 {
				break
			}
			// A block is inside another only if it begins further to the right.
			for len(blocks) > 0 && blocks[len(blocks)-1] >= t.Position.Column {
				blocks = blocks[:len(blocks)-1]
			}
			blocks = append(blocks, t.Position.Column)
		default:
			tags = 0
		}
		if flow+len(blocks)+tags > maxDepth {
			return t.Position
		}
	}
	return nil
}

func syntaxError(err error) (line, column int, message string) {
	line, column, message = 1, 1, "the text is not YAML"
	var located yaml.Error
	if !errors.As(err, &located) {
		return line, column, message
	}
	message = withoutExcerpts(located.GetMessage())
	if t := located.GetToken(); t != nil && t.Position != nil {
		line, column = max(1, t.Position.Line), max(1, t.Position.Column)
	}
	return line, column, message
}

// withoutExcerpts drops quoted pieces of the file, which may be part of a password; a single quoted
// character stays, because it is what most syntax errors are about.
func withoutExcerpts(message string) string {
	excerpt := regexp.MustCompile(`"(?:[^"\\]|\\.){2,}"|'(?:[^'\\]|\\.){2,}'`)
	message = excerpt.ReplaceAllString(message, "…")
	if message == "" {
		return "the text is not YAML"
	}
	return message
}
