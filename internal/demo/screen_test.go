package demo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/mattn/go-runewidth"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// control is a sequence that moves, erases or colours.
var control = regexp.MustCompile("\x1b\\[([0-9;?]*)([A-Za-z])")

// colour is one that colours.
var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// display is what a terminal shows of an output in which the cursor goes up only from the first column.
func display(t *testing.T, output string) []string {
	lines, row := []string{""}, 0
	for output != "" {
		if at := control.FindStringSubmatchIndex(output); at != nil && at[0] == 0 {
			switch argument, command := output[at[2]:at[3]], output[at[4]:at[5]]; command {
			case "A":
				up := pgtest.Must(strconv.Atoi(argument))(t)
				require.LessOrEqual(t, up, row, "above the first line")
				row -= up
			case "J":
				lines = append(lines[:row], "")
			case "m": // A colour.
			default:
				require.Fail(t, "a sequence that this test does not know", "%q", output[at[0]:at[1]])
			}
			output = output[at[1]:]
			continue
		}
		next := strings.IndexAny(output[1:], "\x1b\n")
		text := output[:max(1, next+1)]
		if next < 0 {
			text = output
		}
		output = output[len(text):]
		if rest, isNewLine := strings.CutPrefix(text, "\n"); isNewLine {
			if row++; row == len(lines) {
				lines = append(lines, "")
			}
			text = rest
		}
		lines[row] += strings.TrimRight(text, "\r")
	}
	return lines
}

func TestDisplay(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"one", "3", "", ""}, display(t, "one\r\n\x1b[2mtwo\x1b[0m\r\nthree\r\n\x1b[2A\x1b[J3\n\n"))
}

// painted paints and closes, and fails the test if that takes for ever.
func painted(t *testing.T, w io.Writer, paint func(s *Screen)) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s := NewScreen(w, "Ctrl-C stops and removes everything.", true)
		paint(s)
		s.Close()
	}()
	receive(t, closed, "Close to return")
}

// shown paints to a buffer, and returns the last picture.
func shown(t *testing.T, paint func(s *Screen)) []string {
	var out bytes.Buffer
	painted(t, &out, paint)
	return display(t, out.String())
}

func TestScreenLeavesThePanel(t *testing.T) {
	t.Parallel()
	lines := shown(t, func(s *Screen) {
		for done := int64(0); done <= 2000; done += 500 {
			s.Loaded(done, 2000)
		}
		first := busy()
		for i := range first.Scenes {
			first.Scenes[i].Backlog, first.Scenes[i].RowsPerSecond = 0, 0
		}
		s.Show(first)
		s.Show(busy())
	})
	lines[0] = strings.TrimPrefix(lines[0], "\r")
	want := panel{width: 80, height: unlimited, closing: "Ctrl-C stops and removes everything.", colour: true}.
		lines(busy(), []trace{{backlog: []float64{0, 1002}, speed: []float64{0, 34567.8}}, {backlog: []float64{0, 1}, speed: []float64{0, 0}}})
	for i := range want {
		want[i] = control.ReplaceAllString(want[i], "")
	}
	require.Equal(t, append(want, ""), lines)
	require.Equal(t, 500*time.Millisecond, (*Screen)(nil).Interval())
}

func TestScreenClosesAtAnyTime(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]func(s *Screen){
		"at once":                   func(*Screen) {},
		"before the load":           func(s *Screen) { s.Loaded(0, 1000) },
		"in the middle of the load": func(s *Screen) { s.Loaded(10, 1000) },
		"after the load":            func(s *Screen) { s.Loaded(10, 1000); s.Loaded(1000, 1000) },
		"after a load of nothing":   func(s *Screen) { s.Loaded(0, 0) },
		"without a load":            func(s *Screen) { s.Show(busy()) },
		"without a scene":           func(s *Screen) { s.Show(State{Elapsed: 1}) },
		"when nothing is planned":   func(s *Screen) { s.Show(State{Elapsed: 1, Scenes: []SceneState{{}}}) },
		"when all is deleted":       func(s *Screen) { s.Show(State{Scenes: []SceneState{{Acted: 5, Planned: 5}}}) },
	}, func(t *testing.T, _ string, paint func(s *Screen)) {
		lines := shown(t, paint)
		require.Empty(t, lines[len(lines)-1], "the cursor is below the panel: %q", lines)
	})
}

func TestScreenWritesAboveThePanel(t *testing.T) {
	t.Parallel()
	var errs []error
	lines := shown(t, func(s *Screen) {
		write := func(text string) {
			_, err := io.WriteString(s, text)
			errs = append(errs, err)
		}
		s.Show(busy())
		write("level=WARN msg=one\n")
		s.Show(busy())
		write("level=WARN msg=two\nlevel=WARN msg=three\n")
	})
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, []string{"level=WARN msg=one", "level=WARN msg=two", "level=WARN msg=three"}, lines[:3])
	require.Contains(t, lines[3], "parents deleted")
	require.Len(t, lines, 3+2*8+2, "one panel: %q", lines)
}

