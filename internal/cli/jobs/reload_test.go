package jobs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli"
	"sexton/internal/pace"
	riverjobs "sexton/river_jobs"
)

// However a worker came to read the wrong file, by a signal or by a look at it, it says when the file is right again.
func TestAWrongFileThatIsPutRightLeavesALine(t *testing.T) {
	t.Parallel()
	const right = "loose_foreign_keys: {definitions: [loose_foreign_keys.yml]}\n"
	for _, signalled := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			definitions := "children: [{table: parents, column: parent_id, on_delete: async_delete}]\n"
			require.NoError(t, os.WriteFile(filepath.Join(dir, "loose_foreign_keys.yml"), []byte(definitions), 0o600))
			file := filepath.Join(dir, "sexton.yaml")
			require.NoError(t, os.WriteFile(file, []byte(right), 0o600))
			a := &cli.Env{ConfigPath: file, DatabaseURL: "postgres://nobody@nowhere.invalid/none"}
			flags := worker{refused: &refusal{}}
			c, err := readWorker(a, flags)
			require.NoError(t, err)

			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			hangups := make(chan os.Signal)
			var log bytes.Buffer
			go awaitReload(ctx, a, c, flags, hangups, slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, os.WriteFile(file, []byte("loose_foreign_keys: [\n"), 0o600))
			if signalled {
				hangups <- os.Interrupt
			} else {
				require.NoError(t, pace.Sleep(ctx, 2*watchEvery))
			}
			synctest.Wait()
			require.Contains(t, flags.refused.text(), "sexton.yaml:2: YAML syntax")
			require.NoError(t, os.WriteFile(file, []byte(right), 0o600))
			require.NoError(t, pace.Sleep(ctx, 2*watchEvery))
			synctest.Wait()
			require.Empty(t, flags.refused.text())
			require.Equal(t, 1, strings.Count(log.String(), "configuration is as it was, the worker goes on with it"))
		})
	}
}

// A file that hangs keeps neither a signal without an answer nor the process from its end.
func TestAFileThatHangsIsSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "sexton.yaml")
	require.NoError(t, os.WriteFile(file, []byte("loose_foreign_keys: {enabled: false}\nghost_users: {enabled: true}\n"), 0o600))
	a := &cli.Env{ConfigPath: file, DatabaseURL: "postgres://nobody@nowhere.invalid/none"}
	flags := worker{refused: &refusal{}}
	c, err := readWorker(a, flags)
	require.NoError(t, err)
	hanging, writer, err := os.Pipe()
	require.NoError(t, err)
	defer hanging.Close()
	defer writer.Close()
	definitions := fmt.Sprintf("loose_foreign_keys: {definitions: [/dev/fd/%d]}\n", hanging.Fd())
	require.NoError(t, os.WriteFile(file, []byte(definitions), 0o600))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	hangups := make(chan os.Signal)
	said := make(chan string, 9)
	log := slog.New(slog.NewTextHandler(lines(said), nil))
	ended := make(chan *loaded)
	go func() { ended <- awaitReload(ctx, a, c, flags, hangups, log) }()
	for range 2 {
		hangups <- os.Interrupt
	}
	require.Contains(t, <-said, stillReading)
	require.Equal(t, stillReading, flags.refused.text())
	stop()
	require.Nil(t, <-ended)
}

// lines are a log that is read line by line.
type lines chan<- string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// Without its database each of River's queues says so several times a second; what concerns one job is said each time.
func TestRiverIsDampened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const skipped = "maintenance.PeriodicJobEnqueuer: " + riverjobs.Skipped
		var text bytes.Buffer
		dampened := dampenRiver(slog.New(slog.NewTextHandler(&text, nil)))
		log := slog.New(dampened)
		for range 50 {
			log.Info(skipped, "client", "one")
			log.With("client", "two").Info(skipped)
			log.Error("producer: Error fetching jobs", "err", "gone", "queue", "one")
			log.Error("producer: Error fetching jobs", "err", "gone", "queue", "two")
			log.Error("executor: Error completing job", "err", "gone", "job_id", 7)
		}
		dampened.Flush()
		require.NotContains(t, text.String(), riverjobs.Skipped)
		require.Equal(t, 50, strings.Count(text.String(), "Error completing job"))
		require.NotContains(t, text.String(), "job_id=7 left_out")
		require.Equal(t, 2, strings.Count(text.String(), "Error fetching jobs"))
		require.Contains(t, text.String(), "queue=two left_out=98\n")
	})
}
