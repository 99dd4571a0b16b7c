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
	riverjobs "sexton/river_jobs"
)

// A file that hangs keeps neither a signal without an answer nor the process from its end.
func TestAFileThatHangsIsSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "sexton.yaml")
	require.NoError(t, os.WriteFile(file, []byte("loose_foreign_keys: {enabled: false}\nghost_users: {enabled: true}\n"), 0o600))
	a := &cli.Env{ConfigPath: file, DatabaseURL: "postgres://nobody@nowhere.invalid/none"}
	flags := worker{refused: &refusal{}}
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
	go func() { ended <- awaitReload(ctx, a, flags, hangups, log) }()
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
