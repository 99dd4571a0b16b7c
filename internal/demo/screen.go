package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

const (
	refresh = 200 * time.Millisecond
	// history is how many readings a spark line shows.
	history = 40
	dim     = "\x1b[2m"
	cyan    = "\x1b[36m"
	plain   = "\x1b[0m"
)

// Screen is the view for terminals: a panel that is painted over and over.
type Screen struct {
	progress *mpb.Progress
	bar      *mpb.Bar
	// closing says what ends the demo.
	closing string
	closed  sync.Once

	mu      sync.Mutex
	state   State
	backlog []float64
	rates   []float64
}

// NewScreen returns a view that paints on a terminal, with a closing line. Close it, or the terminal is left in
// the middle of it.
func NewScreen(w io.Writer, closing string) *Screen {
	return &Screen{closing: closing, progress: mpb.New(mpb.WithOutput(w), mpb.WithRefreshRate(refresh), mpb.WithAutoRefresh())}
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
				return fmt.Sprintf(" %s of %s rows", grouped(st.Current), grouped(st.Total))
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
	// The bar is told without the lock: it may be painting, and that waits for fill, which needs the lock.
	if s.take(state) {
		// The panel hangs on the bar of the application, which has no total yet: with one it would end when it is full.
		s.bar = s.progress.MustAdd(0, mpb.BarStyle().Build(),
			// The terminal echoes Ctrl-C, which moves the place where the next painting begins.
			mpb.PrependDecorators(decor.Name("\r  parents deleted     ")),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return " " + s.progressText() })),
			mpb.BarExtender(mpb.BarFillerFunc(s.fill), false))
		s.bar.SetTotal(state.ParentsPlanned, false)
	}
	s.bar.SetCurrent(state.ParentsDeleted)
}

// take keeps a state for the next painting, and tells whether it is the first.
func (s *Screen) take(state State) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = len(s.rates) == 0
	s.state = state
	s.backlog = remember(s.backlog, float64(state.Backlog))
	s.rates = remember(s.rates, state.RowsPerSecond)
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

// progressText is the bar's own.
func (s *Screen) progressText() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.application()
}

func remember(values []float64, value float64) []float64 {
	values = append(values, value)
	return values[max(0, len(values)-history):]
}

// fill writes the panel, one line per topic, cut to the width of the terminal.
func (s *Screen) fill(w io.Writer, st decor.Statistics) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	const label = 14
	// Cut first and coloured then: half a colour sequence would spoil what follows.
	room := max(0, st.AvailableWidth-1)
	painted := func(name, colour, text string) {
		name = runewidth.Truncate("  "+runewidth.FillRight(name, label), room, "")
		text = runewidth.Truncate(text, room-runewidth.StringWidth(name), "…")
		_, _ = fmt.Fprintf(w, "%s%s%s%s%s%s\n", cyan, name, plain, colour, text, plain)
	}
	line := func(name, text string) { painted(name, "", text) }
	dimmed := func(text string) { painted("", dim, text) }
	_, _ = fmt.Fprintln(w)
	line("tombstones", s.state.tombstones())
	dimmed("backlog " + spark(s.backlog))
	line("children", s.state.children())
	dimmed("rows/s  " + spark(s.rates))
	line("", s.state.tables(4))
	line("latency", s.state.times()+" from commit to clean")
	line("worker", s.state.Activity)
	_, err := fmt.Fprintf(w, "\n%s%s%s\n", dim, runewidth.Truncate("  "+s.closing, room, "…"), plain)
	return err
}

// spark draws numbers as blocks of different heights; the largest is the highest.
func spark(values []float64) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		at := 0
		if most > 0 {
			at = int(v / most * float64(len(blocks)-1))
		}
		b.WriteRune(blocks[at])
	}
	return b.String()
}
