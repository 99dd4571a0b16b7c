package app

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"sexton/internal/config"
	"sexton/internal/dampen"
	riverjobs "sexton/river_jobs"
)

// newLogger writes coloured lines on a terminal and JSON elsewhere, unless the configuration says which.
func newLogger(w io.Writer, settings config.Log) *slog.Logger {
	level := slog.LevelInfo
	// The configuration was checked; its names are slog's.
	_ = level.UnmarshalText([]byte(settings.Level))
	terminal := isTerminal(w)
	if settings.Format == config.FormatText || settings.Format == config.FormatAuto && terminal {
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !terminal}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

func isTerminal(w io.Writer) bool {
	file, isFile := w.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// talk leaves out what River says of each look at a schedule that has no tick just then, and of a term as leader that a stop cut short.
type talk struct{ slog.Handler }

func (h talk) WithAttrs(attrs []slog.Attr) slog.Handler { return talk{h.Handler.WithAttrs(attrs)} }

func (h talk) Handle(ctx context.Context, record slog.Record) error {
	if record.Level == slog.LevelInfo && strings.HasSuffix(record.Message, riverjobs.Skipped) {
		return nil
	}
	if strings.HasSuffix(record.Message, "Error starting queue maintainer") {
		stopped := false
		record.Attrs(func(a slog.Attr) bool {
			stopped = stopped || a.Key == "err" && strings.Contains(a.Value.String(), context.Canceled.Error())
			return !stopped
		})
		if stopped {
			return nil
		}
	}
	return h.Handler.Handle(ctx, record) //nolint:wrapcheck // the handler's own
}

// riverEvery is how often River may say the same: without its database each queue complains several times a second.
const riverEvery = 30 * time.Second

// dampenRiver writes one line of River's per message and half-minute. What it says about one job is written every time: there is one
// line per job, and another would not do for it.
func dampenRiver(log *slog.Logger) *dampen.Handler {
	return dampen.New(talk{log.Handler()}, riverEvery, func(record slog.Record) bool {
		ofOneJob := false
		record.Attrs(func(attr slog.Attr) bool {
			ofOneJob = attr.Key == "job_id"
			return !ofOneJob
		})
		return ofOneJob
	})
}