// A line that is wider than the terminal takes two rows, and the next picture begins one row too low.
func TestScreenFitsTheTerminal(t *testing.T) {
	t.Parallel()
	state := busy()
	for i := range state.Scenes {
		state.Scenes[i].Activity = strings.Repeat("waits for a 世界 ", 30)
	}
	state.Scenes[0].Tally.ByTable["delete_count_by_table"]["a_table_with_a_name_that_is_longer_than_most_of_the_others"] = 1 << 40
	for _, width := range []int{10, 20, 30, 43, 44, 60, 64, 65, 66, 67, 68, 69, 70, 71, 72, 80, 100, 300} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			t.Parallel()
			terminal, tty := pgtest.Must2(pty.Open())(t)
			defer func() { require.NoError(t, terminal.Close()) }()
			require.NoError(t, pty.Setsize(tty, &pty.Winsize{Rows: 40, Cols: uint16(width)}))
			read := make(chan string, 1)
			go func() {
				all, _ := io.ReadAll(terminal) // EIO at the end.
				read <- string(all)
			}()
			painted(t, tty, func(s *Screen) {
				s.Loaded(1000, 1000)
				// As often as everything that can become wide takes.
				for range longestSpark + 1 {
					s.Show(state)
				}
			})
			require.NoError(t, tty.Close())
			output := receive(t, read, "the end of the output")
			for line := range strings.Lines(output) {
				require.NotContains(t, control.ReplaceAllString(line, ""), "\x1b", "a sequence that is cut off")
				colours := colour.FindAllString(line, -1)
				require.True(t, len(colours) == 0 || colours[len(colours)-1] == plain, "a colour that goes on in the next line: %q", line)
			}
			lines := display(t, output)
			for _, line := range lines {
				require.LessOrEqual(t, runewidth.StringWidth(line), width, "%q", line)
			}
			if width >= 300 {
				require.Contains(t, strings.Join(lines, "\n"), "backlog   "+strings.Repeat("█", longestSpark))
			}
		})
	}
}

// After a change of the size nobody knows where the lines of the last picture are, so the next one begins at the top.
func TestScreenBeginsAnewWhenTheSizeChanges(t *testing.T) {
	t.Parallel()
	terminal, tty, err := pty.Open()
	require.NoError(t, err)
	require.NoError(t, pty.Setsize(tty, &pty.Winsize{Rows: 30, Cols: 100}))
	// Until something is painted, and then to the end.
	begun, read := make(chan struct{}), make(chan string, 1)
	go func() {
		var all bytes.Buffer
		for piece, told := make([]byte, 1<<16), false; ; {
			n, err := terminal.Read(piece)
			all.Write(piece[:n])
			if !told && strings.Contains(all.String(), "Ctrl-C") {
				told = true
				close(begun)
			}
			if err != nil {
				read <- all.String()
				return
			}
		}
	}()
	painted(t, tty, func(s *Screen) {
		s.Show(busy())
		receive(t, begun, "the first picture")
		require.NoError(t, pty.Setsize(tty, &pty.Winsize{Rows: 20, Cols: 40}))
	})
	require.NoError(t, tty.Close())
	output := receive(t, read, "the end of the output")
	require.NoError(t, terminal.Close())
	require.Equal(t, 1, strings.Count(output, erase))
	_, after, _ := strings.Cut(output, erase)
	// The way up ends at the first line.
	_, after, found := strings.Cut(after, "\x1b[J")
	require.True(t, found)
	want := panel{width: 40, height: 20, closing: "Ctrl-C stops and removes everything.", colour: true}.
		lines(busy(), []trace{{}, {}})
	require.Equal(t, control.ReplaceAllString(strings.Join(want, "\n")+"\n", ""),
		control.ReplaceAllString(strings.ReplaceAll(strings.Split(after, "\x1b[J")[0], "\r", ""), ""))
}

// paintings counts.
type paintings struct{ atomic.Int64 }

func (p *paintings) Write(text []byte) (int, error) {
	p.Add(1)
	return len(text), nil
}

// Show talks to the bar while the bar paints and asks for the state: neither may wait for the other.
func TestScreenIsShownWhileItPaints(t *testing.T) {
	t.Parallel()
	var seen paintings
	painted(t, &seen, func(s *Screen) {
		for seen.Load() < 5 {
			s.Show(busy())
		}
	})
}
