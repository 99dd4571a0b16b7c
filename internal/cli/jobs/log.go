package jobs

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"sexton/internal/jobrun"
	riverjobs "sexton/river_jobs"
)

// riverFilter drops two messages of River: a schedule without a tick at this time, and a
// term as leader that was cancelled by a stop.
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

// riverEvery is how often one message of River is logged. Without its database, each
// queue logs several times a second.
const riverEvery = 30 * time.Second

// limitRiverLog logs each message of River once per half minute. Messages about one job
// are always logged, because no other message replaces them.
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
