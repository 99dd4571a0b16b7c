package plainenglish

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPackagesSayWhatTheyAre asks a doc.go of more than two lines of every package with more than two files, so that its comment stands once.
func TestPackagesSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	files := map[string][]string{} // by folder
	for _, name := range tracked(t, "*.go") {
		if !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "/testdata/") {
			files[filepath.Dir(name)] = append(files[filepath.Dir(name)], name)
		}
	}
	require.Greater(t, len(files), 40)
	for folder, names := range files {
		if len(names) <= 2 {
			continue
		}
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(root, name))
			require.NoError(t, err)
			comment, _, _ := bytes.Cut(text, []byte("\npackage "))
			described := bytes.HasPrefix(comment, []byte("// Package "))
			if filepath.Base(name) != "doc.go" {
				require.False(t, described, "%s: its comment on the package belongs into doc.go", name)
				continue
			}
			require.True(t, described, "%s: begin with // Package", name)
			require.Greater(t, bytes.Count(comment, []byte("\n"))+1, 2, "%s: say what it is, its one invariant and its entry point", name)
		}
		require.FileExists(t, filepath.Join(root, folder, "doc.go"), "say what the package is, its one invariant and its entry point")
	}
}
