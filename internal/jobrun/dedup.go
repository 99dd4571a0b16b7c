package jobrun

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// LeftOut is the key of the number of lines of a group that were left out since the last
// line.
const LeftOut = "left_out"

// Dedup is a slog.Handler that limits how often records of a group are written. It writes
// the first record of a group immediately. It counts further records within the period,
// and at its end writes the last of them with their number, so that the log shows when
// the problem ended. Each group uses memory for a period.
type Dedup struct {
	next slog.Handler
	// windows are shared with the handlers derived from this one.
	windows *windows
}

var _ slog.Handler = (*Dedup)(nil)

// windows has the current period of each group.
type windows struct {
	every time.Duration
	// group returns the group of a record; "" means that it is always written.
	group func(slog.Record) string

	mu   sync.Mutex
	open map[string]*window
}

// window is the period after a line.
type window struct {
	end *time.Timer
	// leftOut counts the records in the period. ctx, handler and last are for writing the
	// last of them.
	leftOut int
	ctx     context.Context //nolint:containedctx // the record's, for the handler
	handler slog.Handler
	last    slog.Record
}

// NewDedup returns a handler that writes to next one line per group and period.
func NewDedup(next slog.Handler, every time.Duration, group func(slog.Record) string) *Dedup {
	return &Dedup{next: next, windows: &windows{every: every, group: group, open: map[string]*window{}}}
}

// ByMessage groups warnings and errors by their messages, which must be literal. Lower
// levels are always written.
func ByMessage(record slog.Record) string {
	if record.Level < slog.LevelWarn {
		return ""
	}
	return record.Message
}

// Enabled implements slog.Handler.
func (h *Dedup) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *Dedup) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Dedup{next: h.next.WithAttrs(attrs), windows: h.windows}
}

// WithGroup implements slog.Handler.
func (h *Dedup) WithGroup(name string) slog.Handler {
	return &Dedup{next: h.next.WithGroup(name), windows: h.windows}
}

// Handle implements slog.Handler.
func (h *Dedup) Handle(ctx context.Context, record slog.Record) error {
	if group := h.windows.group(record); group != "" && h.windows.leaveOut(ctx, h.next, group, record) {
		return nil
	}
	return h.next.Handle(ctx, record)
}

// leaveOut counts a record and returns true if its group has a period. Otherwise it
// begins a period.
func (w *windows) leaveOut(ctx context.Context, next slog.Handler, group string, record slog.Record) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if open := w.open[group]; open != nil {
		open.leftOut++
		open.ctx, open.handler, open.last = context.WithoutCancel(ctx), next, record.Clone()
		return true
	}
	w.open[group] = &window{end: time.AfterFunc(w.every, func() { w.endPeriod(group) })}
	return false
}

// endPeriod writes the last record that a period left out, which begins another period.
func (w *windows) endPeriod(group string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	window := w.open[group]
	switch {
	case window == nil: // Flush has removed it.
	case window.leftOut == 0:
		delete(w.open, group)
	default:
		window.write()
		window.end.Reset(w.every)
	}
}

// write writes the last record with the number of records before it.
func (w *window) write() {
	w.last.AddAttrs(slog.Int(LeftOut, w.leftOut-1))
	// There is no caller that could handle the error.
	_ = w.handler.Handle(w.ctx, w.last)
	w.leftOut, w.ctx, w.handler, w.last = 0, nil, nil, slog.Record{}
}

// Flush writes the left-out records and ends all periods, for the end of the process.
func (h *Dedup) Flush() {
	w := h.windows
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, group := range slices.Sorted(maps.Keys(w.open)) {
		window := w.open[group]
		window.end.Stop()
		if window.leftOut > 0 {
			window.write()
		}
		delete(w.open, group)
	}
}
