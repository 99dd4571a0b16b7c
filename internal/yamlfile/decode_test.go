package yamlfile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/yamlfile"
)

type color string

func (color) Choices() []string { return []string{"red", "green"} }

type secret string

func (secret) String() string { return "***" }

type house struct {
	Rooms []room `yaml:"rooms,keyed"`
	Site  site   `yaml:"site"`
}

type room struct {
	Name    string           `yaml:"-"`
	Height  int              `yaml:"height,required"`
	Color   color            `default:"red" yaml:"color"`
	Warm    bool             `yaml:"warm"`
	Rest    time.Duration    `yaml:"rest"`
	Tags    []string         `yaml:"tags"`
	Windows []window         `yaml:"windows"`
	Note    yamlfile.Literal `yaml:"note"`
}

type window struct {
	Width int `yaml:"width,required"`
}

type site struct {
	Street string `yaml:"street"`
	Code   secret `yaml:"code"`
}

func decode(t *testing.T, text string) (house, yamlfile.Positions, error) {
	root, problems := yamlfile.Parse("f.yml", []byte(text))
	require.NotNil(t, root, problems)
	var h house
	positions, found := root.Decode("", &h, nil)
	problems.Add(found...)
	return h, positions, problems.Err()
}

func TestDecode(t *testing.T) {
	t.Parallel()

	h, positions, err := decode(t, `
rooms:
  hall: {height: 1_000, color: green, warm: true, rest: 1h30m, tags: [a, "2"], windows: [{width: 3}], note: 0x10}
  attic:
    height: -2
    note: yes
site:
`)
	require.NoError(t, err)
	require.Equal(t, house{Rooms: []room{
		{
			Name: "hall", Height: 1000, Color: "green", Warm: true, Rest: 90 * time.Minute, Tags: []string{"a", "2"},
			Windows: []window{{Width: 3}}, Note: "16",
		},
		{Name: "attic", Height: -2, Color: "red", Note: "yes"},
	}}, h)
	require.Equal(t, "f.yml:3:3", positions["rooms.hall"].Position.String())
	require.Equal(t, "f.yml:5:13", positions["rooms.attic.height"].Position.String())
	require.Equal(t, "f.yml:4:3", positions.Of("rooms.attic.windows[3].width").Position.String(),
		"the nearest key above")
	require.NotContains(t, positions, "rooms.attic.color")
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()

	type example struct{ text, want string }
	pgtest.Each(t, map[string]example{
		"unknown key, close":     {"sites: {}\n", "f.yml:1:1: sites: unknown key (did you mean site?)"},
		"unknown key, not close": {"balconies: {}\n", "f.yml:1:1: balconies: unknown key (known keys: rooms, site)"},
		"url as key":             {"postgres://u:geheim@h/d:\n", "f.yml:1:1: …: unknown key (known keys: rooms, site)"},
		"mapping for text": {
			"site: {street: {a: 1}}\n",
			"f.yml:1:16: site.street: must be a string, not a mapping",
		},
		"number for text": {
			"site: {street: 5}\n",
			"f.yml:1:16: site.street: must be a string, not a whole number (put it in quotes)",
		},
		"bool for text": {
			"site: {code: true}\n",
			"f.yml:1:14: site.code: must be a string, not true or false (put it in quotes)",
		},
		"nothing for text": {
			"site:\n  street:\n",
			"f.yml:2:3: site.street: has no value (write one, or remove the key)",
		},
		"text for mapping": {"site: x\n", "f.yml:1:7: site: must be a mapping of keys, not a string"},
		"list for names":   {"rooms: [a]\n", "f.yml:1:8: rooms: must be a mapping of names, not a list"},
		"missing key": {
			"rooms:\n  a:\n  b: {warm: false}\n",
			"f.yml:2:3: rooms.a.height: is missing\nf.yml:3:6: rooms.b.height: is missing",
		},
		"text for number": {
			"rooms: {a: {height: tall}}\n",
			"f.yml:1:21: rooms.a.height: must be a whole number up to 2147483647",
		},
		"quoted number": {
			"rooms: {a: {height: '3'}}\n",
			"f.yml:1:21: rooms.a.height: must be a whole number up to 2147483647 (remove the quotes)",
		},
		"fraction": {"rooms: {a: {height: 1.5}}\n", "f.yml:1:21: rooms.a.height: must be a whole number up to 2147483647"},
		"octal":    {"rooms: {a: {height: 010}}\n", "f.yml:1:21: rooms.a.height: must be a whole number up to 2147483647"},
		"huge number": {
			"rooms: {a: {height: 3000000000}}\n",
			"f.yml:1:21: rooms.a.height: must be a whole number up to 2147483647",
		},
		"text for bool": {
			"rooms: {a: {height: 1, warm: yes}}\n",
			"f.yml:1:30: rooms.a.warm: must be true or false",
		},
		"quoted bool": {
			"rooms: {a: {height: 1, warm: 'true'}}\n",
			"f.yml:1:30: rooms.a.warm: must be true or false (remove the quotes)",
		},
		"duration without unit": {
			"rooms: {a: {height: 1, rest: 30}}\n",
			"f.yml:1:30: rooms.a.rest: must be a duration with units, such as 500ms, 30s or 1h30m",
		},
		"choice, close": {
			"rooms: {a: {height: 1, color: gren}}\n",
			"f.yml:1:31: rooms.a.color: must be one of red, green (did you mean green?)",
		},
		"choice, not close": {
			"rooms: {a: {height: 1, color: turquoise}}\n",
			"f.yml:1:31: rooms.a.color: must be one of red, green",
		},
		"text for list": {
			"rooms: {a: {height: 1, tags: x}}\n",
			"f.yml:1:30: rooms.a.tags: must be a list, not a string (write [a, b], or begin each entry with a dash)",
		},
		"mapping for list": {
			"rooms: {a: {height: 1, tags: {x: 1}}}\n",
			"f.yml:1:30: rooms.a.tags: must be a list, not a mapping (write [a, b], or begin each entry with a dash)",
		},
		"nothing for list": {
			"rooms:\n  a:\n    height: 1\n    tags:\n",
			"f.yml:4:5: rooms.a.tags: has no value (write [] for an empty list, or remove the key)",
		},
		"number in list": {
			"rooms: {a: {height: 1, tags: [x, 1]}}\n",
			"f.yml:1:34: rooms.a.tags[1]: must be a string, not a whole number (put it in quotes)",
		},
		"missing key in list": {
			"rooms: {a: {height: 1, windows: [{}]}}\n",
			"f.yml:1:34: rooms.a.windows[0].width: is missing",
		},
		"fraction as literal": {
			"rooms: {a: {height: 1, note: 1.5}}\n",
			"f.yml:1:30: rooms.a.note: must be a string, a whole number, or true or false (put it in quotes)",
		},
		"one problem per value": {
			"rooms: {a: {height: !x 1}}\n",
			"f.yml:1:21: rooms.a.height: tags, anchors and aliases are not supported (write the value out)",
		},
	}, func(t *testing.T, _ string, test example) {
		_, _, err := decode(t, test.text)
		require.EqualError(t, err, test.want)
	})
}

