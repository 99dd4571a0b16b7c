package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/latency"
	"sexton/internal/problem"
	"sexton/internal/sleep"
)

// The worker is to be asleep when the next parent goes; the pause is random, so that no rhythm of the
// worker's own is met again and again.
const (
	shortestGap = 20 * time.Millisecond
	longestGap  = 60 * time.Millisecond
)

// GitLab's worker comes every minute, and the deletes are spread evenly over it.
const (
	cronP50 = 30_000
	cronP99 = 59_400
)

// LatencyReport is the time from the parent's COMMIT being sent to its children and its tombstone being gone.
type LatencyReport struct {
	Benchmark   string  `json:"benchmark"`
	Server      Server  `json:"server"`
	Events      int     `json:"events"`
	Children    int     `json:"children"`
	LookEveryMS float64 `json:"look_every_ms"`

	LatencyMS latency.Percentiles `json:"latency_ms"`
	// CommitMS is the part of it that the COMMIT itself took.
	CommitMS latency.Percentiles `json:"commit_ms"`
	// DeleteMS is the time that the application waits, and locks are held: DELETE and COMMIT.
	DeleteMS latency.Percentiles `json:"delete_ms"`
	// WALBytes are all that the server wrote per event, idle time between events included.
	WALBytes int64 `json:"wal_bytes_per_event"`

	// NativeMS is the baseline: DELETE and COMMIT of such a parent whose children go by ON DELETE CASCADE.
	NativeMS       latency.Percentiles `json:"native_cascade_ms"`
	NativeWALBytes int64               `json:"native_cascade_wal_bytes_per_event"`
	RatioP50       float64             `json:"ratio_p50_to_native_cascade"`
	// RatioDelete compares what the application waits for.
	RatioDelete float64 `json:"ratio_delete_to_native_cascade"`
	RatioWAL    float64 `json:"ratio_wal_to_native_cascade"`

	// Cron are computed, not measured: what a worker that comes once a minute would need at least.
	CronP50MS float64 `json:"minute_cron_computed_p50_ms"`
	CronP99MS float64 `json:"minute_cron_computed_p99_ms"`
	// CronRatioP50 is how many times faster the wake-up is than that.
	CronRatioP50 float64 `json:"ratio_minute_cron_to_p50"`
}

