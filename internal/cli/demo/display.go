package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	"sexton/internal/render"
)

// Display shows the progress of a demo. On a terminal, it repaints a panel. Otherwise it
// prints one line per scene.
type Display struct {
	out      io.Writer
	terminal *os.File

	mu sync.Mutex
	// panel is the text of the panel on the terminal, and painted is the number of its
	// lines.
	painted int
	panel   string
	width   int
	// tenths is the number of tenths of the sample data for which a line was printed.
	tenths int64
}

// NewDisplay returns a display that writes to out. If terminal is set, out must be a
// terminal.
func NewDisplay(out io.Writer, terminal bool) *Display {
	d := &Display{out: out}
	if terminal {
		d.terminal, _ = out.(*os.File)
	}
	return d
}

// Loaded prints a line for each tenth of the sample data that has been loaded.
func (d *Display) Loaded(done, total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if tenths := 10 * done / max(total, 1); tenths > d.tenths {
		d.tenths = tenths
		_, _ = fmt.Fprintf(d.out, "loading sample data: %s of %s rows\n", render.Grouped(done), render.Grouped(total))
	}
}

// Show prints the state of all scenes.
func (d *Display) Show(s State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.terminal != nil {
		d.paint(s)
		return
	}
	for _, one := range s.Scenes {
		_, _ = fmt.Fprintf(d.out, "%3.0f s | %s: %s\n", s.Elapsed.Seconds(), one.Title, one.text)
	}
}

// paint replaces the panel on the terminal.
func (d *Display) paint(s State) {
	width, height, err := term.GetSize(int(d.terminal.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	erase := d.erasure()
	// A terminal that became narrower has wrapped the lines of the panel. Their number is
	// unknown, so the complete screen is erased.
	if d.width > width {
		erase = "\x1b[H\x1b[2J"
	}
	d.width = width
	lines := panel(s, width, height)
	d.painted, d.panel = len(lines), strings.Join(lines, "\n")+"\n"
	_, _ = io.WriteString(d.out, erase+d.panel)
}

// erasure returns the escape sequence that erases the panel. It begins with a carriage
// return, because the terminal echoes Ctrl-C and the cursor may be in any column.
func (d *Display) erasure() string {
	if d.painted == 0 {
		return ""
	}
	return fmt.Sprintf("\r\x1b[%dA\x1b[J", d.painted)
}

// panel returns the lines of the panel, cut to the size of the terminal.
func panel(s State, width, height int) []string {
	var lines []string
	for _, one := range s.Scenes {
		lines = append(lines, fmt.Sprintf("  %-20s%s", one.Title, one.text))
	}
	lines = append(lines, "  Ctrl-C stops and removes everything.")
	lines = lines[max(0, len(lines)-height+1):]
	for i, line := range lines {
		// Lines are shorter than the terminal, because some terminals wrap a line that
		// fills the last column.
		if letters := []rune(line); len(letters) >= width {
			lines[i] = string(letters[:width-1])
		}
	}
	return lines
}

// Write writes text, such as log lines, above the panel.
func (d *Display) Write(text []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := fmt.Fprintf(d.out, "%s%s%s", d.erasure(), text, d.panel)
	return len(text), err
}
