package jobrun

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// LeftOut is the key of the number of lines with the same message that were left out since the one before.
const LeftOut = "left_out"

// Dedup keeps a log readable while something fails many times a second. It writes the first of the warnings and errors with one message at
// once. Others that follow within the period are
// counted, and at its end the last of them is written with their number, so that the log also tells when it was over.
// Lower levels pass as they are. Messages must be literal, as each that is new takes memory for a period.
type Dedup struct {
	next slog.Handler
	// windows are shared with the handlers derived from this one.
	windows *windows
}

var _ slog.Handler = (*Dedup)(nil)

// windows are the periods that run, by message.
type windows struct {
	every time.Duration
	// always tells which records are written whatever came before; nil: none.
	always func(slog.Record) bool

	mu   sync.Mutex
	open map[string]*window
}

// window is the period that follows a line.
type window struct {
	end *time.Timer
	// leftOut counts records that came meanwhile; the others tell how to write the last.
	leftOut int
	ctx     context.Context //nolint:containedctx // the record's, for the handler
	handler slog.Handler
	last    slog.Record
}

// NewDedup returns a handler that writes to next one line per message and period. Records that always is true of pass.
func NewDedup(next slog.Handler, every time.Duration, always func(slog.Record) bool) *Dedup {
	return &Dedup{next: next, windows: &windows{every: every, always: always, open: map[string]*window{}}}
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
	if record.Level < slog.LevelWarn || h.windows.always != nil && h.windows.always(record) || !h.windows.leaveOut(ctx, h.next, record) {
		return h.next.Handle(ctx, record)
	}
	return nil
}

// leaveOut counts a record whose message has a period, and opens one otherwise.
func (w *windows) leaveOut(ctx context.Context, next slog.Handler, record slog.Record) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	message := record.Message
	if open := w.open[message]; open != nil {
		open.leftOut++
		open.ctx, open.handler, open.last = context.WithoutCancel(ctx), next, record.Clone()
		return true
	}
	w.open[message] = &window{end: time.AfterFunc(w.every, func() { w.ended(message) })}
	return false
}

// ended writes what a period left out, which begins another one.
func (w *windows) ended(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	window := w.open[message]
	switch {
	case window == nil: // Flush was faster.
	case window.leftOut == 0:
		delete(w.open, message)
	default:
		window.write()
		window.end.Reset(w.every)
	}
}

// write writes the last line with the number of those before it.
func (w *window) write() {
	w.last.AddAttrs(slog.Int(LeftOut, w.leftOut-1))
	// No caller waits for the answer, and there is nowhere else to report it.
	_ = w.handler.Handle(w.ctx, w.last)
	w.leftOut, w.ctx, w.handler, w.last = 0, nil, nil, slog.Record{}
}

// Flush writes what is left out so far and ends all periods, as at the end of the process.
func (h *Dedup) Flush() {
	w := h.windows
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, message := range slices.Sorted(maps.Keys(w.open)) {
		window := w.open[message]
		window.end.Stop()
		if window.leftOut > 0 {
			window.write()
		}
		delete(w.open, message)
	}
}
