package yamlfile

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Hider is a text type that must not be shown as it is.
type Hider interface {
	// Hidden returns the text with its secret parts replaced.
	Hidden() string
}

// Shown is a struct as Decode fills it, with every key that it has, in its order. Texts that are a Hider appear
// hidden.
type Shown struct{ root *yaml.Node }

// Encode shows v.
func Encode(v any) Shown {
	return Shown{encode(reflect.ValueOf(v))}
}

// Enabled leaves out the keys of sections that begin with enabled: false, apart from that one.
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
	case Literal:
		return scalar(tagText, value.Text)
	case Hider:
		return scalar(tagText, value.Hidden())
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
		out := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			out.Content = append(out.Content, encode(v.Index(i)))
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

// scalar leaves plain what every YAML reader takes for a text, and has Decode take each ${ as it is.
func scalar(tag, text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: strings.ReplaceAll(text, "${", "$${")}
	words := []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
	plain := regexp.MustCompile(`^([A-Za-z_/][A-Za-z0-9_./-]*|([0-9.]+(ns|µs|ms|s|m|h))+)$`)
	if tag == tagText && (!plain.MatchString(text) || slices.Contains(words, strings.ToLower(text))) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// formatDuration is time.Duration's own form without its empty tail: 30m instead of 30m0s.
func formatDuration(d time.Duration) string {
	return regexp.MustCompile(`(h)0m0s$|(m)0s$`).ReplaceAllString(d.String(), "$1$2")
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
