//go:build snippets

package integration

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// interpreters are the commands that run the documents' examples in other languages word
// for word. They need python3-psycopg of Debian, which works only with Debian's
// interpreter, and pg of npm in NODE_PATH.
var interpreters = map[string][]string{"python": {"/usr/bin/python3", "-"}, "js": {"node", "-"}}

// snippet returns a command that runs the only example of a language in a document
// against a site.
func snippet(ctx context.Context, t *testing.T, s sqlSite, file, language string) *exec.Cmd {
	blocks := docBlocks(t, file, language)
	require.Len(t, blocks, 1)
	client := exec.CommandContext(ctx, interpreters[language][0], interpreters[language][1:]...)
	client.Stdin = strings.NewReader(blocks[0])
	client.Env = append(os.Environ(), "DATABASE_URL="+s.application)
	return client
}

// TestEventLoops runs the endless loops of docs/events.md until they have removed a file
// and stored their position.
func TestEventLoops(t *testing.T) {
	t.Parallel()
	p := build(t)
	pgtest.Each(t, interpreters, func(t *testing.T, language string, _ []string) {
		s := newSQLSite(t, p)
		ctx, stop := context.WithTimeout(t.Context(), stopLimit)
		defer stop()
		client := snippet(ctx, t, s, "events.md", language)
		client.Stderr = os.Stderr
		out := bufio.NewScanner(pgtest.Must(client.StdoutPipe())(t))
		require.NoError(t, client.Start())
		s.deleteAttachments(t)
		require.True(t, out.Scan(), "the loop must not end")
		require.Equal(t, "remove uploads a/7", out.Text())
		s.wait(t, stopLimit, "the position to be stored",
			"EXISTS (SELECT FROM file_places WHERE id = (SELECT max(id) FROM sexton.events))")
		stop()
		require.Error(t, client.Wait(), "the loop must run until it is killed")
		s.worker.stop(t)
	})
}
