// Package plainenglish holds the project to the words of its guide: it has no code, and its test reads every file.
package plainenglish

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the folder of the project.
const root = "../.."

// tracked are the paths of git's files of such names that are still there.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", append([]string{"ls-files"}, patterns...)...)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skip("no git repository: ", err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool {
		_, err := os.Stat(filepath.Join(root, name))
		return os.IsNotExist(err)
	})
}

func TestWords(t *testing.T) {
	t.Parallel()
	// Parts of the names of files in which the patterns may stand until they are written anew.
	allowed := []string{"_test.go", "/testdata/"}
	words := regexp.MustCompile(`(?i)\b(?:those that|nobody|whoever|tells? whether|is what|sees to it|but for|as far as)\b`)
	// The system user of that name and Go's empty body are no words of ours.
	names := regexp.MustCompile(`"postgres", "nobody"|http\.NoBody`)
	read, unused := 0, slices.Clone(allowed)
	for _, name := range tracked(t, "*.go", "*.sql", "*.md", "*.html", "*.js", "*.yml", "*.yaml", "*.sh") {
		if name == "internal/plainenglish/words_test.go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		read++
		for i, line := range strings.Split(string(text), "\n") {
			found := words.FindString(names.ReplaceAllString(line, ""))
			if found == "" {
				continue
			}
			at := slices.IndexFunc(allowed, func(part string) bool { return strings.Contains(name, part) })
			if at < 0 {
				t.Errorf("%s: %q: name the actor, in plain active English", name+":"+strconv.Itoa(i+1), found)
				continue
			}
			unused = slices.DeleteFunc(unused, func(part string) bool { return part == allowed[at] })
		}
	}
	require.Greater(t, read, 500)
	require.Empty(t, unused, "files that need no leave any more")
}

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
