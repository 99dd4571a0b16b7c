package yamlfile

import (
	"encoding"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"sexton/internal/problem"
	"sexton/internal/render"
)

// Chooser is a text type that allows certain values only.
type Chooser interface {
	Choices() []string
}

// Literal is a text, a whole number, or true or false, in its text form.
type Literal string

// Texts is one text or a list of texts.
type Texts []string

// Columns is true, false, or a list of column names. It is nil for false, and empty for
// true.
type Columns []string

// Positions tells by path, such as "databases.main.pace" or "[2].column", where a value
// was written. Paths of keys that were left out are missing.
type Positions map[string]Position

// Of returns the position of path or, where it was left out, of the nearest key above it.
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

// Decode fills target, a pointer to a struct, from n and reports every key that target
// does not have and every value of the wrong shape; fields without a key get the text of
// their tag `default:"…"`, in the form that variables have, or else keep what they hold.
// path is the path of n itself.
//
// A field's tag is `yaml:"key"`, with the options "required" (the key must be there) and
// "keyed" (on a slice of structs: a mapping, whose keys land in the element's field
// Name). Types: string, bool, int, time.Duration, Literal, Texts, Columns, Chooser,
// encoding.TextUnmarshaler, structs and slices of these, and maps of texts to them.
func (d *Document) Decode(n *yaml.Node, path string, target any) (Positions, problem.List) {
	decoder := decoder{Document: d, positions: Positions{}}
	setDefaults(reflect.ValueOf(target).Elem())
	decoder.value(n, path, reflect.ValueOf(target).Elem())
	return decoder.positions, decoder.problems
}

type decoder struct {
	*Document

	positions Positions
	problems  problem.List
}

func (d *decoder) fail(n *yaml.Node, path, message, fix string) {
	d.problems.Add(d.Position(n).Problem(path, message, fix))
}

func (d *decoder) value(n *yaml.Node, path string, v reflect.Value) {
	d.positions[path] = d.Position(n)
	if n.Tag == tagText && d.Variable != nil && d.sources[n] == "" {
		n = d.expand(n, path)
	}
	switch {
	case n.Kind == 0:
	case v.Kind() == reflect.Struct:
		d.structure(n, path, v)
	case v.Type() == reflect.TypeFor[Texts]() && n.Kind == yaml.ScalarNode:
		// One text is a list of it.
		v.Set(reflect.ValueOf(make(Texts, 1)))
		d.scalar(n, path, v.Index(0))
	case v.Type() == reflect.TypeFor[Columns]() && (n.Tag == tagBool || n.Tag == tagUntyped &&
		!strings.Contains(n.Value, ",")):
		var on bool
		if d.scalar(n, path, reflect.ValueOf(&on).Elem()); on {
			v.Set(reflect.ValueOf(Columns{}))
		}
	case v.Kind() == reflect.Slice:
		d.list(n, path, v)
	case v.Kind() == reflect.Map:
		d.mapping(n, path, v)
	default:
		d.scalar(n, path, v)
	}
}

// expand replaces ${NAME} in a text; $${ stands for a literal ${. With a variable in it
// the text counts as untyped, so that limit: ${LIMIT} may be a number.
func (d *decoder) expand(n *yaml.Node, path string) *yaml.Node {
	out := *n
	out.Value = variable.ReplaceAllStringFunc(n.Value, func(found string) string {
		name := strings.TrimSuffix(found[2:], "}")
		if found == "$${" {
			return "${"
		}
		value, set := d.Variable(name)
		switch {
		case name == "":
			d.fail(n, path, "${ does not begin a variable such as ${NAME}", "write $${ for a literal ${")
			out.Kind = 0
		case !set:
			d.fail(n, path, "the environment variable "+name+" is not set", "")
			out.Kind = 0
		}
		out.Tag = tagUntyped
		return value
	})
	return &out
}

var variable = regexp.MustCompile(`\$\$\{|\$\{(?:[A-Za-z_][A-Za-z0-9_]*\})?`)

func (d *decoder) structure(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.MappingNode && n.Tag != tagNull {
		d.fail(n, path, "must be a mapping of keys, not "+describe(n), "")
		return
	}
	specs := fieldsOf(v.Type())
	known := render.Each(specs, func(s spec) string { return s.key })
	for pair := range slices.Chunk(n.Content, 2) {
		at, key := slices.Index(known, pair[0].Value), Join(path, pair[0].Value)
		switch {
		case at < 0 && Instead(key) != "":
			d.fail(pair[0], key, "was removed", Instead(key))
		case at < 0:
			d.fail(pair[0], key, "unknown key", problem.Meant(pair[0].Value, known,
				"known keys: "+strings.Join(known, ", ")))
		case specs[at].keyed:
			d.keyed(pair[1], key, v.Field(specs[at].index))
		default:
			d.value(pair[1], key, v.Field(specs[at].index))
		}
	}
	for _, s := range specs {
		if s.required && find(n, s.key) < 0 {
			position := d.Position(n)
			if position.Source != "" {
				position.Source = Join(position.Source, s.key)
			}
			d.problems.Add(position.Problem(Join(path, s.key), "is missing", ""))
		}
	}
}

