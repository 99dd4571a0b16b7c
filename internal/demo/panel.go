package demo

import (
	"fmt"
	"strings"

	"github.com/mattn/go-runewidth"

	"sexton/internal/words"
)

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
	return append(all, dim+runewidth.Truncate("  "+p.closing, p.room(), "…")+plain)
}

// room is the width of a line: some terminals wrap one that fills the last column.
func (p panel) room() int { return max(0, p.width-1) }

// scene is the part of one scene, what matters most first. One that counts no rows has no lines on them.
func (p panel) scene(s SceneState, t trace) []string {
	times := []string{s.times()}
	if s.Latency.Max > 0 {
		times = append(times, s.Script.Until)
	}
	lines := []string{p.head(s), p.line("backlog", spark(t.backlog, p.sparkWidth()), s.waiting()...)}
	counted := len(s.Script.Rows) > 0
	if counted {
		lines = append(lines, p.line("speed", spark(t.speed, p.sparkWidth()), s.speed()), p.line("so far", "", s.rows()...))
	}
	lines = append(lines, p.line("times", "", times...), p.line("worker", "", s.Activity))
	if counted {
		lines = append(lines, p.line("most in", "", s.Tally.tables(4)...))
	}
	return append(lines, "")
}

// head has the title, a bar where there is room for one, and as much of the progress as finds a place.
func (p panel) head(s SceneState) string {
	title := cyan + runewidth.Truncate(runewidth.FillRight("  "+s.Script.Title, titleWidth), p.room(), "") + plain
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
	return cyan + label + plain + dim + sparks + plain + p.fit(left, texts...)
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
	return runewidth.Truncate(joined, room, "…")
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
