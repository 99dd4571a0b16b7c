package definitions_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/problem"
)

// FuzzParse verifies that Parse returns for any input, and that each problem has a line
// and a message.
func FuzzParse(f *testing.F) {
	gitlab, err := os.ReadFile("testdata/gitlab_loose_foreign_keys.yml")
	require.NoError(f, err)
	broken, err := os.ReadFile("testdata/broken.yml")
	require.NoError(f, err)
	f.Add(gitlab[:2000])
	f.Add(broken)
	for _, seed := range []string{
		"", "---\n", "a", "- a", "a: [", "a: {b: 'c", "\"a\": [{table: b, column: c, on_delete: async_delete}]",
		"a: &x [*x]\n", "<<: *a", "a: &a\n  - &b {table: !!str 1}\n  - {<<: *b}\n  - {<<: [*b, *b], column: ~}\n",
		"? a\n: - b", "a: |\n x\n", "a:\n\t- b", "\ufeffa: 1", "\xff", "a: 1\r\nb: 2\r\n",
		"%YAML 1.2\n---\na: 0x1f\n...\n---\nb: 1",
		"[[[[[[[[[[", "a: !!x y", "a: @b", "a.b.c: []", "\"\\\"a\\\".b\":\n- {conditions: [{column: c, value: .inf}]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := definitions.Parse(definitions.File{Name: "f.yml", Data: data})
		var problems problem.List
		if err != nil {
			require.ErrorAs(t, err, &problems)
		}
		for _, p := range problems {
			require.Equal(t, "f.yml", p.Position.File, p)
			require.Positive(t, p.Position.Line, p)
			require.NotEmpty(t, p.Message)
		}
	})
}
