package undo

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
)

// The functions that make and read kept texts have the settings of the list, and no others that matter to texts.
func TestFunctionsHaveTheSettings(t *testing.T) {
	t.Parallel()
	b := dbtest.Keeping(t, "CREATE TABLE p (id bigint PRIMARY KEY)", "p")
	want := []string{"search_path=pg_catalog, pg_temp"}
	for _, one := range settings {
		want = append(want, one[0]+"="+one[1])
	}
	slices.Sort(want)
	for _, name := range []string{"undo_text", "undo_value"} {
		var found []string
		for _, row := range b.Rows("SELECT unnest(proconfig) FROM pg_proc WHERE proname = $1", name) {
			found = append(found, strings.ReplaceAll(row[0], `"`, ""))
		}
		slices.Sort(found)
		require.Equal(t, want, found, name)
	}
}
