package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"sexton/internal/words"
)

const (
	refresh = 200 * time.Millisecond
	// erase goes to the upper left corner and erases everything.
	erase = "\x1b[H\x1b[2J"
	// unlimited is the height of what is no terminal.
	unlimited = 1 << 10
)

// Screen is the view for terminals: a panel that is painted over and over.
type Screen struct {
	out      io.Writer
	progress *mpb.Progress
	bar      *mpb.Bar
	// closing says what ends the demo.
	closing string
	closed  sync.Once

	mu     sync.Mutex
	state  State
	traces []trace
	// width and height are those of the last painting.
	width, height int
}

// NewScreen returns a view that paints on a terminal, with a closing line. Close it, or the terminal is left in
// the middle of it.
func NewScreen(w io.Writer, closing string) *Screen {
	return &Screen{out: w, closing: closing, progress: mpb.New(mpb.WithOutput(w), mpb.WithRefreshRate(refresh), mpb.WithAutoRefresh())}
}

// Write puts text above the panel, such as log lines.
func (s *Screen) Write(text []byte) (int, error) { return s.progress.Write(text) }

// Interval is the pause between two readings.
func (*Screen) Interval() time.Duration { return 500 * time.Millisecond }

// Loaded moves the bar of the load.
func (s *Screen) Loaded(done, total int64) {
	if s.bar == nil {
		s.bar = s.progress.AddBar(total,
			mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name("  loading sample data ")),
			mpb.AppendDecorators(decor.Any(func(st decor.Statistics) string {
				return fmt.Sprintf(" %s of %s rows", words.Grouped(st.Current), words.Grouped(st.Total))
			})))
	}
	s.bar.SetTotal(total, false)
	s.bar.SetCurrent(done)
	if done >= total {
		s.bar.SetTotal(total, true)
	}
}

// Show puts a state on the panel.
func (s *Screen) Show(state State) {
	if s.take(state) {
		// A bar without a total does not end before it is told to; what is painted is the panel alone.
		s.bar = s.progress.MustAdd(0, mpb.BarFillerFunc(s.fillFirst), mpb.BarFillerTrim(), mpb.BarExtender(mpb.BarFillerFunc(s.fillRest), false))
	}
}

// take keeps a state for the next painting, and reports whether it is the first.
func (s *Screen) take(state State) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = s.traces == nil
	if first {
		s.traces = make([]trace, len(state.Scenes))
	}
	s.state = state
	for i, scene := range state.Scenes {
		s.traces[i].remember(scene)
	}
	return first
}

// Close paints the last state and leaves it there. It may be called again.
func (s *Screen) Close() {
	s.closed.Do(func() {
		if s.bar != nil && !s.bar.Completed() {
			s.bar.Abort(false)
		}
		s.progress.Wait()
	})
}

// fillFirst writes the first line, which is the bar's own.
func (s *Screen) fillFirst(w io.Writer, st decor.Statistics) error {
	// The terminal echoes Ctrl-C, which moves the place where the next painting begins.
	_, err := io.WriteString(w, "\r"+s.lines(st)[0])
	return err
}

// fillRest writes the lines below it.
func (s *Screen) fillRest(w io.Writer, st decor.Statistics) error {
	_, err := io.WriteString(w, strings.Join(s.lines(st)[1:], "\n")+"\n")
	return err
}

func (s *Screen) lines(st decor.Statistics) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, height := s.size(st)
	return panel{width: width, height: height, closing: s.closing}.lines(s.state, s.traces)
}

// size is that of the terminal. When it has changed, it is unknown in what rows the lines of the last painting are now,
// so everything is erased: this painting begins at the top, from where its way up to the last one's beginning leads
// nowhere.
func (s *Screen) size(st decor.Statistics) (width, height int) {
	width, height = st.AvailableWidth, unlimited
	if file, ok := s.out.(*os.File); ok {
		if w, h, err := term.GetSize(int(file.Fd())); err == nil && w > 0 && h > 0 {
			width, height = w, h
		}
	}
	if s.width > 0 && (s.width != width || s.height != height) {
		_, _ = io.WriteString(s.out, erase)
	}
	s.width, s.height = width, height
	return width, height
}
