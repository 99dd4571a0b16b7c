package operator

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/dbsqlc"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/web"
)

const (
	// latencyFor is the time for which latencies are cached, because each is computed
	// from 500 runs per kind and database.
	latencyFor     = 10 * time.Second
	latencyTimeout = 5 * time.Second
)

// Latency is the time from a deletion to the end of its cleanup, over the last 500 runs
// of the last hour.
type Latency struct {
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
	Items int64   `json:"items"`
}

// P50Duration returns the 50th percentile.
func (l *Latency) P50Duration() time.Duration { return time.Duration(l.P50 * float64(time.Second)) }

// P99Duration returns the 99th percentile.
func (l *Latency) P99Duration() time.Duration { return time.Duration(l.P99 * float64(time.Second)) }

// Latencies caches the latencies of all jobs.
type Latencies struct {
	web.Cached[finished]
}

// finished holds the number of items of the last runs, by latency.
type finished struct {
	rows []dbsqlc.RunsLatencyRow
	err  error
}

// NewLatencies returns a cache that reads the runs at most once in ten seconds.
func NewLatencies(all *installation.Connections) *Latencies {
	return &Latencies{web.Cached[finished]{
		Timeout: latencyTimeout, Keep: latencyFor,
		Read: func(ctx context.Context) (read finished) {
			read.rows, read.err = all.Jobs().Queries().RunsLatency(ctx, all.Kinds(), all.Config.DatabaseNames())
			return read
		},
	}}
}

// Note sets the latency of each state.
func (l *Latencies) Note(ctx context.Context, states []JobState) error {
	read := l.Get(ctx)
	if read.err != nil {
		l.Forget()
		return fmt.Errorf("read latency of cleanups: %w", read.err)
	}
	for i := range states {
		finished := jobrun.Histogram{}
		for _, row := range read.rows {
			if row.Kind == states[i].Kind && row.Database == states[i].Database {
				finished[row.Bin] = row.Items
			}
		}
		if n := finished.Total(); n > 0 {
			states[i].Latency = &Latency{P50: finished.Quantile(0.5), P99: finished.Quantile(0.99), Items: n}
		}
	}
	return nil
}
