package yamlfile

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sexton/internal/problem"
)

// text reports whether n is a scalar with a value.
func (d *decoder) text(n *Node, path, want string) bool {
	switch n.Kind {
	case Null:
		d.fail(n, path, "has no value", "write one, or remove the key")
	case Sequence, Mapping:
		d.fail(n, path, "must be "+want+", not "+n.Kind.describe(), "")
	default:
		return true
	}
	return false
}

func (d *decoder) scalar(n *Node, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		d.boolean(n, path, v)
	case reflect.Int:
		d.integer(n, path, v)
	default:
		d.str(n, path, v)
	}
}

func (d *decoder) boolean(n *Node, path string, v reflect.Value) {
	const want = "true or false"
	if !d.text(n, path, want) {
		return
	}
	text := n.Text
	if n.Untyped {
		text = strings.ToLower(text)
	}
	switch {
	case n.Kind == Text && n.Quoted && !n.Untyped:
		d.fail(n, path, "must be "+want+", without quotes", "")
	case text == "true" || text == "false":
		v.SetBool(text == "true")
	default:
		d.fail(n, path, "must be "+want, "")
	}
}

func (d *decoder) integer(n *Node, path string, v reflect.Value) {
	const want = "a whole number"
	if !d.text(n, path, want) {
		return
	}
	if n.Kind == Text && n.Quoted && !n.Untyped {
		d.fail(n, path, "must be "+want+", without quotes", "")
		return
	}
	// Leading zeros are refused, because some readers take 010 for eight.
	if !regexp.MustCompile(`^[+-]?(0|[1-9]([0-9_]*[0-9])?)$`).MatchString(n.Text) {
		d.fail(n, path, "must be "+want, "")
		return
	}
	number, err := strconv.ParseInt(strings.ReplaceAll(n.Text, "_", ""), 10, 32)
	if err != nil {
		d.fail(n, path, "is out of range", "the largest number is 2147483647")
		return
	}
	v.SetInt(number)
}

func (d *decoder) duration(n *Node, path string, v reflect.Value) {
	const want = "a duration with units, such as 500ms, 30s or 1h30m"
	if !d.text(n, path, want) {
		return
	}
	duration, err := time.ParseDuration(strings.TrimSpace(n.Text))
	if err != nil {
		d.fail(n, path, "must be "+want, "")
		return
	}
	v.SetInt(int64(duration))
}

func (d *decoder) str(n *Node, path string, v reflect.Value) {
	if !d.text(n, path, "a text") {
		return
	}
	chooser, limited := reflect.TypeAssert[Chooser](v)
	switch {
	case strings.Contains(n.Text, "\x00"):
		d.fail(n, path, "contains a NUL character", "")
	case limited && !slices.Contains(chooser.Choices(), n.Text):
		d.notChosen(n, path, chooser)
	case n.Kind != Text && !n.Untyped:
		d.fail(n, path, "must be a text, not "+n.Kind.describe(), "put it in quotes")
	default:
		v.SetString(n.Text)
	}
}

// single reads a list that is given as its only text.
func (d *decoder) single(n *Node, path string, v reflect.Value) {
	if n.Kind == Mapping {
		d.fail(n, path, "must be a text or a list of texts, not "+n.Kind.describe(), "")
		return
	}
	one := reflect.New(v.Type().Elem()).Elem()
	d.str(n, path, one)
	v.Set(reflect.Append(reflect.MakeSlice(v.Type(), 0, 1), one))
}

func (d *decoder) notChosen(n *Node, path string, chooser Chooser) {
	fix := ""
	if near := problem.Nearest(n.Text, chooser.Choices()); near != "" {
		fix = "did you mean " + near + "?"
	}
	d.fail(n, path, "must be one of "+strings.Join(chooser.Choices(), ", "), fix)
}

func (d *decoder) literal(n *Node, path string, v reflect.Value) {
	const want = "a text, a whole number, or true or false"
	if !d.text(n, path, want) {
		return
	}
	text := n.Text
	switch {
	case n.Kind == Float:
		d.fail(n, path, "must be "+want, "put it in quotes")
		return
	case strings.Contains(text, "\x00"):
		d.fail(n, path, "contains a NUL character", "")
		return
	case n.Kind == Int:
		// Hexadecimal and the like are turned into what the database reads.
		number, err := strconv.ParseInt(text, 0, 64)
		if err != nil {
			d.fail(n, path, "is out of range", "put it in quotes")
			return
		}
		text = strconv.FormatInt(number, 10)
	}
	v.Set(reflect.ValueOf(Literal{Text: text, Given: true}))
}
