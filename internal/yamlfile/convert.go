package yamlfile

import (
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"sexton/internal/problem"
)

// maxNodes bounds what aliases of aliases can grow to.
const maxNodes = 200_000

// converter turns the parser's tree into nodes: aliases resolved, merge keys merged, keys unique.
type converter struct {
	file     string
	problems *problem.List
	anchors  map[string]*Node
	nodes    int
}

func (c *converter) place(n ast.Node) Place {
	position := problem.Position{File: c.file, Line: 1, Column: 1}
	// A block mapping's own token is the colon after its first key.
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		position.Line, position.Column = max(1, t.Position.Line), max(1, t.Position.Column)
	}
	return Place{Position: position}
}

func (c *converter) node(n ast.Node, path string) *Node {
	out := &Node{Place: c.place(n)}
	c.nodes++
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		out.Kind, out.Text = Bool, strconv.FormatBool(n.Value)
	case *ast.IntegerNode:
		out.Kind, out.Text = Int, n.Token.Value
	case *ast.FloatNode:
		out.Kind, out.Text = Float, n.Token.Value
	case *ast.InfinityNode:
		out.Kind, out.Text = Float, n.Token.Value
	case *ast.NanNode:
		out.Kind, out.Text = Float, n.Token.Value
	case *ast.StringNode:
		out.Kind, out.Text = Text, n.Value
		out.Quoted = n.Token.Type == token.SingleQuoteType || n.Token.Type == token.DoubleQuoteType
	case *ast.LiteralNode:
		out.Kind, out.Text, out.Quoted = Text, n.Value.Value, true
	case *ast.SequenceNode:
		out.Kind = Sequence
		for i, item := range n.Values {
			out.Items = append(out.Items, c.node(item, joinIndex(path, i)))
		}
	case *ast.MappingNode:
		c.mapping(out, n.Values, path)
	case *ast.MappingValueNode:
		c.mapping(out, []*ast.MappingValueNode{n}, path)
	case *ast.AnchorNode:
		value := c.node(n.Value, path)
		c.anchors[n.Name.GetToken().Value] = value
		return value
	case *ast.AliasNode:
		return c.alias(n, path)
	case *ast.TagNode:
		return c.tagged(n, path)
	default:
		c.problems.Add(out.Place.Problem(path, "this YAML feature is not supported", ""))
		out.Kind = invalid
	}
	return out
}

func (c *converter) mapping(out *Node, values []*ast.MappingValueNode, path string) {
	out.Kind = Mapping
	lines := map[string]int{}
	var merges []ast.Node
	for _, entry := range values {
		if entry.Key.IsMergeKey() {
			merges = append(merges, entry.Value)
			continue
		}
		place := c.place(entry.Key)
		key, ok := keyText(entry.Key)
		if !ok {
			c.problems.Add(place.Problem(path, "a key must be a plain text", ""))
			continue
		}
		keyPath := Join(path, key)
		value := c.node(entry.Value, keyPath)
		if value.Kind == Null || value.Kind == Mapping && !isFlow(entry.Value) {
			value.Place = place
		}
		if first, twice := lines[key]; twice {
			c.problems.Add(place.Problem(keyPath, "the key is given twice, first in line "+strconv.Itoa(first), ""))
			continue
		}
		lines[key] = place.Position.Line
		out.Fields = append(out.Fields, Field{Key: key, Place: place, Value: value})
	}
	for _, merge := range merges {
		c.merge(out, merge, path)
	}
}

// merge adds the fields that the mapping lacks, wherever in it the merge key stands.
func (c *converter) merge(out *Node, from ast.Node, path string) {
	value := c.node(from, path)
	sources := []*Node{value}
	if value.Kind == Sequence {
		sources = value.Items
	}
	for _, source := range sources {
		if source.Kind == invalid {
			continue
		}
		if source.Kind != Mapping {
			c.problems.Add(source.Place.Problem(Join(path, "<<"), "a merge key must name a mapping or a list of them", ""))
			continue
		}
		for _, field := range source.Fields {
			if out.Get(field.Key) == nil {
				out.Fields = append(out.Fields, field)
			}
		}
	}
}

func (c *converter) alias(n *ast.AliasNode, path string) *Node {
	place := c.place(n)
	name := n.Value.GetToken().Value
	target, ok := c.anchors[name]
	if !ok {
		// An alias inside of its own anchor ends here as well: an anchor is known once its value is complete.
		c.problems.Add(place.Problem(path, "the alias *"+name+" has no anchor before it", ""))
		return &Node{Kind: invalid, Place: place}
	}
	out := c.copy(target)
	if out == nil {
		c.problems.Add(place.Problem(path, "aliases expand to more than "+strconv.Itoa(maxNodes)+" values", ""))
		return &Node{Kind: invalid, Place: place}
	}
	return out
}

// copy is deep, because Set and Expand change nodes in place. It returns nil beyond maxNodes.
func (c *converter) copy(n *Node) *Node {
	c.nodes++
	if c.nodes > maxNodes {
		return nil
	}
	out := *n
	out.Items, out.Fields = nil, nil
	for _, item := range n.Items {
		clone := c.copy(item)
		if clone == nil {
			return nil
		}
		out.Items = append(out.Items, clone)
	}
	for _, field := range n.Fields {
		clone := c.copy(field.Value)
		if clone == nil {
			return nil
		}
		out.Fields = append(out.Fields, Field{Key: field.Key, Place: field.Place, Value: clone})
	}
	return &out
}

func (c *converter) tagged(n *ast.TagNode, path string) *Node {
	value := &Node{Place: c.place(n)}
	if n.Value != nil {
		value = c.node(n.Value, path)
	}
	if n.Start.Value != "!!str" || value.Kind == Sequence || value.Kind == Mapping {
		c.problems.Add(c.place(n).Problem(path, "tags are not supported, except !!str before a scalar", ""))
		value.Kind = invalid
		return value
	}
	value.Kind, value.Quoted = Text, true
	return value
}

func keyText(key ast.MapKeyNode) (string, bool) {
	switch key := key.(type) {
	case *ast.StringNode:
		return key.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return key.GetToken().Value, true
	case *ast.MappingKeyNode:
		if inner, ok := key.Value.(ast.MapKeyNode); ok {
			return keyText(inner)
		}
	}
	return "", false
}

func isFlow(n ast.Node) bool {
	if anchor, ok := n.(*ast.AnchorNode); ok {
		n = anchor.Value
	}
	m, ok := n.(*ast.MappingNode)
	return ok && m.IsFlowStyle
}
