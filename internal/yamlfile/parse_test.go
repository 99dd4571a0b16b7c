package yamlfile_test

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

func TestParse(t *testing.T) {
	t.Parallel()

	type example struct{ text, want string }
	pgtest.Each(t, map[string]example{
		"empty":               {"", ""},
		"comment only":        {"# nothing\n", ""},
		"document marks only": {"---\n...\n", ""},
		"directive":           {"%YAML 1.2\n---\nstreet: a\n", "a"},
		"byte order mark":     {"\ufeffstreet: a\n", "a"},
		"carriage returns":    {"code: x\r\nstreet:\r\n  a\r\n", "a"},
		"quotes":              {"street: '1'\n", "1"},
		"word of YAML 1.1":    {"street: yes\n", "yes"},
		"date":                {"street: 2020-01-02\n", "2020-01-02"},
		"leading zero":        {"street: 0471\n", "0471"},
		"block text":          {"street: |\n  x\n  y\ncode: a\n", "x\ny\n"},
		"folded text":         {"street: >-\n  x\n  y\n", "x y"},
		"explicit key":        {"? street\n: d\n", "d"},
		"flow":                {"{street: a, \"code\": b}", "a"},
	}, func(t *testing.T, _ string, test example) {
		root, problems := yamlfile.Parse("f.yml", []byte(test.text))
		require.Empty(t, problems.Error())
		var s site
		_, problems = root.Decode("", &s, nil)
		require.Empty(t, problems.Error())
		require.Equal(t, test.want, s.Street)
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
		"tab":             {"a:\n\tb: 1\n", "f.yml:2:1: YAML syntax: found character '\t' that cannot start any token"},
		"open bracket":    {"b: 1\na: [1,\nc: 2\n", "f.yml:2:4: YAML syntax: sequence end token ']' not found"},
		"open quote":      {"b: 1\na: 'geheim\nc: 2\n", "f.yml:2:4: YAML syntax: could not find end character of single-quoted text"},
		"colon in value":  {"a: b: geheim\n", "f.yml:1:4: YAML syntax: mapping value is not allowed in this context"},
		"not UTF-8":       {"a: 1\nb: \xff\n", "f.yml:2:4: the file is not valid UTF-8 text"},
		"NUL":             {"a: \x00\n", "f.yml:1:4: the file is not valid UTF-8 text"},
		"UTF-16":          {"\xff\xfea\x00", "f.yml:1:1: the file is not valid UTF-8 text"},
		"duplicate key":   {"a:\n  b: 1\n  c: 2\n  b: 3\n", "f.yml:4:3: a.b: the key is given twice, first in line 2"},
		"bad indentation": {"k: 1\na:\n  b: 1\n c: 2\n", "f.yml:4:2: YAML syntax: value is not allowed in this context"},
		"alias, far below": {
			"k: 1\na:\n  b: '*y'\n  c: *y\n  d: 2\n",
			"f.yml:4:6: a.c: tags, anchors and aliases are not supported (write the value out)",
		},
		"merge": {
			"a: &x {b: 1}\nc:\n  <<: *x\n",
			"f.yml:1:4: a: tags, anchors and aliases are not supported (write the value out)\nf.yml:3:3: c: a key must be a plain string",
		},
		"unknown alias": {"a: *x\n", "f.yml:1:4: a: tags, anchors and aliases are not supported (write the value out)"},
		"alias": {
			"a: &x [b]\nc: *x\n",
			"f.yml:1:4: a: tags, anchors and aliases are not supported (write the value out)\nf.yml:2:4: c: tags, anchors and aliases are not supported (write the value out)",
		},
		"tag":         {"a: !!binary x\n", "f.yml:1:4: a: tags, anchors and aliases are not supported (write the value out)"},
		"list as key": {"? [a]\n: b\n", "f.yml:2:1: YAML syntax: found an invalid key for this map"},
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
		root, _ := yamlfile.Parse("f.yml", []byte("street: '"+text+"'\n"))
		var s site
		_, problems := root.Decode("", &s, lookup)
		require.NoError(t, problems.Err(), text)
		require.Equal(t, want, s.Street, text)
	}

	root, _ := yamlfile.Parse("f.yml",
		[]byte("rooms: {a: {height: \"${A}\", tags: [\"${X}${Y}\"]}}\nsite:\n  street: ${A:-1}\n  code: ${A\n"))
	var h house
	_, problems := root.Decode("", &h, lookup)
	require.EqualError(t, problems.Err(),
		"f.yml:1:36: rooms.a.tags[0]: the environment variable X is not set\n"+
			"f.yml:1:36: rooms.a.tags[0]: the environment variable Y is not set\n"+
			"f.yml:3:11: site.street: ${ does not begin a variable such as ${NAME} (write $${ for a literal ${)\n"+
			"f.yml:4:9: site.code: ${ does not begin a variable such as ${NAME} (write $${ for a literal ${)")
	require.Equal(t, 1, h.Rooms[0].Height)
}

func decodeTexts(t *testing.T, value string) (yamlfile.Texts, yamlfile.Positions, error) {
	root, problems := yamlfile.Parse("f.yml", []byte("names: "+value+"\n"))
	require.NotNil(t, root, problems)
	var target struct {
		Names yamlfile.Texts `yaml:"names"`
	}
	positions, found := root.Decode("", &target, nil)
	problems.Add(found...)
	return target.Names, positions, problems.Err()
}

func TestDecodeTexts(t *testing.T) {
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
		"7":      "f.yml:1:8: names: must be a string, not a whole number (put it in quotes)",
		"{a: b}": "f.yml:1:8: names: must be a list, not a mapping (write [a, b], or begin each entry with a dash)",
		"[a, 7]": "f.yml:1:12: names[1]: must be a string, not a whole number (put it in quotes)",
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
			root, problems := yamlfile.Parse("f.yml", text)
			require.NoError(t, problems.Err())
			_, problems = root.Decode("", &target, nil)
			require.NoError(t, problems.Err())
			require.Equal(t, want, target.Event)
		}
		decode([]byte("event: " + value + "\n"))
		decode(pgtest.Must(yaml.Marshal(target))(t))
	}
	for value, want := range map[string]string{
		"~":      "f.yml:1:1: event: has no value (write [] for an empty list, or remove the key)",
		"a":      "f.yml:1:8: event: must be a list, not a string (write [a, b], or begin each entry with a dash)",
		"{a: b}": "f.yml:1:8: event: must be a list, not a mapping (write [a, b], or begin each entry with a dash)",
		"[7]":    "f.yml:1:9: event[0]: must be a string, not a whole number (put it in quotes)",
	} {
		root, _ := yamlfile.Parse("f.yml", []byte("event: "+value+"\n"))
		_, problems := root.Decode("", &struct {
			Event yamlfile.Columns `yaml:"event"`
		}{}, nil)
		require.EqualError(t, problems.Err(), want)
	}
}
