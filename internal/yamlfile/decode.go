package yamlfile

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"sexton/internal/problem"
)

// Chooser is a text type that allows certain values only.
type Chooser interface {
	Choices() []string
}

// Defaulter is an element of a list or mapping that starts from defaults.
type Defaulter interface {
	SetDefaults()
}

// Literal is a text, a whole number, or true or false, in its text form.
type Literal struct {
	Text string
	// Given tells an empty text from a missing key.
	Given bool
}

// Texts is one text or a list of texts.
type Texts []string

// Places tells by path, such as "databases.main.pace" or "[2].column", where a value was written. Paths of
// keys that were left out are missing.
type Places map[string]Place

// Of returns the place of path or, where it was left out, of the nearest key above it.
func (p Places) Of(path string) Place {
	for {
		if place, ok := p[path]; ok {
			return place
		}
		end := strings.LastIndexAny(path, ".[")
		if end < 0 {
			return p[""]
		}
		path = path[:end]
	}
}

// Decode fills target, a pointer to a struct, from n and reports every key that target does not have and
// every value of the wrong shape; fields without a key keep what they hold. path is the path of n itself.
//
// A field's tag is `yaml:"key"`, with the options "required" (the key must be there) and "keyed" (on a slice
// of structs: a mapping, whose keys land in the element's field that is tagged "-,key"). Types: string,
// bool, int, time.Duration, Literal, Texts, Chooser, and structs and slices of these.
func Decode(n *Node, path string, target any) (Places, problem.List) {
	d := decoder{places: Places{}}
	d.value(n, path, reflect.ValueOf(target).Elem())
	return d.places, d.problems
}

type decoder struct {
	places   Places
	problems problem.List
}

func (d *decoder) fail(n *Node, path, message, fix string) {
	d.problems.Add(n.Place.Problem(path, message, fix))
}

func (d *decoder) value(n *Node, path string, v reflect.Value) {
	d.places[path] = n.Place
	if n.Kind == invalid {
		return
	}
	switch {
	case v.Type() == reflect.TypeFor[Literal]():
		d.literal(n, path, v)
	case v.Type() == reflect.TypeFor[time.Duration]():
		d.duration(n, path, v)
	case v.Kind() == reflect.Struct:
		d.structure(n, path, v)
	case v.Type() == reflect.TypeFor[Texts]() && n.Kind != Sequence:
		d.single(n, path, v)
	case v.Kind() == reflect.Slice:
		d.list(n, path, v)
	default:
		d.scalar(n, path, v)
	}
}

func (d *decoder) structure(n *Node, path string, v reflect.Value) {
	if n.Kind != Mapping && n.Kind != Null {
		d.fail(n, path, "must be a mapping of keys, not "+n.Kind.describe(), "")
		return
	}
	specs := fieldsOf(v.Type())
	known := make([]string, 0, len(specs))
	for _, s := range specs {
		known = append(known, s.key)
	}
	for _, field := range n.Fields {
		at := slices.Index(known, field.Key)
		if at < 0 {
			d.problems.Add(field.Place.Problem(Join(path, field.Key), "unknown key", suggestKey(field.Key, known)))
			continue
		}
		if specs[at].keyed {
			d.keyed(field.Value, Join(path, field.Key), v.Field(specs[at].index))
			continue
		}
		d.value(field.Value, Join(path, field.Key), v.Field(specs[at].index))
	}
	for _, s := range specs {
		if s.required && n.Get(s.key) == nil {
			place := n.Place
			if place.Source != "" {
				place.Source = Join(place.Source, s.key)
			}
			d.problems.Add(place.Problem(Join(path, s.key), "is missing", ""))
		}
	}
}

// keyed reads a mapping into a slice, in order of writing.
func (d *decoder) keyed(n *Node, path string, v reflect.Value) {
	d.places[path] = n.Place
	if n.Kind != Mapping && n.Kind != Null {
		d.fail(n, path, "must be a mapping of names, not "+n.Kind.describe(), "")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Fields), len(n.Fields))
	for i, field := range n.Fields {
		element := out.Index(i)
		setDefaults(element)
		element.Field(nameField(element.Type())).SetString(field.Key)
		d.value(field.Value, Join(path, field.Key), element)
		d.places[Join(path, field.Key)] = field.Place
	}
	v.Set(out)
}

func (d *decoder) list(n *Node, path string, v reflect.Value) {
	if n.Kind == Text && n.Untyped && v.Type().Elem().Kind() == reflect.String {
		n = splitList(n)
	}
	switch n.Kind {
	case Sequence:
	case Null:
		d.fail(n, path, "has no value", "write [] for an empty list, or remove the key")
		return
	case Mapping:
		d.fail(n, path, "must be a list, not a mapping", "begin every entry with a dash")
		return
	default:
		d.fail(n, path, "must be a list, not "+n.Kind.describe(), "write it in square brackets")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items))
	for i, item := range n.Items {
		setDefaults(out.Index(i))
		d.value(item, joinIndex(path, i), out.Index(i))
	}
	v.Set(out)
}

// splitList reads the comma-separated form that variables have.
func splitList(n *Node) *Node {
	out := &Node{Kind: Sequence, Place: n.Place}
	for part := range strings.SplitSeq(n.Text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out.Items = append(out.Items, &Node{Kind: Text, Text: part, Untyped: true, Place: n.Place})
		}
	}
	return out
}

func setDefaults(v reflect.Value) {
	if d, ok := reflect.TypeAssert[Defaulter](v.Addr()); ok {
		d.SetDefaults()
	}
}

func suggestKey(key string, known []string) string {
	if near := problem.Nearest(key, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "known keys: " + strings.Join(known, ", ")
}

// spec is what the tag of one struct field says.
type spec struct {
	key             string
	index           int
	required, keyed bool
}

func fieldsOf(t reflect.Type) []spec {
	var out []spec
	for i := range t.NumField() {
		tag, ok := t.Field(i).Tag.Lookup("yaml")
		key, options, _ := strings.Cut(tag, ",")
		if !ok || key == "-" {
			continue
		}
		out = append(out, spec{key: key, index: i, required: options == "required", keyed: options == "keyed"})
	}
	return out
}

func nameField(t reflect.Type) int {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == "-,key" {
			return i
		}
	}
	return -1
}
