package jobs

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"sexton/internal/jobrun"
	riverjobs "sexton/river_jobs"
)

// riverFilter drops two log messages of River that need no action: that a schedule has no
// tick at this time, and that the start of a queue maintainer was canceled by a stop.
type riverFilter struct{ slog.Handler }

func (h riverFilter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return riverFilter{h.Handler.WithAttrs(attrs)}
}

func (h riverFilter) Handle(ctx context.Context, record slog.Record) error {
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

// riverEvery is the interval at which one message of River is logged. While its database
// is down, each queue logs several messages a second.
const riverEvery = 30 * time.Second

// limitRiverLog returns a handler that logs each message of River at most once per
// riverEvery. Messages about a job are not limited, because a later message does not
// replace them.
func limitRiverLog(log *slog.Logger) *jobrun.Dedup {
	return jobrun.NewDedup(riverFilter{log.Handler()}, riverEvery, func(record slog.Record) string {
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
