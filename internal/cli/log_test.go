package cli

import (
	"encoding/json"
	"io"
	"os"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/pgtest"
)

const statistics = `{"connection":"main","over_limit":false,"delete_count":7,"delete_count_by_table":{"notes":5,"todos":2,"gone":0},"processed":3,"confirmed":3,"errors":[{"count":1}]}`

// logLines returns the log lines of two runs as NewLogger writes them to a terminal or to
// a file.
func logLines(t *testing.T, terminal bool, environ ...string) string {
	write := func(to io.Writer) {
		log := (&Env{Environ: environ}).NewLogger(to, config.Log{Level: "info", Format: config.FormatAuto})
		log.Info("run_ended", "processed", 3, "stats", json.RawMessage(statistics))
		log.Info("run_ended", "stats", json.RawMessage(`{"processed": 0}`))
	}
	if !terminal {
		file := pgtest.Must(os.CreateTemp(t.TempDir(), "log"))(t)
		write(file)
		return string(pgtest.Must(os.ReadFile(file.Name()))(t))
	}
	master, tty := pgtest.Must2(pty.Open())(t)
	defer master.Close()
	write(tty)
	require.NoError(t, tty.Close())
	// Reading from the terminal ends with EIO after the other end is closed.
	text, _ := io.ReadAll(master)
	return string(text)
}

func TestLogLinesOnATerminalAreShort(t *testing.T) {
	t.Parallel()
	const want = `^\S+ INF run_ended processed=3 stats="notes 5, todos 2, confirmed 3"\r\n\S+ INF run_ended\r\n$`
	require.Regexp(t, want, logLines(t, true, "NO_COLOR=1", "TERM=xterm"))
	require.Regexp(t, want, logLines(t, true, "TERM=dumb"))
	require.Contains(t, logLines(t, true, "NO_COLOR=", "TERM=xterm"), "\x1b[")
	require.Contains(t, logLines(t, false), `"stats":`+statistics, "a file has the complete statistics")
}
