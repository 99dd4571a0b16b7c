package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Golden fails where a text is not that of a file in testdata, byte by byte. With GOLDEN=write in the environment it writes the file.
func Golden(tb testing.TB, name, got string) {
	tb.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("GOLDEN") == "write" {
		require.NoError(tb, os.MkdirAll("testdata", 0o755))
		require.NoError(tb, os.WriteFile(path, []byte(got), 0o600))
	}
	want := Must(os.ReadFile(path))(tb)
	require.Equal(tb, string(want), got, "the texts decide plans, locks and speed; GOLDEN=write go test takes what changes on purpose")
}

// Statements collects the texts of statements under titles, one a line: ⏎ stands for the end of a line in them.
type Statements struct{ strings.Builder }

// Add adds the statement that the function which it returns is called with.
func (s *Statements) Add(title string) func(sql string, args []any) {
	return func(sql string, args []any) {
		types := make([]string, len(args))
		for i, arg := range args {
			types[i] = fmt.Sprintf("%T", arg)
		}
		fmt.Fprintf(s, "%s: %s -- %s\n", title, strings.ReplaceAll(sql, "\n", "⏎"), strings.Join(types, ", "))
	}
}
