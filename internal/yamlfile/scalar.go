package yamlfile

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"sexton/internal/problem"
)

// describe names a value as the object of "must be …, not …".
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Tag == tagNull:
		return "nothing"
	case n.Tag == tagBool:
		return "true or false"
	case n.Tag == tagInt || n.Tag == tagFloat:
		return "a number"
	default:
		return "a text"
	}
}

func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value) {
	target := v.Addr().Interface()
	want, bare := "a text", false
	switch target.(type) {
	case *bool:
		want, bare = "true or false", true
	case *int:
		want, bare = "a whole number", true
	case *time.Duration:
		want = "a duration with units, such as 500ms, 30s or 1h30m"
	case *Literal:
		want = "a text, a whole number, or true or false"
	}
	var message, fix string
	switch {
	case n.Tag == tagNull:
		message, fix = "has no value", "write one, or remove the key"
	case n.Kind != yaml.ScalarNode:
		message = "must be " + want + ", not " + describe(n)
	case bare && n.Tag == tagText && n.Style != 0:
		message = "must be " + want + ", without quotes"
	case strings.Contains(n.Value, "\x00"):
		message = "contains a NUL character"
	default:
		message, fix = convert(n, target, "must be "+want)
	}
	if message != "" {
		d.fail(n, path, message, fix)
	}
}

// convert returns what is wrong with a scalar that is to fill target, if anything, and the fix.
func convert(n *yaml.Node, target any, wrong string) (message, fix string) {
	var err error
	switch target := target.(type) {
	case *bool:
		text := n.Value
		if n.Tag == tagUntyped {
			text = strings.ToLower(text)
		}
		if *target = text == "true"; !*target && text != "false" {
			return wrong, ""
		}
	case *int:
		// Leading zeros are refused, because some readers take 010 for eight.
		if !regexp.MustCompile(`^[+-]?(0|[1-9]([0-9_]*[0-9])?)$`).MatchString(n.Value) {
			return wrong, ""
		}
		number, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 32)
		if err != nil {
			return "is out of range", "the largest number is 2147483647"
		}
		*target = int(number)
	case *time.Duration:
		if *target, err = time.ParseDuration(strings.TrimSpace(n.Value)); err != nil {
			return wrong, ""
		}
	case *Literal:
		*target = Literal{Text: n.Value, Given: true}
		if n.Tag == tagFloat {
			return wrong, "put it in quotes"
		}
		if n.Tag == tagInt {
			// Hexadecimal and the like are turned into what the database reads.
			number, err := strconv.ParseInt(n.Value, 0, 64)
			if err != nil {
				return "is out of range", "put it in quotes"
			}
			target.Text = strconv.FormatInt(number, 10)
		}
	default:
		return text(n, reflect.ValueOf(target).Elem())
	}
	return "", ""
}

func text(n *yaml.Node, v reflect.Value) (message, fix string) {
	chooser, limited := reflect.TypeAssert[Chooser](v)
	switch {
	case limited && !slices.Contains(chooser.Choices(), n.Value):
		if near := problem.Nearest(n.Value, chooser.Choices()); near != "" {
			fix = "did you mean " + near + "?"
		}
		return "must be one of " + strings.Join(chooser.Choices(), ", "), fix
	case n.Tag != tagText && n.Tag != tagUntyped:
		return "must be a text, not " + describe(n), "put it in quotes"
	}
	v.SetString(n.Value)
	return "", ""
}
