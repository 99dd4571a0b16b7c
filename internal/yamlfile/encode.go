package yamlfile

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Hider is a text type that must not be shown as it is.
type Hider interface {
	// Hidden returns the text with its secret parts replaced.
	Hidden() string
}

// Encode turns v, a struct as Decode fills it, into a node with every key that the struct has, in its
// order. Texts that are a Hider appear hidden.
func Encode(v any) *Node {
	return encode(reflect.ValueOf(v))
}

func encode(v reflect.Value) *Node {
	if v.Type() == reflect.TypeFor[time.Duration]() {
		return &Node{Kind: Text, Text: formatDuration(time.Duration(v.Int()))}
	}
	if literal, ok := reflect.TypeAssert[Literal](v); ok {
		return &Node{Kind: Text, Text: literal.Text}
	}
	switch v.Kind() {
	case reflect.Struct:
		out := &Node{Kind: Mapping}
		for _, s := range fieldsOf(v.Type()) {
			field := v.Field(s.index)
			if s.keyed {
				out.Fields = append(out.Fields, Field{Key: s.key, Value: byName(field)})
				continue
			}
			out.Fields = append(out.Fields, Field{Key: s.key, Value: encode(field)})
		}
		return out
	case reflect.Slice:
		out := &Node{Kind: Sequence}
		for i := range v.Len() {
			out.Items = append(out.Items, encode(v.Index(i)))
		}
		return out
	case reflect.Bool:
		return &Node{Kind: Bool, Text: strconv.FormatBool(v.Bool())}
	case reflect.Int:
		return &Node{Kind: Int, Text: strconv.FormatInt(v.Int(), 10)}
	default:
		if hider, ok := reflect.TypeAssert[Hider](v); ok {
			return &Node{Kind: Text, Text: hider.Hidden()}
		}
		return &Node{Kind: Text, Text: v.String()}
	}
}

func byName(list reflect.Value) *Node {
	out := &Node{Kind: Mapping}
	for i := range list.Len() {
		element := list.Index(i)
		name := element.Field(nameField(element.Type())).String()
		out.Fields = append(out.Fields, Field{Key: name, Value: encode(element)})
	}
	return out
}

// formatDuration is time.Duration's own form without its empty tail: 30m instead of 30m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// YAML renders n as a document that Parse and Expand turn into the same values again.
func (n *Node) YAML() []byte {
	var out bytes.Buffer
	n.write(&out, "")
	return out.Bytes()
}

func (n *Node) write(out *bytes.Buffer, indent string) {
	for _, field := range n.Fields {
		out.WriteString(indent + scalarYAML(field.Key) + ":")
		field.Value.writeValue(out, indent)
	}
	for _, item := range n.Items {
		if len(item.Fields) == 0 {
			out.WriteString(indent + "-")
			item.writeValue(out, indent)
			continue
		}
		// The first key stands behind the dash.
		var entry bytes.Buffer
		item.write(&entry, indent+"  ")
		out.WriteString(indent + "- ")
		out.Write(entry.Bytes()[len(indent)+2:])
	}
}

// writeValue continues the line that holds the key or the dash.
func (n *Node) writeValue(out *bytes.Buffer, indent string) {
	switch {
	case len(n.Fields) > 0 || len(n.Items) > 0:
		out.WriteString("\n")
		n.write(out, indent+"  ")
	case n.Kind == Mapping:
		out.WriteString(" {}\n")
	case n.Kind == Sequence:
		out.WriteString(" []\n")
	case n.Kind == Null:
		out.WriteString(" null\n")
	case n.Kind == Text:
		out.WriteString(" " + scalarYAML(strings.ReplaceAll(n.Text, "${", "$${")) + "\n")
	default:
		out.WriteString(" " + n.Text + "\n")
	}
}

// scalarYAML leaves plain what every YAML reader takes for a text, and writes the rest as JSON, which is
// YAML as well.
func scalarYAML(text string) string {
	words := []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
	plain := regexp.MustCompile(`^([A-Za-z_/][A-Za-z0-9_./-]*|([0-9.]+(ns|µs|ms|s|m|h))+)$`)
	if plain.MatchString(text) && !slices.Contains(words, strings.ToLower(text)) {
		return text
	}
	return quoteJSON(text)
}

func quoteJSON(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return strconv.Quote(text) // A string always encodes.
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// MarshalJSON renders n with its keys in order.
func (n *Node) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	n.writeJSON(&out)
	return out.Bytes(), nil
}

func (n *Node) writeJSON(out *bytes.Buffer) {
	switch n.Kind {
	case Mapping:
		out.WriteByte('{')
		for i, field := range n.Fields {
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteString(quoteJSON(field.Key) + ":")
			field.Value.writeJSON(out)
		}
		out.WriteByte('}')
	case Sequence:
		out.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				out.WriteByte(',')
			}
			item.writeJSON(out)
		}
		out.WriteByte(']')
	case Null:
		out.WriteString("null")
	case Text:
		out.WriteString(quoteJSON(n.Text))
	default:
		out.WriteString(n.Text)
	}
}