func TestDecodeVariables(t *testing.T) {
	t.Parallel()

	root, _ := yamlfile.Parse("f.yml", []byte("rooms: {a: {height: x, windows: 5}}\n"))
	root.Set("HEIGHT", "12", "rooms", "a", "height")
	root.Set("WARM", "TRUE", "rooms", "a", "warm")
	root.Set("TAGS", " x, 2 ,", "rooms", "a", "tags")
	root.Set("WINDOWS", "[{width: 1}, {width: 2}]", "rooms", "a", "windows")
	root.Set("CODE", "${12}", "site", "code")
	unset := func(string) (string, bool) { return "", false }

	var h house
	positions, problems := root.Decode("", &h, unset)
	require.NoError(t, problems.Err(), "variables are not expanded again")
	require.Equal(t, house{
		Rooms: []room{{
			Name: "a", Height: 12, Color: "red", Warm: true, Tags: []string{"x", "2"},
			Windows: []window{{1}, {2}},
		}},
		Site: site{Code: "${12}"},
	}, h)
	require.Equal(t, "CODE", positions["site.code"].Source)

	root.Set("HEIGHT", "tall", "rooms", "a", "height")
	root.Set("WINDOWS", "[{width: x}, {}, {widht: 1, width: 1}]", "rooms", "a", "windows")
	_, problems = root.Decode("", &h, unset)
	require.EqualError(t, problems.Err(), "HEIGHT: must be a whole number up to 2147483647\n"+
		"WINDOWS[0].width: must be a whole number up to 2147483647\n"+
		"WINDOWS[1].width: is missing\n"+
		"WINDOWS[2].widht: unknown key (did you mean width?)")

	root.Set("WINDOWS", "[{width: 'geheim}", "rooms", "a", "windows")
	_, problems = root.Decode("", &h, unset)
	require.ErrorContains(t, problems.Err(), "WINDOWS: YAML syntax: could not find end character of single-quoted text")
}

func TestRemovedKeysAreReportedWithTheirFix(t *testing.T) {
	t.Parallel()
	root, problems := yamlfile.Parse("file.yml", []byte("jobs: {schema: x}\nissues: [{on_reuse: keep}]\n"))
	require.Empty(t, problems)
	var into struct {
		Jobs   site   `yaml:"jobs"`
		Issues []site `yaml:"issues"`
	}
	_, problems = root.Decode("", &into, nil)
	require.EqualError(t, problems.Err(),
		"file.yml:1:8: jobs.schema: was removed (remove it; the schema is always sexton)\n"+
			"file.yml:2:11: issues[0].on_reuse: was removed (children of a key that was inserted again are kept; delete them with SQL if necessary)")
}
