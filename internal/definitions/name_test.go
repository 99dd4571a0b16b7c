package definitions_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/definitions"
)

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
		`"a"b`:                  "goes on after its closing double quote",
		`s."a".b`:               "goes on after its closing double quote",
		strings.Repeat("ü", 32): "has 64 bytes; Postgres allows 63",
	} {
		_, err := definitions.ParseName(text)
		require.EqualError(t, err, want, text)
	}
}

func TestParseNameTakesEveryQuotedIdentifier(t *testing.T) {
	t.Parallel()

	quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	rapid.Check(t, func(t *rapid.T) {
		identifier := rapid.StringMatching(`[a-zA-Z. "'é]{1,20}`)
		want := definitions.Name{Schema: identifier.Draw(t, "schema"), Table: identifier.Draw(t, "table")}
		got, err := definitions.ParseName(quote(want.Schema) + "." + quote(want.Table))
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}
