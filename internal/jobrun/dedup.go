package jobrun

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// LeftOut is the attribute key for the number of records that were left out since the
// last written record of the group.
const LeftOut = "left_out"

// Dedup is a slog.Handler that limits how often records of a group are written. Dedup
// writes the first record of a group immediately and then counts further records for a
// period. At the end of the period it writes the last counted record with the count, so
// that the log shows when the problem ended. A group uses memory only during its period.
type Dedup struct {
	next slog.Handler
	// windows holds the current period of each group. Handlers derived by WithAttrs and
	// WithGroup share it.
	windows *windows
}

var _ slog.Handler = (*Dedup)(nil)

// windows holds the current period of each group.
type windows struct {
	every time.Duration
	// group returns the group of a record. Records of group "" are always written.
	group func(slog.Record) string

	mu   sync.Mutex
	open map[string]*window
}

// window is the period that follows a written record of a group.
type window struct {
	end *time.Timer
	// leftOut is the number of records that were left out in this period. The last of
	// these records is written to handler with ctx.
	leftOut int
	ctx     context.Context //nolint:containedctx // the record's, for the handler
	handler slog.Handler
	last    slog.Record
}

// NewDedup returns a Dedup that writes at most one record per group and period to next.
func NewDedup(next slog.Handler, every time.Duration, group func(slog.Record) string) *Dedup {
	return &Dedup{next: next, windows: &windows{every: every, group: group, open: map[string]*window{}}}
}

// ByMessage returns the message of a warning or error as its group, so messages must be
// literal. It returns "" for lower levels, which are always written.
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

// leaveOut counts the record and returns true if the group's period has not ended.
// Otherwise it starts a period and returns false.
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

// endPeriod ends the period of a group. If records were left out, it writes the last of
// them and starts the next period.
func (w *windows) endPeriod(group string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	window := w.open[group]
	switch {
	case window == nil: // Flush has removed the window.
	case window.leftOut == 0:
		delete(w.open, group)
	default:
		window.write()
		window.end.Reset(w.every)
	}
}

// write writes the last record with the number of records that were left out before it.
func (w *window) write() {
	w.last.AddAttrs(slog.Int(LeftOut, w.leftOut-1))
	// A timer or Flush calls write, so no caller could handle the error.
	_ = w.handler.Handle(w.ctx, w.last)
	w.leftOut, w.ctx, w.handler, w.last = 0, nil, nil, slog.Record{}
}

// Flush writes the last left-out record of each group and ends all periods. The process
// calls it before it exits.
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
