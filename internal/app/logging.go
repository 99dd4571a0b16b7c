package app

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"sexton/internal/config"
	"sexton/internal/dampen"
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

// riverEvery is how often River may say the same: without its database each queue complains several times a second.
const riverEvery = 30 * time.Second

// dampenRiver writes one line of River's per message and half-minute. What it says about one job is written every time: there is one
// line per job, and another would not do for it.
func dampenRiver(log *slog.Logger) *dampen.Handler {
	return dampen.New(log.Handler(), riverEvery, func(record slog.Record) bool {
		ofOneJob := false
		record.Attrs(func(attr slog.Attr) bool {
			ofOneJob = attr.Key == "job_id"
			return !ofOneJob
		})
		return ofOneJob
	})
}
