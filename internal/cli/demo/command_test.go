package demo_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/definitions"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

func TestDemoPrintsSchemaAndDefinitions(t *testing.T) {
	t.Parallel()
	r := clitest.Run(nil, "demo", "--print-schema")
	require.Zero(t, r.Code, r.Stderr)
	require.Empty(t, r.Stderr)
	require.Equal(t, exampleapp.Schema(), r.Stdout)
	db := pgtest.New(t)
	db.Exec(r.Stdout)

	printed := clitest.Run(nil, "demo", "--print-definitions")
	require.Zero(t, printed.Code, printed.Stderr)
	require.Empty(t, printed.Stderr)
	require.Equal(t, exampleapp.Definitions(), printed.Stdout)
	defs := pgtest.Must(definitions.Parse(definitions.File{Name: "printed.yml", Data: []byte(printed.Stdout)}))(t)
	require.NotEmpty(t, defs)
	for _, d := range defs {
		require.Equal(t, [][]string{{"t", "t"}}, db.Rows(`
			SELECT EXISTS (SELECT FROM information_schema.columns WHERE table_name = $1 AND column_name = $2),
				EXISTS (SELECT FROM pg_class WHERE oid = to_regclass($3) AND relkind IN ('r', 'p'))`,
			d.Child.Table, d.Columns[0], d.Parent.Table), "%s: %s.%s of %s is in the schema", d.Key, d.Child,
			d.Columns[0], d.Parent)
	}
}

func TestDemoIgnoresTheEnvironment(t *testing.T) {
	t.Parallel()
	environ := []string{"SEXTON_CONFIG=/nowhere/sexton.yaml", "DATABASE_URL=nonsense", "SEXTON_NO_SUCH_KEY=1"}
	r := clitest.Run(environ, "demo", "--print-definitions")
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, exampleapp.Definitions(), r.Stdout)
}

func TestWrongUsageOfDemo(t *testing.T) {
	t.Parallel()
	const refusal = "demo runs on its own private Postgres and accepts neither --config nor --database-url"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"3 rows":            {[]string{"--rows", "3"}, "--rows must be at least 1000"},
		"negative rows":     {[]string{"--rows", "-1", "--print-schema"}, "--rows must be at least 1000"},
		"999 rows":          {[]string{"--rows", "999"}, "--rows must be at least 1000"},
		"rows not a number": {[]string{"--rows", "many"}, `invalid argument "many" for "--rows" flag`},
		"config":            {[]string{"--config", "sexton.yaml"}, refusal},
		"database":          {[]string{"--database-url", "postgres://x@localhost/y"}, refusal},
		"both print flags": {
			[]string{"--print-schema", "--print-definitions"},
			"if any flags in the group [print-schema print-definitions] are set none of the others can be",
		},
		"argument":     {[]string{"now"}, `unknown command "now" for "sexton demo"`},
		"unknown flag": {[]string{"--row", "2000"}, "unknown flag: --row"},
	} {
		r := clitest.Run(nil, append([]string{"demo"}, test.args...)...)
		require.Equal(t, 2, r.Code, name)
		require.Empty(t, r.Stdout, name)
		require.Contains(t, r.Stderr, test.want, name)
		require.Contains(t, r.Stderr, `Run "sexton demo --help" for usage.`, name)
	}
}

func TestDemoWithExit(t *testing.T) {
	t.Parallel()
	r := clitest.Run(nil, "demo", "--exit", "--json", "--rows", "1000")
	require.Zero(t, r.Code, r.Stderr)
	var summary struct {
		Scenes []struct {
			Title  string `json:"title"`
			Counts []struct {
				Text  string `json:"text"`
				Count int64  `json:"count"`
				Lost  bool   `json:"lost"`
			} `json:"counts"`
		} `json:"scenes"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &summary), r.Stdout)
	var titles []string
	counts := map[string]int64{}
	for _, scene := range summary.Scenes {
		titles = append(titles, scene.Title)
		require.NotEmpty(t, scene.Counts, scene.Title)
		for _, c := range scene.Counts {
			require.False(t, c.Lost && c.Count > 0, "%d %s", c.Count, c.Text)
			counts[c.Text] = c.Count
		}
	}
	require.Equal(t, []string{
		"loose foreign keys", "ghost users", "placeholder users", "groups", "external diffs",
		"undo",
	}, titles)
	require.EqualValues(t, 5001, counts["rows restored"])
}
