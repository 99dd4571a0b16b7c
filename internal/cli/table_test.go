package cli

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"
	cells "github.com/jedib0t/go-pretty/v6/text"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/config"
	"sexton/internal/pgtest"
	"sexton/internal/render"
)

func TestTables(t *testing.T) {
	t.Parallel()

	lines := strings.ReplaceAll("JOB\tNEXT\tERROR\ncleanup\tnow\tthe table issues is locked by another session\nx\t\t日本\n\nUSER\tID\n7\t8\nand more\n", "\t", render.Separator)
	require.Equal(t, `JOB      NEXT  ERROR
cleanup  now   the table issues is locked by another session
x              日本

USER  ID
7     8
and more
`, tables(lines, 0), "no terminal: full width")
	require.Equal(t, `JOB      NEXT  ERROR
cleanup  now   the table issues
               is locked by
               another session
x              日本

USER  ID
7     8
and more
`, tables(lines, 32))
}

func TestTablesKeepWordsAndWidth(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.StringMatching(`([a-zé日_.]{1,9} ){0,6}[a-z]{1,9}`)
		var rows []string
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			rows = append(rows, strings.Join([]string{cell.Draw(t, "a"), cell.Draw(t, "b"), cell.Draw(t, "c")},
				render.Separator))
		}
		// The longest words and two gaps need this much.
		width := rapid.IntRange(3*18+4, 200).Draw(t, "width")
		shown := tables(strings.Join(rows, "\n")+"\n", width)
		for line := range strings.Lines(shown) {
			require.LessOrEqual(t, cells.StringWidth(strings.TrimSuffix(line, "\n")), width, shown)
		}
		require.ElementsMatch(t, strings.Fields(strings.ReplaceAll(strings.Join(rows, " "), render.Separator, " ")),
			strings.Fields(shown), "no word is broken")
	})
}

const statistics = `{"connection":"main","over_limit":false,"delete_count":7,"delete_count_by_table":{"notes":5,"todos":2,"gone":0},"processed":3,"confirmed":3,"errors":[{"count":1}]}`

// logged is the line that the end of a run has on a terminal, or in a file.
func logged(t *testing.T, terminal bool, environ ...string) string {
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
	text, _ := io.ReadAll(master) // EIO at the end.
	return string(text)
}

func TestLogLinesOnATerminalAreShort(t *testing.T) {
	t.Parallel()
	const want = `^\S+ INF run_ended processed=3 stats="notes 5, todos 2, confirmed 3, delete_count 7, errors 1"\r\n\S+ INF run_ended\r\n$`
	require.Regexp(t, want, logged(t, true, "NO_COLOR=1", "TERM=xterm"))
	require.Regexp(t, want, logged(t, true, "TERM=dumb"))
	require.Contains(t, logged(t, true, "NO_COLOR=", "TERM=xterm"), "\x1b[")
	require.Contains(t, logged(t, false), `"stats":`+statistics, "files keep the whole")
}
