package yamlfile

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Shown is a struct as Decode fills it, with every key that it has, in its order. Texts
// that are a fmt.Stringer appear as that has them, without what must not be shown.
type Shown struct{ root *yaml.Node }

// Encode shows v.
func Encode(v any) Shown {
	return Shown{encode(reflect.ValueOf(v))}
}

// Enabled leaves out the keys of sections that begin with enabled: false, apart from that
// one.
func (s Shown) Enabled() Shown {
	root := *s.root
	root.Content = slices.Clone(root.Content)
	for i, section := range root.Content {
		if keys := section.Content; len(keys) > 1 && keys[0].Value == "enabled" && keys[1].Value == "false" {
			short := *section
			short.Content = keys[:2]
			root.Content[i] = &short
		}
	}
	return Shown{&root}
}

func encode(v reflect.Value) *yaml.Node {
	switch value := v.Interface().(type) {
	case time.Duration:
		return scalar(tagText, formatDuration(value))
	case fmt.Stringer:
		return scalar(tagText, value.String())
	case encoding.TextMarshaler:
		text, _ := value.MarshalText() // A value that was read has a text.
		if _, err := strconv.Atoi(string(text)); err == nil {
			return scalar(tagInt, string(text))
		}
		return scalar(tagText, string(text))
	}
	switch v.Kind() {
	case reflect.Struct:
		out := &yaml.Node{Kind: yaml.MappingNode}
		for _, s := range fieldsOf(v.Type()) {
			value := encode(v.Field(s.index))
			if s.keyed {
				value.Kind = yaml.MappingNode
				for i := range v.Field(s.index).Len() {
					name := v.Field(s.index).Index(i).FieldByName("Name").String()
					value.Content = slices.Insert(value.Content, 2*i, scalar(tagText, name))
				}
			}
			out.Content = append(out.Content, scalar(tagText, s.key), value)
		}
		return out
	case reflect.Slice:
		if columns, either := reflect.TypeAssert[Columns](v); either && len(columns) == 0 {
			return scalar(tagBool, strconv.FormatBool(columns != nil))
		}
		out := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			out.Content = append(out.Content, encode(v.Index(i)))
		}
		return out
	case reflect.Map:
		out := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.SortedFunc(slices.Values(v.MapKeys()),
			func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
			out.Content = append(out.Content, scalar(tagText, name.String()), encode(v.MapIndex(name)))
		}
		return out
	case reflect.Bool:
		return scalar(tagBool, strconv.FormatBool(v.Bool()))
	case reflect.Int:
		return scalar(tagInt, strconv.FormatInt(v.Int(), 10))
	default:
		return scalar(tagText, v.String())
	}
}

var (
	plain     = regexp.MustCompile(`^([A-Za-z_/][A-Za-z0-9_./-]*|([0-9.]+(ns|µs|ms|s|m|h))+)$`)
	emptyTail = regexp.MustCompile(`(h)0m0s$|(m)0s$`)
)

// scalar leaves plain what every YAML reader takes for a text, and has Decode take each
// ${ as it is.
func scalar(tag, text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: strings.ReplaceAll(text, "${", "$${")}
	words := []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
	if tag == tagText && (!plain.MatchString(text) || slices.Contains(words, strings.ToLower(text))) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// formatDuration is time.Duration's own form without its empty tail: 30m instead of
// 30m0s.
func formatDuration(d time.Duration) string {
	return emptyTail.ReplaceAllString(d.String(), "$1$2")
}

// YAML renders a document that Parse and Decode turn into the same values again.
func (s Shown) YAML() []byte {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(s.root), encoder.Close()); err != nil {
		return []byte("# " + err.Error() + "\n") // A buffer takes everything.
	}
	return out.Bytes()
}

// MarshalJSON renders one object with the keys in order.
func (s Shown) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	err := writeJSON(&out, s.root)
	return out.Bytes(), err
}

func writeJSON(out *bytes.Buffer, n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if n.Tag != tagText {
			out.WriteString(n.Value)
			return nil
		}
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(strings.ReplaceAll(n.Value, "$${", "${"))
	}
	brackets := "[]"
	if n.Kind == yaml.MappingNode {
		brackets = "{}"
	}
	out.WriteByte(brackets[0])
	for i, child := range n.Content {
		switch {
		case brackets == "{}" && i%2 == 1:
			out.WriteByte(':')
		case i > 0:
			out.WriteByte(',')
		}
		if err := writeJSON(out, child); err != nil {
			return err
		}
	}
	out.WriteByte(brackets[1])
	return nil
}

