//go:build snippets

package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// TestSnippets runs the examples of docs/sql.md in other languages, word for word. Each needs its interpreter and library:
// ruby-pg and python3-psycopg of Debian, and pg of npm in NODE_PATH.
func TestSnippets(t *testing.T) {
	t.Parallel()
	p := build(t)
	// Debian's libraries are those of Debian's interpreter.
	pgtest.Each(t, map[string][]string{"ruby": {"ruby", "-"}, "python": {"/usr/bin/python3", "-"}, "js": {"node", "-"}}, func(t *testing.T, language string, interpreter []string) {
		blocks := docBlocks(t, "sql.md", language)
		require.Len(t, blocks, 1)
		s := newDoorSite(t, p)
		client := exec.CommandContext(t.Context(), interpreter[0], interpreter[1:]...)
		client.Stdin = strings.NewReader(blocks[0])
		client.Env = append(os.Environ(), "DATABASE_URL="+s.application)
		out, err := client.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "job: completed")
		require.Contains(t, string(out), "event: user_destroyed ")
		s.answered(t)
	})
}
