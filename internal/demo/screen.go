package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
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
	colour  bool
	closed  sync.Once

	mu     sync.Mutex
	state  State
	traces []trace
	// width and height are those of the last painting.
	width, height int
}

// NewScreen returns a view that paints on a terminal, with a closing line. Close it, or the terminal is left in
// the middle of it.
func NewScreen(w io.Writer, closing string, colour bool) *Screen {
	return &Screen{out: w, closing: closing, colour: colour, progress: mpb.New(mpb.WithOutput(w), mpb.WithRefreshRate(refresh), mpb.WithAutoRefresh())}
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
	return panel{width: width, height: height, closing: s.closing, colour: s.colour}.lines(s.state, s.traces)
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

const (
	dim   = "\x1b[2m"
	cyan  = "\x1b[36m"
	plain = "\x1b[0m"

	// labelWidth is the width of the first column, titleWidth that of a scene's title.
	labelWidth = 12
	titleWidth = 22
	// textWidth is the room that texts get before spark lines get anything, progressWidth the same for bars. These have at least
	// fewestBars and at most longestSpark columns.
	textWidth     = 56
	progressWidth = 34
	fewestBars    = 8
	longestSpark  = 40
)

// panel is the picture of a state for a terminal of so many columns, and of so many rows: with many scenes each shows
// less. Texts are left out or cut rather than that a line becomes wider than the terminal.
type panel struct {
	width, height int
	closing       string
	colour        bool
}

// in gives a text a colour.
func (p panel) in(colour, text string) string {
	if !p.colour {
		return text
	}
	return colour + text + plain
}

// lines returns the picture. traces has what the spark lines of each scene show.
func (p panel) lines(state State, traces []trace) []string {
	// The last line stays free for the cursor, and one of what follows the scenes is empty.
	const others = 3
	var all []string
	for i, scene := range state.Scenes {
		lines := p.scene(scene, traces[i])
		if most := (p.height - others) / len(state.Scenes); most < len(lines) {
			lines = lines[:max(1, most)]
		}
		all = append(all, lines...)
	}
	closing := p.closing
	if state.Over {
		closing = nothingLeft
	}
	return append(all, p.in(dim, shorten("  "+closing, p.room())))
}

// nothingLeft says how to go on with a demo that has run out of rows.
const nothingLeft = "Nothing is left to do: Ctrl-C, and a new demo starts over."

// room is the width of a line: some terminals wrap one that fills the last column.
func (p panel) room() int { return max(0, p.width-1) }

// scene is the part of one scene, what matters most first. One that counts no rows has no lines on them.
func (p panel) scene(s SceneState, t trace) []string {
	times := []string{s.times()}
	if s.Latency.Max > 0 {
		times = append(times, s.Script.Until)
	}
	lines := []string{p.head(s), p.line("backlog", spark(t.backlog, p.sparkWidth()), s.waiting()...)}
	if s.Script.Until != "" {
		lines = append(lines, p.line("times", "", times...))
	}
	counted := len(s.Script.Rows) > 0
	if counted {
		lines = append(lines, p.line("speed", spark(t.speed, p.sparkWidth()), s.speed()), p.line("so far", "", s.rows()...))
	}
	lines = append(lines, p.line("worker", "", s.Activity))
	if counted {
		lines = append(lines, p.line("most in", "", s.Tally.tables(4)...))
	}
	return append(lines, "")
}

// head has the title, a bar where there is room for one, and as much of the progress as finds a place.
func (p panel) head(s SceneState) string {
	title := p.in(cyan, runewidth.Truncate(runewidth.FillRight("  "+s.Script.Title, titleWidth), p.room(), ""))
	room := p.room() - titleWidth
	if bars := min(longestSpark, room-progressWidth-2); bars >= fewestBars {
		title += bar(s.Acted, s.Planned, bars) + "  "
		room -= bars + 2
	}
	short := fmt.Sprintf("%s of %s", words.Grouped(s.Acted), words.Grouped(s.Planned))
	for _, text := range []string{s.progress(), short + " " + s.Script.Acted} {
		if runewidth.StringWidth(text) <= room {
			return title + text
		}
	}
	return title + p.fit(room, short)
}

// line has a label, a spark line and texts, leaving out texts that find no room.
func (p panel) line(label, sparks string, texts ...string) string {
	label = runewidth.Truncate("  "+runewidth.FillRight(label, labelWidth-2), p.room(), "")
	left := p.room() - runewidth.StringWidth(label) - runewidth.StringWidth(sparks)
	return p.in(cyan, label) + p.in(dim, sparks) + p.fit(left, texts...)
}

// fit joins the texts that have room; of the first there is always a part.
func (panel) fit(room int, texts ...string) string {
	if room <= 0 {
		return ""
	}
	var joined string
	for i, text := range texts {
		if i > 0 {
			text = joined + ", " + text
		}
		if i == 0 || runewidth.StringWidth(text) <= room {
			joined = text
		}
	}
	return shorten(joined, room)
}

// shorten cuts a text that is wider, behind a word.
func shorten(text string, room int) string {
	if runewidth.StringWidth(text) <= room {
		return text
	}
	cut := runewidth.Truncate(text, max(0, room-1), "")
	if last := strings.LastIndexByte(cut, ' '); last > 0 && !strings.HasPrefix(text[len(cut):], " ") {
		cut = cut[:last]
	}
	return runewidth.Truncate(strings.TrimRight(cut, " ,;:")+"…", room, "")
}

// sparkWidth is 0 on terminals that have no room for any.
func (p panel) sparkWidth() int {
	width := min(longestSpark, p.room()-labelWidth-textWidth)
	if width < fewestBars {
		return 0
	}
	return width
}

// bar shows how much of a total is done.
func bar(done, total int64, width int) string {
	room := int64(width - 2)
	full := room
	if total > 0 {
		full = min(room, done*room/total)
	}
	filled := strings.Repeat("=", int(full))
	if full > 0 && full < room {
		filled = filled[1:] + ">"
	}
	return "[" + filled + strings.Repeat("-", int(room-full)) + "]"
}

// trace has the latest readings of a scene.
type trace struct{ backlog, speed []float64 }

func (t *trace) remember(s SceneState) {
	t.backlog = remember(t.backlog, float64(s.Backlog))
	t.speed = remember(t.speed, s.RowsPerSecond)
}

func remember(values []float64, value float64) []float64 {
	values = append(values, value)
	return values[max(0, len(values)-longestSpark):]
}

// spark draws the latest numbers as blocks of different heights; the largest is the highest. It is as wide as it is
// told, with two more columns behind it, or empty.
func spark(values []float64, width int) string {
	if width <= 0 {
		return ""
	}
	values = values[max(0, len(values)-width):]
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
	return b.String() + strings.Repeat(" ", width-len(values)+2)
}

// Lines is the view for pipes and files: one line a second for each scene.
type Lines struct {
	w io.Writer
	// told reports that it has said how to go on.
	told bool
	// tenths is how much of the load has been told.
	tenths int64
}

// NewLines returns a view that writes to w.
func NewLines(w io.Writer) *Lines { return &Lines{w: w} }

// Interval is the pause between two of them.
func (*Lines) Interval() time.Duration { return time.Second }

// Loaded writes a line for every tenth of the rows.
func (l *Lines) Loaded(done, total int64) {
	if tenths := 10 * done / max(total, 1); tenths > l.tenths {
		l.tenths = tenths
		_, _ = fmt.Fprintf(l.w, "loading sample data: %s of %s rows\n", words.Grouped(done), words.Grouped(total))
	}
}

// Show writes one line per scene.
func (l *Lines) Show(s State) {
	for _, scene := range s.Scenes {
		parts := []string{
			scene.Script.Title + ": " + scene.progress(),
			strings.Join(scene.waiting(), ", "),
		}
		if len(scene.Script.Rows) > 0 {
			parts = append(parts, strings.Join(append(scene.rows(), scene.speed()), ", "))
		}
		if scene.Script.Until != "" {
			parts = append(parts, scene.Script.Until+": "+scene.times())
		}
		parts = append(parts, scene.Activity)
		_, _ = fmt.Fprintf(l.w, "%3.0f s | %s\n", s.Elapsed.Seconds(), strings.Join(parts, " | "))
	}
	if s.Over && !l.told {
		l.told = true
		_, _ = fmt.Fprintln(l.w, nothingLeft)
	}
}

// Close does nothing: all lines are written.
func (*Lines) Close() {}

// progress tells what the application has done.
func (s SceneState) progress() string {
	text := fmt.Sprintf("%s of %s %s", words.Grouped(s.Acted), words.Grouped(s.Planned), s.Script.Acted)
	if s.Done {
		text += ", no more to come"
	}
	return text
}

// waiting tells what waits and what does not any more.
func (s SceneState) waiting() []string {
	parts := []string{fmt.Sprintf("%s %s wait", words.Grouped(s.Backlog), s.Script.Unit)}
	if s.Backlog == 1 {
		parts[0] = fmt.Sprintf("1 %s waits", strings.TrimSuffix(s.Script.Unit, "s"))
	}
	if s.Backlog > 0 {
		parts = append(parts, fmt.Sprintf("oldest %.1f s", s.Oldest.Seconds()))
	}
	return append(parts, words.Grouped(s.Tally.Numbers[s.Script.Processed])+" "+s.Script.Finished)
}

// rows tells what was done to how many rows.
func (s SceneState) rows() []string {
	var parts []string
	for i, rows := range s.Script.Rows {
		text := words.Grouped(sum(s.Tally.ByTable[rows.Name])) + " "
		if i == 0 {
			text += "rows "
		}
		parts = append(parts, text+rows.Done)
	}
	return parts
}

func (s SceneState) speed() string { return words.Grouped(int64(s.RowsPerSecond)) + " rows/s" }

func (s SceneState) times() string {
	if s.Latency.Max == 0 {
		return "-"
	}
	return fmt.Sprintf("p50 %.0f ms, p99 %.0f ms", s.Latency.P50, s.Latency.P99)
}