// keyed reads a mapping into a slice, in order of writing.
func (d *decoder) keyed(n *yaml.Node, path string, v reflect.Value) {
	d.positions[path] = d.Position(n)
	if n.Kind != yaml.MappingNode && n.Tag != tagNull {
		d.fail(n, path, "must be a mapping of names, not "+describe(n), "")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content)/2, len(n.Content)/2))
	for i := range v.Len() {
		key, element := n.Content[2*i], v.Index(i)
		setDefaults(element)
		element.FieldByName("Name").SetString(key.Value)
		d.value(n.Content[2*i+1], Join(path, key.Value), element)
		d.positions[Join(path, key.Value)] = d.Position(key)
	}
}

// mapping reads a mapping of names to scalars.
func (d *decoder) mapping(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "must be a mapping of names, not "+describe(n), "")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for pair := range slices.Chunk(n.Content, 2) {
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(pair[1], Join(path, pair[0].Value), element)
		v.SetMapIndex(reflect.ValueOf(pair[0].Value), element)
	}
}

func (d *decoder) list(n *yaml.Node, path string, v reflect.Value) {
	items := n.Content
	switch {
	case n.Kind == yaml.SequenceNode:
	case n.Tag == tagUntyped && v.Type().Elem().Kind() == reflect.String:
		items = d.split(n)
	case n.Tag == tagNull:
		d.fail(n, path, "has no value", "write [] for an empty list, or remove the key")
		return
	case n.Kind != yaml.MappingNode:
		d.fail(n, path, "must be a list, not "+describe(n), "write it in square brackets")
		return
	case v.Type() == reflect.TypeFor[Texts]():
		d.fail(n, path, "must be a text or a list of texts, not a mapping", "")
		return
	default:
		d.fail(n, path, "must be a list, not a mapping", "begin every entry with a dash")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		setDefaults(v.Index(i))
		d.value(item, joinIndex(path, i), v.Index(i))
	}
}

// split reads the comma-separated form that variables have.
func (d *decoder) split(n *yaml.Node) []*yaml.Node {
	var items []*yaml.Node
	for part := range strings.SplitSeq(n.Value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			item := *n
			item.Value = part
			d.sources[&item] = d.sources[n]
			items = append(items, &item)
		}
	}
	return items
}

func setDefaults(v reflect.Value) {
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		if text, ok := v.Type().Field(i).Tag.Lookup("default"); ok {
			d := decoder{Document: &Document{sources: map[*yaml.Node]string{}}, positions: Positions{}}
			d.value(&yaml.Node{Kind: yaml.ScalarNode, Tag: tagUntyped, Value: text}, "", v.Field(i))
		} else {
			setDefaults(v.Field(i))
		}
	}
}

// spec is the content of one struct field's tag.
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

// Leaf is a key that holds a value rather than further keys.
type Leaf struct {
	// Path leads to it; "*" stands for a name that the file chooses.
	Path []string
	List bool
}

// Leaves lists the leaves of t, a struct as Decode fills it, in its order, below path.
func Leaves(t reflect.Type, path ...string) []Leaf {
	var out []Leaf
	for _, s := range fieldsOf(t) {
		at := append(slices.Clone(path), s.key)
		field := t.Field(s.index).Type
		switch {
		case s.keyed:
			out = append(out, Leaves(field.Elem(), append(at, "*")...)...)
		case field.Kind() == reflect.Struct:
			out = append(out, Leaves(field, at...)...)
		case field.Kind() == reflect.Map: // Its names are the file's.
		default:
			out = append(out, Leaf{Path: at, List: field.Kind() == reflect.Slice})
		}
	}
	return out
}

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
		if instead := removedKeys()[path+"="+n.Value]; instead != "" {
			message, fix = n.Value+" was removed", instead
		}
	}
	if message != "" {
		d.fail(n, path, message, fix)
	}
}

// wholeNumber has no leading zeros, because some readers take 010 for eight.
var wholeNumber = regexp.MustCompile(`^[+-]?(0|[1-9]([0-9_]*[0-9])?)$`)

// convert returns what is wrong with a scalar that is to fill target, if anything, and
// the fix.
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
		if !wholeNumber.MatchString(n.Value) {
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
		*target = Literal(n.Value)
		if n.Tag == tagFloat {
			return wrong, "put it in quotes"
		}
		if n.Tag == tagInt {
			// Hexadecimal and the like are turned into what the database reads.
			number, err := strconv.ParseInt(n.Value, 0, 64)
			if err != nil {
				return "is out of range", "put it in quotes"
			}
			*target = Literal(strconv.FormatInt(number, 10))
		}
	case encoding.TextUnmarshaler:
		if err := target.UnmarshalText([]byte(n.Value)); err != nil {
			return err.Error(), ""
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
		return "must be one of " + strings.Join(chooser.Choices(), ", "), problem.Meant(n.Value, chooser.Choices(), "")
	case n.Tag != tagText && n.Tag != tagUntyped:
		return "must be a text, not " + describe(n), "put it in quotes"
	}
	v.SetString(n.Value)
	return "", ""
}
