package definitions_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/definitions"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

func TestColumnsAreOneNameOrAList(t *testing.T) {
	t.Parallel()

	got, err := parse(`
notes:
  - {table: users, column: user_id, parent_column: uuid, on_delete: async_delete}
  - {table: projects, column: [project_id], parent_column: [id], on_delete: async_delete}
  - {table: issues, column: [tenant_id, issue_id], on_delete: async_delete}
  - table: merge_requests
    column: [tenant_id, "merge, request"]
    parent_column:
      - tenant
      - iid
    on_delete: async_nullify
`)
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.Equal(t, yamlfile.Texts{"user_id"}, got[0].Columns)
	require.Equal(t, yamlfile.Texts{"uuid"}, got[0].ParentColumns)
	require.Equal(t, yamlfile.Texts{"project_id"}, got[1].Columns)
	require.Equal(t, yamlfile.Texts{"id"}, got[1].ParentColumns)
	require.Equal(t, yamlfile.Texts{"tenant_id", "issue_id"}, got[2].Columns)
	require.Empty(t, got[2].ParentColumns)
	require.Equal(t, yamlfile.Texts{"tenant_id", "merge, request"}, got[3].Columns)
	require.Equal(t, yamlfile.Texts{"tenant", "iid"}, got[3].ParentColumns)
	require.Equal(t, "tenant_id, issue_id", got[2].ColumnList())

	at := func(line, column int) problem.Position {
		return problem.Position{File: "f.yml", Line: line, Column: column}
	}
	require.Equal(t, at(3, 28), got[0].At("column"))
	require.Equal(t, at(5, 41), got[2].At("column[1]"))
	require.Equal(t, at(5, 29), got[2].At("column[7]"), "a missing item has the position of the list")
	require.Equal(t, at(10, 9), got[3].At("parent_column[1]"))
	require.Equal(t, got[2].Position, got[2].At("parent_column[1]"), "a missing key has the position of the entry")
}

func TestColumnErrors(t *testing.T) {
	t.Parallel()

	entry := func(columns string) string { return "a:\n  - {table: p, on_delete: async_delete, " + columns + "}\n" }
	type example struct{ text, want string }
	pgtest.Each(t, map[string]example{
		"empty list": {
			entry("column: []"),
			"f.yml:2:49: a[0].column: is empty (name at least one column)",
		},
		"empty list of the parent": {
			entry("column: [b, c], parent_column: []"),
			"f.yml:2:72: a[0].parent_column: is empty (name at least one column)",
		},
		"different lengths": {
			entry("column: [b, c], parent_column: [d, e, f]"),
			"f.yml:2:72: a[0].parent_column: must name as many columns as column (name one column of the parent for each of the child's)",
		},
		"one for several": {
			entry("column: [b, c], parent_column: d"),
			"f.yml:2:72: a[0].parent_column: must name as many columns as column (name one column of the parent for each of the child's)",
		},
		"several for one": {
			entry("column: b, parent_column: [d, e]"),
			"f.yml:2:67: a[0].parent_column: must name as many columns as column (name one column of the parent for each of the child's)",
		},
		"named twice": {
			entry("column: [b, c, b], parent_column: [d, d, e]"),
			"f.yml:2:56: a[0].column[2]: is named twice\n" +
				"f.yml:2:79: a[0].parent_column[1]: is named twice",
		},
		"empty name": {entry(`column: [b, ""]`), "f.yml:2:53: a[0].column[1]: the name is empty"},
		"number": {
			entry("column: [b, 7]"),
			"f.yml:2:53: a[0].column[1]: must be a string, not a whole number (put it in quotes)",
		},
		"nothing": {
			entry("column: [b, ~]"),
			"f.yml:2:53: a[0].column[1]: has no value (write one, or remove the key)",
		},
		"list in list": {entry("column: [b, [c]]"), "f.yml:2:53: a[0].column[1]: must be a string, not a list"},
		"mapping": {
			entry("column: {b: c}"),
			"f.yml:2:49: a[0].column: must be a list, not a mapping (write [a, b], or begin each entry with a dash)",
		},
		"other columns of one parent": {
			"a:\n" +
				"  - {table: p, column: [b, c], parent_column: [d, e], on_delete: async_delete}\n" +
				"  - {table: p, column: [c, b], parent_column: [e, d], on_delete: async_delete}\n",
			"f.yml:3:5: a[1].parent_column: is e, d, but a[0] at f.yml:2:5 has d, e for the same parent p",
		},
		"repeated": {
			"a:\n" +
				"  - {table: p, column: [b, c], on_delete: async_delete}\n" +
				"  - {table: p, column: [b, c], on_delete: async_nullify}\n",
			"f.yml:3:5: a[1]: repeats a[0] at f.yml:2:5: child a, column b, c, parent p",
		},
	}, func(t *testing.T, _ string, test example) {
		_, err := parse(test.text)
		require.EqualError(t, err, test.want)
	})
}

func TestParseName(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]definitions.Name{
		"issues":                {Table: "issues"},
		"public.issues":         {Schema: "public", Table: "issues"},
		"a.b.c":                 {Schema: "a", Table: "b.c"},
		"Mixed Case":            {Table: "Mixed Case"},
		`"a.b"`:                 {Table: "a.b"},
		`"a.b".c.d`:             {Schema: "a.b", Table: "c.d"},
		`s."a""b"`:              {Schema: "s", Table: `a"b`},
		strings.Repeat("ü", 31): {Table: strings.Repeat("ü", 31)},
	} {
		got, err := definitions.ParseName(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"":                      "is empty",
		"a.":                    "is empty",
		`""`:                    "is empty",
		`"a`:                    "lacks its closing double quote",
		`s."a"".`:               "lacks its closing double quote",
		`"a"b`:                  "has text after its closing double quote",
		`s."a".b`:               "has text after its closing double quote",
		strings.Repeat("ü", 32): "has 64 bytes; Postgres allows 63",
	} {
		_, err := definitions.ParseName(text)
		require.EqualError(t, err, want, text)
	}
}

func TestParseNameAcceptsEveryQuotedIdentifier(t *testing.T) {
	t.Parallel()

	quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	rapid.Check(t, func(t *rapid.T) {
		identifier := rapid.StringMatching(`[a-zA-Z. "'é]{1,20}`)
		want := definitions.Name{Schema: identifier.Draw(t, "schema"), Table: identifier.Draw(t, "table")}
		got := pgtest.Must(definitions.ParseName(quote(want.Schema) + "." + quote(want.Table)))(t)
		require.Equal(t, want, got)
	})
}
