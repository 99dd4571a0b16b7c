package yamlfile_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

// asJSON parses text and renders what was understood.
func asJSON(t *testing.T, text string) string {
	doc, problems := yamlfile.Parse("f.yml", []byte(text))
	require.Empty(t, problems.Error())
	var values map[string]any
	require.NoError(t, doc.Root.Decode(&values))
	out := pgtest.Must(json.Marshal(values))(t)
	return string(out)
}

func TestParse(t *testing.T) {
	t.Parallel()

	type example struct{ text, want string }
	pgtest.Each(t, map[string]example{
		"empty":               {"", `{}`},
		"comment only":        {"# nothing\n", `{}`},
		"document marks only": {"---\n...\n", `{}`},
		"directive":           {"%YAML 1.2\n---\na: 1\n", `{"a":1}`},
		"byte order mark":     {"\ufeffa: 1\n", `{"a":1}`},
		"carriage returns":    {"a: 1\r\nb:\r\n  - x\r\n", `{"a":1,"b":["x"]}`},
		"kinds": {
			"a: 1\nb: 1.5\nc: true\nd: ~\ne: yes\nf: '1'\n",
			`{"a":1,"b":1.5,"c":true,"d":null,"e":"yes","f":"1"}`,
		},
		"block texts": {"a: |\n  x\n  y\nb: >-\n  x\n  y\n", `{"a":"x\ny\n","b":"x y"}`},
		"odd keys":    {"1: a\ntrue: b\n? c\n: d\n\"e f\": g\n", `{"1":"a","c":"d","e f":"g","true":"b"}`},
		"flow":        {"{a: [1, {b: 2}], c: {}}", `{"a":[1,{"b":2}],"c":{}}`},
		"string tag":  {"a: !!str 12\n", `{"a":"12"}`},
	}, func(t *testing.T, _ string, test example) {
		require.Equal(t, test.want, asJSON(t, test.text))
	})
}

func TestParseErrors(t *testing.T) {
	t.Parallel()

	type example struct{ text, want string }
	pgtest.Each(t, map[string]example{
		"list on top": {"- a\n", "f.yml:1:1: the top level must be a mapping of keys"},
		"text on top": {"a\n", "f.yml:1:1: the top level must be a mapping of keys"},
		"two documents": {
			"a: 1\n---\nb: 2\n",
			"f.yml:3:1: a second document begins here (keep one document per file)",
		},
		"tab":            {"a:\n\tb: 1\n", "f.yml:2: YAML syntax: found character that cannot start any token"},
		"open bracket":   {"b: 1\na: [1,\nc: 2\n", "f.yml:2: YAML syntax: did not find expected ',' or ']'"},
		"open quote":     {"b: 1\na: 'geheim\nc: 2\n", "f.yml:2: YAML syntax: a quoted text has no end"},
		"colon in value": {"a: b: geheim\n", "f.yml:1: YAML syntax: mapping values are not allowed in this context"},
		"not UTF-8":      {"a: 1\nb: \xff\n", "f.yml:2:4: the file is not valid UTF-8 text"},
		"NUL":            {"a: \x00\n", "f.yml:1:4: the file is not valid UTF-8 text"},
		"UTF-16":         {"\xff\xfea\x00", "f.yml:1:1: the file is not valid UTF-8 text"},
		"duplicate key":  {"a:\n  b: 1\n  c: 2\n  b: 3\n", "f.yml:4:3: a.b: the key is given twice, first in line 2"},
		"too deep": {
			"a: " + strings.Repeat("[", 65) + strings.Repeat("]", 65),
			"f.yml:1:68: more than 64 levels of nesting",
		},
		"bad indentation": {"k: 1\na:\n  b: 1\n c: 2\n", "f.yml:4: YAML syntax: did not find expected key"},
		"alias, far below": {
			"k: 1\na:\n  b: '*y'\n  c: *y\n  d: 2\n",
			"f.yml:4: aliases and merge keys are not supported; write the value out",
		},
		"merge": {
			"a: &x {b: 1}\nc:\n  <<: *x\n",
			"f.yml:3:3: c: aliases and merge keys are not supported; write the value out",
		},
		"unknown alias": {"a: *x\n", "f.yml:1: aliases and merge keys are not supported; write the value out"},
		"alias": {
			"a: &x [b]\nc: *x\n",
			"f.yml:2:4: c: aliases and merge keys are not supported; write the value out",
		},
		"tag":         {"a: !!binary x\n", "f.yml:1:4: a: tags are not supported, except !!str before a scalar"},
		"list as key": {"? [a]\n: b\n", "f.yml:1:3: a key must be a plain text"},
		"deep flow":   {"a: " + strings.Repeat("[", 200_000), "f.yml:1: YAML syntax: exceeded max depth of 10000"},
		"deep blocks": {strings.Repeat("- ", 200_000), "f.yml:1: YAML syntax: exceeded max depth of 10000"},
		"deep tags":   {"a: " + strings.Repeat("!a ", 300_000), "f.yml:1: YAML syntax: did not find expected key"},
		"too large":   {strings.Repeat("#", 2<<20), "f.yml:1:1: the file has 2097152 bytes; the limit is 1048576"},
	}, func(t *testing.T, _ string, test example) {
		_, problems := yamlfile.Parse("f.yml", []byte(test.text))
		require.EqualError(t, problems.Err(), test.want)
	})
}

