package jobs

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"sexton/internal/jobrun"
	riverjobs "sexton/river_jobs"
)

// talk leaves out what River says of each look at a schedule that has no tick just then,
// and of a term as leader that a stop cut short.
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

// riverEvery is how often River may say the same: without its database each queue
// complains several times a second.
const riverEvery = 30 * time.Second

// dampenRiver writes one line of River's per message and half-minute. What it says about
// one job is written every time: there is one line per job, and another would not do for
// it.
func dampenRiver(log *slog.Logger) *jobrun.Dedup {
	return jobrun.NewDedup(talk{log.Handler()}, riverEvery, func(record slog.Record) string {
		group := jobrun.ByMessage(record)
		record.Attrs(func(attr slog.Attr) bool {
			if attr.Key == "job_id" {
				group = ""
			}
			return true
		})
		return group
	})
}
