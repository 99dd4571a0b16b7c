package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/jobrun"
	"sexton/internal/pace"
	"sexton/internal/problem"
)

// The worker must be asleep when a parent is deleted. The pause is random, so that it
// does not match an interval of the worker.
const (
	shortestGap = 20 * time.Millisecond
	longestGap  = 60 * time.Millisecond
)

// GitLab's worker runs every minute, and the deletions are spread evenly over that
// minute.
const (
	cronP50 = 30_000
	cronP99 = 59_400
)

// Latency deletes single parents with a number of children while a worker runs.
func Latency(ctx context.Context, s *Site, events, children int) (*Report, error) {
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

	s.progressf("deleting %d parents with ON DELETE CASCADE", events)
	native := make([]time.Duration, events)
	nativeWAL, err := s.walPer(ctx, events, func(i int) error {
		began := time.Now()
		_, _, err := remove(ctx, deleter, "native_parents", int64(i+1))
		native[i] = time.Since(began)
		return err
	})
	if err != nil {
		return nil, err
	}

	s.progressf("deleting %d parents one at a time while a worker is running", events)
	whole, commits, deletes := make([]time.Duration, events), make([]time.Duration, events),
		make([]time.Duration, events)
	var wal int64
	err = s.withWorker(ctx, func(ctx context.Context) (err error) {
		wal, err = s.walPer(ctx, events, func(i int) error {
			if err := pace.Sleep(ctx, shortestGap+rand.N(longestGap-shortestGap)); err != nil {
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
	r := latencyReport(jobrun.PercentilesOf(whole), jobrun.PercentilesOf(commits), jobrun.PercentilesOf(deletes),
		jobrun.PercentilesOf(native), wal, nativeWAL)
	r.Row = append(Row{
		{"benchmark", "", "", "latency"},
		{"server", "", "", s.Server},
		{"events", "", "", events},
		{"children", "", "", children},
		{"look_every_ms", "", "", jobrun.Milliseconds(look)},
	}, r.Row...)
	r.notef("%d parents deleted one at a time, with %d children each, polled every %.1f ms; %s", events, children,
		jobrun.Milliseconds(look), s.Server)
	return r, nil
}

// latencyReport has the times from the COMMIT of a parent's deletion until its children
// and its tombstone are deleted. commits is the part of the COMMIT. deletes is the time
// in which the application waits and holds locks. native is DELETE and COMMIT of a parent
// with ON DELETE CASCADE. The WAL per event includes idle time.
func latencyReport(whole, commits, deletes, native jobrun.Percentiles, wal, nativeWAL int64) *Report {
	toNative, waits, cron := ratio(whole.P50, native.P50), ratio(deletes.P50, native.P50), ratio(cronP50, whole.P50)
	walToNative := ratio(float64(wal), float64(nativeWAL))
	r := &Report{Row: Row{
		{"latency_ms", "", "", whole},
		{"commit_ms", "", "", commits},
		{"delete_ms", "", "", deletes},
		{"wal_bytes_per_event", "", "", wal},
		{"native_cascade_ms", "", "", native},
		{"native_cascade_wal_bytes_per_event", "", "", nativeWAL},
		{"ratio_p50_to_native_cascade", "", "", toNative},
		{"ratio_delete_to_native_cascade", "", "", waits},
		{"ratio_wal_to_native_cascade", "", "", walToNative},
		// This is computed: the least time of a worker that runs once a minute.
		{"minute_cron_computed_p50_ms", "", "", cronP50},
		{"minute_cron_computed_p99_ms", "", "", cronP99},
		{"ratio_minute_cron_to_p50", "", "", cron},
	}}
	line := func(name string, p jobrun.Percentiles, wal any) Row {
		return Row{
			{"", "milliseconds", "%s", name},
			{"", "p50", "%.2f", p.P50},
			{"", "p90", "%.2f", p.P90},
			{"", "p99", "%.2f", p.P99},
			{"", "max", "%.2f", p.Max},
			{"", "WAL bytes", "%d", wal},
		}
	}
	r.show(line("COMMIT to children deleted", whole, wal), line("DELETE and COMMIT", deletes, nil),
		line("DELETE and COMMIT, native cascade", native, nativeWAL),
		Row{
			{"", "", "%s", "cron every minute (computed)"},
			{"", "", "%d", cronP50},
			{"", "", "%s", nil},
			{"", "", "%d", cronP99},
		})
	r.notef("p50: %.2f times native, including %.2f ms for COMMIT; DELETE and COMMIT: %.3f times native; cron: %.0f times p50; WAL: %.2f times native",
		toNative, commits.P50, waits, cron, walToNative)
	return r
}

// remove deletes one parent in a transaction. It returns when it sent the COMMIT and how
// long that took.
func remove(ctx context.Context, conn *pgx.Conn, table string,
	id int64,
) (sent time.Time, took time.Duration, err error) {
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

// walPer calls do n times and returns the bytes of WAL per call.
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
