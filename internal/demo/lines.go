package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"sexton/internal/words"
)

// Lines is the view for pipes and files: one line a second for each scene.
type Lines struct {
	w io.Writer
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
			strings.Join(append(scene.rows(), scene.speed()), ", "),
			scene.Script.Until + ": " + scene.times(), scene.Activity,
		}
		_, _ = fmt.Fprintf(l.w, "%3.0f s | %s\n", s.Elapsed.Seconds(), strings.Join(parts, " | "))
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
