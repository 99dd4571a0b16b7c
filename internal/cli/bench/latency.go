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

// shortestGap and longestGap limit the random pause before each deletion. The worker must
// be idle when a parent is deleted. A random pause does not coincide with an interval of
// the worker.
const (
	shortestGap = 20 * time.Millisecond
	longestGap  = 60 * time.Millisecond
)

// cronP50 and cronP99 are the times, in milliseconds, until a worker starts that runs
// once a minute like GitLab's, if deletions are spread evenly.
const (
	cronP50 = 30_000
	cronP99 = 59_400
)

// Latency deletes parents one at a time while a worker runs, and measures the time until
// their children and tombstones are deleted. children is the number of children of each
// parent.
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
		_, _, err := deleteParent(ctx, deleter, "native_parents", int64(i+1))
		native[i] = time.Since(began)
		return err
	})
	if err != nil {
		return nil, err
	}

	s.progressf("deleting %d parents one at a time while a worker is running", events)
	total, commits, deletes := make([]time.Duration, events), make([]time.Duration, events),
		make([]time.Duration, events)
	var wal int64
	err = s.withWorker(ctx, func(ctx context.Context) (err error) {
		wal, err = s.walPer(ctx, events, func(i int) error {
			if err := pace.Sleep(ctx, shortestGap+rand.N(longestGap-shortestGap)); err != nil {
				return err
			}
			began := time.Now()
			sent, took, err := deleteParent(ctx, deleter, "parents", int64(i+1))
			if err != nil {
				return err
			}
			deletes[i] = time.Since(began)
			if err := awaitDeletion(ctx, watcher, int64(i+1)); err != nil {
				return err
			}
			total[i], commits[i] = time.Since(sent), took
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	r := latencyReport(jobrun.PercentilesOf(total), jobrun.PercentilesOf(commits), jobrun.PercentilesOf(deletes),
		jobrun.PercentilesOf(native), wal, nativeWAL)
	r.Row = append(Row{
		{"benchmark", "", "", "latency"},
		{"server", "", "", s.Server},
		{"events", "", "", events},
		{"children", "", "", children},
		{"look_every_ms", "", "", jobrun.Milliseconds(pollInterval)},
	}, r.Row...)
	r.notef("%d parents deleted one at a time, with %d children each, polled every %.1f ms; %s", events, children,
		jobrun.Milliseconds(pollInterval), s.Server)
	return r, nil
}

// latencyReport returns the report of Latency. total is the time from the COMMIT of a
// parent's deletion until its children and its tombstone are deleted. commits is the
// duration of the COMMIT. deletes is the duration of DELETE and COMMIT, in which the
// application waits and holds locks. native is the duration of DELETE and COMMIT of a
// parent with ON DELETE CASCADE. wal includes the WAL of idle times.
func latencyReport(total, commits, deletes, native jobrun.Percentiles, wal, nativeWAL int64) *Report {
	toNative, waits, cron := ratio(total.P50, native.P50), ratio(deletes.P50, native.P50), ratio(cronP50, total.P50)
	walToNative := ratio(float64(wal), float64(nativeWAL))
	r := &Report{Row: Row{
		{"latency_ms", "", "", total},
		{"commit_ms", "", "", commits},
		{"delete_ms", "", "", deletes},
		{"wal_bytes_per_event", "", "", wal},
		{"native_cascade_ms", "", "", native},
		{"native_cascade_wal_bytes_per_event", "", "", nativeWAL},
		{"ratio_p50_to_native_cascade", "", "", toNative},
		{"ratio_delete_to_native_cascade", "", "", waits},
		{"ratio_wal_to_native_cascade", "", "", walToNative},
		// The times of a worker that runs once a minute are computed, and do not include
		// its work.
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
	r.show(line("COMMIT to children deleted", total, wal), line("DELETE and COMMIT", deletes, nil),
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

// deleteParent deletes one parent in a transaction. sent is the time at which COMMIT was
// sent, and took is the duration of the COMMIT.
func deleteParent(ctx context.Context, conn *pgx.Conn, table string,
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

// walPer calls do n times and returns the average number of WAL bytes per call.
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