// Latency deletes isolated parents under a working worker, each with so many children.
func Latency(ctx context.Context, s *Site, events, children int) (Report, error) {
	r := &LatencyReport{
		Benchmark: "latency", Server: s.Server, Events: events, Children: children, LookEveryMS: latency.Milliseconds(look),
		CronP50MS: cronP50, CronP99MS: cronP99,
	}
	deleter, closeDeleter, err := connect(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	defer closeDeleter()
	watcher, closeWatcher, err := connect(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	defer closeWatcher()
	for _, prefix := range []string{"", "native_"} {
		if err := s.exec(ctx, "fill tables", fmt.Sprintf(`
			INSERT INTO %[1]sparents SELECT id, repeat('x', 60) FROM generate_series(1, %[2]d) AS id;
			INSERT INTO %[1]schildren (parent_id, filler) SELECT id, repeat('x', 60) FROM generate_series(1, %[2]d) AS id, generate_series(1, %[3]d);
			ANALYZE %[1]sparents, %[1]schildren`, prefix, events, children)); err != nil {
			return nil, err
		}
	}

	s.Progress("%d parents by ON DELETE CASCADE", events)
	native := make([]time.Duration, events)
	if r.NativeWALBytes, err = s.walPer(ctx, events, func(i int) error {
		began := time.Now()
		_, _, err := remove(ctx, deleter, "native_parents", int64(i+1))
		native[i] = time.Since(began)
		return err
	}); err != nil {
		return nil, err
	}

	s.Progress("%d parents under a worker, one at a time", events)
	whole, commits, deletes := make([]time.Duration, events), make([]time.Duration, events), make([]time.Duration, events)
	err = s.withWorker(ctx, func(ctx context.Context) error {
		var err error
		r.WALBytes, err = s.walPer(ctx, events, func(i int) error {
			if err := sleep.For(ctx, shortestGap+rand.N(longestGap-shortestGap)); err != nil {
				return err
			}
			began := time.Now()
			sent, took, err := remove(ctx, deleter, "parents", int64(i+1))
			if err != nil {
				return err
			}
			deletes[i] = time.Since(began)
			if err := gone(ctx, watcher, int64(i+1)); err != nil {
				return err
			}
			whole[i], commits[i] = time.Since(sent), took
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	r.LatencyMS, r.CommitMS, r.NativeMS = latency.Of(whole), latency.Of(commits), latency.Of(native)
	r.DeleteMS = latency.Of(deletes)
	r.RatioDelete = ratio(r.DeleteMS.P50, r.NativeMS.P50)
	r.RatioP50, r.RatioWAL = ratio(r.LatencyMS.P50, r.NativeMS.P50), ratio(float64(r.WALBytes), float64(r.NativeWALBytes))
	r.CronRatioP50 = ratio(cronP50, r.LatencyMS.P50)
	return r, nil
}

// remove deletes one parent in a transaction. It returns when the COMMIT was sent and how long it took.
func remove(ctx context.Context, conn *pgx.Conn, table string, id int64) (sent time.Time, took time.Duration, err error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return sent, 0, fmt.Errorf("begin: %w", err)
	}
	if _, err := tx.Exec(ctx, "DELETE FROM "+pgx.Identifier{table}.Sanitize()+" WHERE id = $1", id); err != nil {
		return sent, 0, fmt.Errorf("delete parent: %w", err)
	}
	sent = time.Now()
	err = tx.Commit(ctx)
	return sent, time.Since(sent), problem.Doing(err, "commit")
}

// walPer calls do n times and returns how many bytes of WAL the server wrote per call.
func (s *Site) walPer(ctx context.Context, n int, do func(i int) error) (int64, error) {
	before, err := walPosition(ctx, s.Pool)
	if err != nil {
		return 0, err
	}
	for i := range n {
		if err := do(i); err != nil {
			return 0, err
		}
	}
	after, err := walPosition(ctx, s.Pool)
	return (after - before) / int64(n), err
}

// Text writes a table.
func (r *LatencyReport) Text(w io.Writer) {
	line := func(name string, p latency.Percentiles, wal int64) {
		_, _ = fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%d\n", name, p.P50, p.P90, p.P99, p.Max, wal)
	}
	_, _ = fmt.Fprintln(w, "milliseconds\tp50\tp90\tp99\tmax\tWAL bytes")
	line("COMMIT sent to children gone", r.LatencyMS, r.WALBytes)
	_, _ = fmt.Fprintf(w, "DELETE and COMMIT\t%.2f\t%.2f\t%.2f\t%.2f\t\n", r.DeleteMS.P50, r.DeleteMS.P90, r.DeleteMS.P99, r.DeleteMS.Max)
	line("native cascade, DELETE and COMMIT", r.NativeMS, r.NativeWALBytes)
	_, _ = fmt.Fprintf(w, "cron every minute (computed)\t%d\t\t%d\n", int(r.CronP50MS), int(r.CronP99MS))
	_, _ = fmt.Fprintf(w, "\np50: %.2f x native, of which COMMIT %.2f ms; the application waits %.3f x native; minute cron: %.0f x p50; WAL: %.2f x native\n",
		r.RatioP50, r.CommitMS.P50, r.RatioDelete, r.CronRatioP50, r.RatioWAL)
	_, _ = fmt.Fprintf(w, "%d isolated deletes of a parent with %d children, looked at every %.1f ms; %s\n", r.Events, r.Children, r.LookEveryMS, r.Server)
}
