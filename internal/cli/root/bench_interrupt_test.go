package root

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli"
	"sexton/internal/pgtest"
)

// interrupter is a writer that cancels the context of a command when the given line is
// written. If line is empty, it never cancels.
type interrupter struct {
	line      string
	interrupt context.CancelFunc
}

func (i interrupter) Write(line []byte) (int, error) {
	if string(line) == i.line+"\n" {
		i.interrupt()
	}
	return len(line), nil
}

func TestBenchmarksDropTheirDatabases(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	conn := pgtest.Connect(t, server.URL("postgres"))
	latency, drain := []string{"latency", "--events", "20"},
		[]string{"drain", "--set", "wide", "--scale", "0.001", "--rounds", "1"}
	type interruption struct {
		line string
		args []string
	}
	interruptions := []interruption{
		{"", drain},
		{"deleting 20 parents one at a time while a worker is running", latency},
	}
	if pgtest.Long {
		interruptions = append(interruptions, []interruption{
			{"deleting 20 parents with ON DELETE CASCADE", latency},
			{"wide: inserting the rows", drain},
			{"wide: round 1 of 1, sexton", drain},
		}...)
	}
	for _, test := range interruptions {
		line := test.line
		ctx, interrupt := context.WithCancel(t.Context())
		t.Cleanup(interrupt)
		var stdout strings.Builder
		a := &cli.Env{Stdout: &stdout, Stderr: interrupter{line, interrupt}}
		root := newCommand(a)
		root.SetArgs(append([]string{"bench"}, append(test.args, "--database-url", server.URL("postgres"))...))
		_, err := root.ExecuteContextC(ctx)
		if line == "" {
			require.NoError(t, err)
			require.Contains(t, stdout.String(), "one statement")
		} else {
			require.ErrorIs(t, err, context.Canceled, line)
		}

		databases := pgtest.Scalar[int](t, conn, "SELECT count(*) FROM pg_database WHERE datname LIKE 'sexton_bench%'")
		require.Zero(t, databases, line)
	}
}
