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

// interpreters run the examples of documents in other languages, word for word. Each
// needs its library: python3-psycopg of Debian, and pg of npm in NODE_PATH. Debian's
// libraries are those of Debian's interpreter.
var interpreters = map[string][]string{"python": {"/usr/bin/python3", "-"}, "js": {"node", "-"}}

// snippet is a program in the documents that runs against a site.
func snippet(ctx context.Context, t *testing.T, s doorSite, file, language string) *exec.Cmd {
	blocks := docBlocks(t, file, language)
	require.Len(t, blocks, 1)
	client := exec.CommandContext(ctx, interpreters[language][0], interpreters[language][1:]...)
	client.Stdin = strings.NewReader(blocks[0])
	client.Env = append(os.Environ(), "DATABASE_URL="+s.application)
	return client
}

// TestEventLoops runs the loops of docs/events.md, which do not end, until they have
// removed a file.
func TestEventLoops(t *testing.T) {
	t.Parallel()
	p := build(t)
	pgtest.Each(t, interpreters, func(t *testing.T, language string, _ []string) {
		s := newDoorSite(t, p)
		ctx, stop := context.WithTimeout(t.Context(), stopLimit)
		defer stop()
		client := snippet(ctx, t, s, "events.md", language)
		client.Stderr = os.Stderr
		out := bufio.NewScanner(pgtest.Must(client.StdoutPipe())(t))
		require.NoError(t, client.Start())
		s.deleteAttachments(t)
		require.True(t, out.Scan(), "the loop ended")
		require.Equal(t, "remove uploads a/7", out.Text())
		s.wait(t, stopLimit, "the place",
			"EXISTS (SELECT FROM file_places WHERE id = (SELECT max(id) FROM sexton.events))")
		stop()
		require.Error(t, client.Wait(), "it was killed")
		s.worker.stop(t)
	})
}
