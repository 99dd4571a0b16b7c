package definitions

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of docs/definitions.md has a row for each key of an entry, and says which have to be there.
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
	for field := range reflect.TypeFor[entry]().Fields() {
		key, option, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		accepted[key] = option == "required"
	}
	require.Equal(t, accepted, documented, "keys of an entry, and whether they are required")
	require.Contains(t, table, "`"+strings.Join(Action("").Choices(), "`, `")+"`")
	require.Contains(t, table, "`"+ArtifactsCleaner+"`")
}