func TestExpand(t *testing.T) {
	t.Parallel()

	environ := map[string]string{"A": "1", "B_2": "two", "EMPTY": "", "NESTED": "${A}"}
	lookup := func(name string) (string, bool) {
		value, ok := environ[name]
		return value, ok
	}
	for text, want := range map[string]string{
		`${A}`: "1", `x${A}y${B_2}z`: "x1ytwoz", `${EMPTY}`: "", `$${A}`: "${A}", `$$${A}`: "$${A}",
		`$$$${A}`: "$$${A}",
		`$A`:      "$A", `a$`: "a$", `$`: "$", `${NESTED}`: "${A}", `é${A}`: "é1",
	} {
		doc, _ := yamlfile.Parse("f.yml", []byte("street: '"+text+"'\n"))
		doc.Variable = lookup
		var s site
		_, problems := doc.Decode(doc.Root, "", &s)
		require.NoError(t, problems.Err(), text)
		require.Equal(t, want, s.Street, text)
	}

	doc, _ := yamlfile.Parse("f.yml",
		[]byte("rooms: {a: {height: \"${A}\", tags: [\"${X}${Y}\"]}}\nsite:\n  street: ${A:-1}\n  code: ${A\n"))
	doc.Variable = lookup
	var h house
	_, problems := doc.Decode(doc.Root, "", &h)
	require.EqualError(t, problems.Err(),
		"f.yml:1:36: rooms.a.tags[0]: the environment variable X is not set\n"+
			"f.yml:1:36: rooms.a.tags[0]: the environment variable Y is not set\n"+
			"f.yml:3:11: site.street: ${ does not begin a variable such as ${NAME} (write $${ for a literal ${)\n"+
			"f.yml:4:9: site.code: ${ does not begin a variable such as ${NAME} (write $${ for a literal ${)")
	require.Equal(t, 1, h.Rooms[0].Height)
}

func decodeTexts(t *testing.T, value string) (yamlfile.Texts, yamlfile.Positions, error) {
	doc, problems := yamlfile.Parse("f.yml", []byte("names: "+value+"\n"))
	require.NotNil(t, doc, problems)
	var target struct {
		Names yamlfile.Texts `yaml:"names"`
	}
	positions, found := doc.Decode(doc.Root, "", &target)
	problems.Add(found...)
	return target.Names, positions, problems.Err()
}

func TestDecodeOneTextOrAList(t *testing.T) {
	t.Parallel()

	for value, want := range map[string]yamlfile.Texts{
		"a": {"a"}, "'1'": {"1"}, "''": {""}, "[a]": {"a"}, "[b, a]": {"b", "a"}, "[]": {}, "a, b": {"a, b"},
	} {
		texts, positions := pgtest.Must2(decodeTexts(t, value))(t)
		require.Equal(t, want, texts, value)
		require.Equal(t, problem.Position{File: "f.yml", Line: 1, Column: 8}, positions["names"].Position)
	}
	_, positions := pgtest.Must2(decodeTexts(t, "[b, a]"))(t)
	require.Equal(t, problem.Position{File: "f.yml", Line: 1, Column: 12}, positions["names[1]"].Position)
}

func TestDecodeTextsErrors(t *testing.T) {
	t.Parallel()

	for value, want := range map[string]string{
		"~":      "f.yml:1:1: names: has no value (write one, or remove the key)",
		"7":      "f.yml:1:8: names: must be a text, not a number (put it in quotes)",
		"{a: b}": "f.yml:1:8: names: must be a text or a list of texts, not a mapping",
		"[a, 7]": "f.yml:1:12: names[1]: must be a text, not a number (put it in quotes)",
		"[a, ~]": "f.yml:1:12: names[1]: has no value (write one, or remove the key)",
	} {
		_, _, err := decodeTexts(t, value)
		require.EqualError(t, err, want)
	}
}

func TestDecodeColumns(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]yamlfile.Columns{"false": nil, "true": {}, "[]": {}, "[b, a]": {"b", "a"}} {
		var target struct {
			Event yamlfile.Columns `yaml:"event"`
		}
		decode := func(text []byte) {
			doc, problems := yamlfile.Parse("f.yml", text)
			require.NoError(t, problems.Err())
			_, problems = doc.Decode(doc.Root, "", &target)
			require.NoError(t, problems.Err())
			require.Equal(t, want, target.Event)
		}
		decode([]byte("event: " + value + "\n"))
		decode(yamlfile.Encode(target).YAML())
	}
	for value, want := range map[string]string{
		"~":      "f.yml:1:1: event: has no value (write [] for an empty list, or remove the key)",
		"a":      "f.yml:1:8: event: must be a list, not a text (write it in square brackets)",
		"{a: b}": "f.yml:1:8: event: must be a list, not a mapping (begin every entry with a dash)",
		"[7]":    "f.yml:1:9: event[0]: must be a text, not a number (put it in quotes)",
	} {
		doc, _ := yamlfile.Parse("f.yml", []byte("event: "+value+"\n"))
		_, problems := doc.Decode(doc.Root, "", &struct {
			Event yamlfile.Columns `yaml:"event"`
		}{})
		require.EqualError(t, problems.Err(), want)
	}
}
