package yamlfile

import (
	"encoding"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sexton/internal/problem"
	"sexton/internal/render"
)

// Chooser is a text type with a list of allowed values.
type Chooser interface {
	Choices() []string
}

// Literal is a string, a whole number, or true or false, in its text form.
type Literal string

// Texts is one text or a list of texts.
type Texts []string

// Columns is true, false, or a list of column names. It is nil for false, and empty for
// true.
type Columns []string

// MarshalYAML returns a list, true or false.
func (c Columns) MarshalYAML() (any, error) {
	if len(c) == 0 {
		return c != nil, nil
	}
	return []string(c), nil
}

// Positions maps a path, such as "databases.main.pace" or "[2].column", to the position
// of its value. Keys that were left out are missing.
type Positions map[string]Position

// Of returns the position of path or, if it was left out, of the nearest key above it.
func (p Positions) Of(path string) Position {
	for {
		if position, ok := p[path]; ok {
			return position
		}
		end := strings.LastIndexAny(path, ".[")
		if end < 0 {
			return p[""]
		}
		path = path[:end]
	}
}

// Decode fills target, a pointer to a struct, and reports unknown keys, missing keys and
// values of the wrong type. A field whose key is left out gets the text of its tag
// `default:"…"`, or keeps its value. path is the path of n. lookup returns the values of
// ${VARIABLES}; if it is nil, they are not replaced.
//
// A field's tag is `yaml:"key"`, with the options "required" (the key must exist) and
// "keyed" (a slice of structs is written as a mapping, and its keys are stored in Name).
func (n *Node) Decode(path string, target any, lookup func(string) (string, bool)) (Positions, problem.List) {
	d := decoder{positions: Positions{}, lookup: lookup}
	setDefaults(reflect.ValueOf(target).Elem())
	d.value(n, path, reflect.ValueOf(target).Elem())
	return d.positions, d.problems
}

type decoder struct {
	positions Positions
	problems  problem.List
	lookup    func(string) (string, bool)
}

func (d *decoder) fail(at Position, path, message, fix string) {
	d.problems.Add(at.Problem(path, message, fix))
}

func (d *decoder) value(n *Node, path string, v reflect.Value) {
	d.positions[path] = n.Position
	if n.Kind == text && d.lookup != nil && n.Source == "" {
		n = d.expand(n, path)
	}
	switch v.Addr().Interface().(type) {
	case *Texts:
		if n.Kind != List && n.Kind != Mapping {
			v.Set(reflect.ValueOf(make(Texts, 1)))
			d.scalar(n, path, v.Index(0))
			return
		}
	case *Columns:
		if n.Kind == boolean || n.untyped && (n.text == "true" || n.text == "false") {
			v.Set(reflect.Zero(v.Type()))
			if n.text == "true" {
				v.Set(reflect.ValueOf(Columns{}))
			}
			return
		}
	}
	switch {
	case n.Kind == "":
	case v.Kind() == reflect.Struct:
		d.structure(n, path, v)
	case v.Kind() == reflect.Slice:
		d.list(n, path, v)
	case v.Kind() == reflect.Map:
		d.mapping(n, path, v)
	default:
		d.scalar(n, path, v)
	}
}

var variable = regexp.MustCompile(`\$\$\{|\$\{(?:[A-Za-z_][A-Za-z0-9_]*\})?`)

// expand replaces each ${NAME} in a text; $${ is a literal ${. A text with a variable is
// untyped, so that limit: ${LIMIT} may be a number.
func (d *decoder) expand(n *Node, path string) *Node {
	out := *n
	out.text = variable.ReplaceAllStringFunc(n.text, func(found string) string {
		name := strings.TrimSuffix(found[2:], "}")
		if found == "$${" {
			return "${"
		}
		value, set := d.lookup(name)
		switch {
		case name == "":
			d.fail(n.Position, path, "${ does not begin a variable such as ${NAME}", "write $${ for a literal ${")
			out.Kind = ""
		case !set:
			d.fail(n.Position, path, "the environment variable "+name+" is not set", "")
			out.Kind = ""
		}
		out.untyped = true
		return value
	})
	return &out
}

func (d *decoder) structure(n *Node, path string, v reflect.Value) {
	if n.Kind != Mapping && n.Kind != Null {
		d.fail(n.Position, path, "must be a mapping of keys, not "+n.Kind, "")
		return
	}
	fields := fieldsOf(v.Type())
	known := render.Each(fields, func(f field) string { return f.key })
	for _, entry := range n.Items {
		i, key := slices.Index(known, entry.Key), Join(path, entry.Key)
		switch {
		case i < 0 && removedFix(key) != "":
			d.fail(entry.KeyPosition, key, "was removed", removedFix(key))
		case i < 0:
			d.fail(entry.KeyPosition, key, "unknown key", problem.Meant(entry.Key, known,
				"known keys: "+strings.Join(known, ", ")))
		case fields[i].keyed:
			d.keyed(entry, key, v.Field(fields[i].index))
		default:
			d.value(entry, key, v.Field(fields[i].index))
		}
	}
	for _, f := range fields {
		if f.required && n.index(f.key) < 0 {
			at := n.Position
			if at.Source != "" {
				at.Source = Join(at.Source, f.key)
			}
			d.fail(at, Join(path, f.key), "is missing", "")
		}
	}
}

