package pgtest

import (
	"os"
	"path/filepath"
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
	want, err := os.ReadFile(path)
	require.NoError(tb, err)
	require.Equal(tb, string(want), got, "the texts decide plans, locks and speed; GOLDEN=write go test takes what changes on purpose")
}
