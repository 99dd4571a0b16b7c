package bench

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lines returns the lines of the text of a report, with " | " between cells.
func lines(r *Report) []string {
	var out strings.Builder
	r.Text(&out)
	return strings.Split(regexp.MustCompile("  +").ReplaceAllString(out.String(), " | "), "\n")
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := &Report{Row: Row{{"rows", "", "", 3}, {"sets", "", "", []Row{{{"ms", "", "", nil}}}}, {"a&b", "", "", "<"}}}
	r.show(Row{{"k", "name", "%s", "one"}, {"", "MiB", "%.1f", mebibytes(new(int64(3 << 19)))}},
		Row{{"", "name", "%s", "two"}, {"", "MiB", "%.1f", mebibytes(nil)}})
	r.show(Row{{"", "", "%s", "a line"}, {"", "", "%d", 7}})
	r.notef("%d notes", 1)
	require.Equal(t, []string{"name | MiB", "one | 1.5", "two | -", "", "a line | 7", "", "1 notes", ""}, lines(r))
	encoded, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"rows": 3, "sets": [{"ms": null}], "a&b": "<"}`, string(encoded))
	require.Equal(t, byte('{'), encoded[0])
	require.Less(t, strings.Index(string(encoded), "rows"), strings.Index(string(encoded), "sets"), "the keys are in the order of the figures")
}