// Schema is a JSON schema, as the draft 7 that editors know has it.
type Schema map[string]any

// Draft is the value of $schema.
const Draft = "http://json-schema.org/draft-07/schema#"

// SchemaOf describes what Decode reads into a struct of type t. The comments, as Comments
// reads them, become descriptions. Texts may hold variables if the file is read with
// them.
func SchemaOf(t reflect.Type, comments map[string]string, variables bool) Schema {
	properties, required := Schema{}, []string{}
	for _, s := range fieldsOf(t) {
		field := t.Field(s.index)
		var property Schema
		switch {
		case s.keyed:
			property = Schema{"type": "object", "additionalProperties": SchemaOf(field.Type.Elem(), comments,
				variables)}
		case field.Type.Kind() == reflect.Struct:
			property = SchemaOf(field.Type, comments, variables)
		case field.Type.Kind() == reflect.Slice && field.Type.Elem().Kind() == reflect.Struct:
			property = Schema{"type": "array", "items": SchemaOf(field.Type.Elem(), comments, variables)}
		default:
			property = value(field)
			if variables && (property["type"] != "string" || property["enum"] != nil) {
				// A variable may stand for any value.
				property = Schema{"anyOf": []Schema{property, {"type": "string", "pattern": `\$\{`}}}
			}
		}
		if text := comments[t.Name()+"."+field.Name]; text != "" {
			for _, other := range fieldsOf(t) { // People know the keys, not the fields.
				text = regexp.MustCompile(`\b`+t.Field(other.index).Name+`\b`).ReplaceAllString(text, other.key)
			}
			property["description"] = text
		}
		if standard, found := field.Tag.Lookup("default"); found {
			property["default"] = typed(standard, field.Type.Kind())
		}
		properties[s.key] = property
		if s.required {
			required = append(required, s.key)
		}
	}
	return Schema{
		"type": []string{"object", "null"}, "properties": properties, "required": required,
		"additionalProperties": false,
	}
}

// value is the schema of what scalar and list read.
func value(field reflect.StructField) Schema {
	of := reflect.Zero(field.Type).Interface()
	switch of := of.(type) {
	case time.Duration:
		return Schema{"type": "string"}
	case Literal:
		return Schema{"type": []string{"string", "integer", "boolean"}}
	case Texts:
		return Schema{"type": []string{"string", "array"}, "items": Schema{"type": "string"}}
	case Columns:
		return Schema{"type": []string{"boolean", "array"}, "items": Schema{"type": "string"}}
	case Chooser:
		return Schema{"type": "string", "enum": of.Choices()}
	case encoding.TextMarshaler:
		return Schema{"type": []string{"string", "integer"}}
	}
	switch field.Type.Kind() {
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": value(reflect.StructField{Type: field.Type.Elem()})}
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Int:
		return bounded(field.Tag.Get("check"))
	case reflect.Slice:
		return Schema{"type": "array", "items": Schema{"type": "string"}}
	default:
		return Schema{"type": "string"}
	}
}

// bounded is the schema of a number, within what its tag says.
func bounded(check string) Schema {
	number := Schema{"type": "integer"}
	var least, most int
	switch n, _ := fmt.Sscanf(check, "%d..%d", &least, &most); {
	case n == 2:
		number["minimum"], number["maximum"] = least, most
	case check == "positive":
		number["minimum"] = 1
	case strings.HasPrefix(check, "not negative"):
		number["minimum"] = 0
	}
	return number
}

func typed(text string, kind reflect.Kind) any {
	if number, err := strconv.Atoi(text); err == nil && kind == reflect.Int {
		return number
	}
	if kind == reflect.Bool {
		return text == "true"
	}
	return text
}

// Comments reads the comments above the fields of structs in a formatted Go file, by
// Struct.Field.
func Comments(source string) map[string]string {
	comments := map[string]string{}
	for _, structure := range regexp.MustCompile(`(?ms)^type (\w+) struct \{\n(.*?)^\}`).FindAllStringSubmatch(source,
		-1) {
		for _, field := range regexp.MustCompile(`(?m)((?:^\t//.*\n)+)^\t(\w+) `).FindAllStringSubmatch(structure[2],
			-1) {
			text := strings.ReplaceAll(field[1], "\t//", "")
			comments[structure[1]+"."+field[2]] = strings.Join(strings.Fields(text), " ")
		}
	}
	return comments
}
