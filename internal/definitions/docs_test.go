package definitions

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// The table in docs/definitions.md has a row for each key of an entry, and marks the
// required keys.
func TestDocumentationHasEachKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/definitions.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n| key | type | default | meaning |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|[^|]*\\|([^|]*)\\|").FindAllStringSubmatch(table, -1) {
		documented[row[1]] = strings.TrimSpace(row[2]) == "required"
	}
	accepted := map[string]bool{}
	for field := range reflect.TypeFor[Definition]().Fields() {
		if key, option, _ := strings.Cut(field.Tag.Get("yaml"), ","); key != "" {
			accepted[key] = option == "required"
		}
	}
	require.Equal(t, accepted, documented, "keys of an entry, and whether they are required")
	require.Contains(t, table, "`"+strings.Join(Action("").Choices(), "`, `")+"`")
	require.Contains(t, table, "`"+ArtifactsCleaner+"`")
}

// The schema accepts the example files and GitLab's file, and rejects wrong entries.
func TestExamplesFitTheSchema(t *testing.T) {
	t.Parallel()
	read, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("definitions", read))
	schema, err := compiler.Compile("definitions")
	require.NoError(t, err)
	fits := func(text string) error {
		var document any
		require.NoError(t, yaml.Unmarshal([]byte(text), &document))
		return schema.Validate(document)
	}
	for _, file := range []string{
		"testdata/gitlab_loose_foreign_keys.yml",
		"../../sql/reference/loose_foreign_keys.yml", "../../deploy/example/loose_foreign_keys.yml",
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, fits(string(text)), file)
	}
	require.NoError(t, fits(Example))
	for _, wrong := range []string{
		"issues: []", "issues: [{table: a, column: b}]", "issues: [{table: a, column: b, on_delete: delete}]",
		"issues: [{table: a, column: [b, 1], on_delete: async_delete}]",
		"issues: [{tabel: a, table: a, column: b, on_delete: async_delete}]",
	} {
		require.Error(t, fits(wrong), wrong)
	}
}