// keyed decodes a mapping into a slice of structs, in the order of the file.
func (d *decoder) keyed(n *Node, path string, v reflect.Value) {
	d.positions[path] = n.Position
	if n.Kind != Mapping && n.Kind != Null {
		d.fail(n.Position, path, "must be a mapping of names, not "+n.Kind, "")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items)))
	for i, entry := range n.Items {
		setDefaults(v.Index(i))
		v.Index(i).FieldByName("Name").SetString(entry.Key)
		d.value(entry, Join(path, entry.Key), v.Index(i))
		d.positions[Join(path, entry.Key)] = entry.KeyPosition
	}
}

// mapping decodes a mapping of names to scalars.
func (d *decoder) mapping(n *Node, path string, v reflect.Value) {
	if n.Kind != Mapping {
		d.fail(n.Position, path, "must be a mapping of names, not "+n.Kind, "")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, entry := range n.Items {
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(entry, Join(path, entry.Key), element)
		v.SetMapIndex(reflect.ValueOf(entry.Key), element)
	}
}

func (d *decoder) list(n *Node, path string, v reflect.Value) {
	items := n.Items
	switch {
	case n.untyped && n.Source != "" && strings.HasPrefix(strings.TrimSpace(n.text), "["):
		r := reader{variable: true}
		items = r.parse([]byte(n.text), n.Source).Items
		d.problems.Add(r.problems...)
	case n.untyped:
		// A list in a variable has the form a,b.
		for part := range strings.SplitSeq(n.text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				items = append(items, &Node{Position: n.Position, Kind: text, text: part, untyped: true})
			}
		}
	case n.Kind == Null:
		d.fail(n.Position, path, "has no value", "write [] for an empty list, or remove the key")
		return
	case n.Kind != List:
		d.fail(n.Position, path, "must be a list, not "+n.Kind, "write [a, b], or begin each entry with a dash")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		setDefaults(v.Index(i))
		d.value(item, joinIndex(path, i), v.Index(i))
	}
}

func (d *decoder) scalar(n *Node, path string, v reflect.Value) {
	want, fix, ok := convert(n, v)
	message := "must be " + want
	switch instead := removedKeys()[path+"="+n.text]; {
	case n.Kind == "":
		return
	case n.Kind == Null:
		message, fix = "has no value", "write one, or remove the key"
	case n.Kind == List || n.Kind == Mapping:
		message, fix = message+", not "+n.Kind, ""
	case instead != "":
		message, fix = n.text+" was removed", instead
	case strings.Contains(n.text, "\x00"):
		message, fix = "contains a NUL character", ""
	case ok:
		return
	case want == text:
		message += ", not " + n.Kind
	}
	d.fail(n.Position, path, message, fix)
}

// convert stores a scalar in v. It also returns a description of the values that v
// accepts, and a fix for the error message.
func convert(n *Node, v reflect.Value) (want, fix string, ok bool) {
	switch target := v.Addr().Interface().(type) {
	case *bool:
		var err error
		*target, err = strconv.ParseBool(strings.ToLower(n.text))
		return boolean, unquote(n), err == nil && (n.Kind == boolean || n.untyped)
	case *int:
		number, err := strconv.ParseInt(n.text, 10, 32)
		*target = int(number)
		return "a whole number up to 2147483647", unquote(n), err == nil && (n.Kind == integer || n.untyped)
	case *time.Duration:
		var err error
		*target, err = time.ParseDuration(strings.TrimSpace(n.text))
		return "a duration with units, such as 500ms, 30s or 1h30m", "", err == nil
	case *Literal:
		*target = Literal(n.text)
		return "a string, a whole number, or true or false", "put it in quotes", n.Kind != decimal
	case encoding.TextUnmarshaler:
		if err := target.UnmarshalText([]byte(n.text)); err != nil {
			return strings.TrimPrefix(err.Error(), "must be "), "", false
		}
		return text, "", true
	case Chooser:
		v.SetString(n.text)
		return "one of " + strings.Join(target.Choices(), ", "), problem.Meant(n.text, target.Choices(), ""),
			slices.Contains(target.Choices(), n.text)
	default:
		v.SetString(n.text)
		return text, "put it in quotes", n.Kind == text
	}
}

func unquote(n *Node) string {
	if n.quoted {
		return "remove the quotes"
	}
	return ""
}

func setDefaults(v reflect.Value) {
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		if value, ok := v.Type().Field(i).Tag.Lookup("default"); ok {
			d := decoder{positions: Positions{}}
			d.value(&Node{Kind: text, text: value, untyped: true}, "", v.Field(i))
		} else {
			setDefaults(v.Field(i))
		}
	}
}

// field is a struct field that has a key in its tag.
type field struct {
	key             string
	index           int
	required, keyed bool
}

func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		key, option, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if key != "" && key != "-" {
			out = append(out, field{key: key, index: i, required: option == "required", keyed: option == "keyed"})
		}
	}
	return out
}
