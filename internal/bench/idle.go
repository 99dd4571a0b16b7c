package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"sexton/internal/problem"
	"sexton/internal/sleep"
)

// IdleReport is the cost of a worker without work.
type IdleReport struct {
	Benchmark string  `json:"benchmark"`
	Server    Server  `json:"server"`
	Seconds   float64 `json:"seconds"`
	// RSSBytes is that of the process, which holds the benchmark as well; RSSBefore that before the worker
	// was started. Null where the system does not tell.
	RSSBytes  *int64 `json:"rss_bytes"`
	RSSBefore *int64 `json:"rss_before_worker_bytes"`
	// Anonymous is the part of it that is no page of a file: the others are mostly the program itself, and copies of it share them.
	Anonymous *int64 `json:"rss_anonymous_bytes"`
	// Transactions are those of the database by pg_stat_database, on a server that is not the benchmark's own with autovacuum's.
	Transactions float64 `json:"transactions_per_minute"`
	// Connections are the worker's.
	Connections int `json:"connections"`
}

// settled is how long the worker is left alone before it counts as idle: River elects its leader, and the
// server's counters, which an idle session hands in after ten seconds, contain the warm-up.
const settled = 12 * time.Second

// Idle watches a worker that has worked and has nothing to do any more.
func Idle(ctx context.Context, s *Site, length time.Duration) (Report, error) {
	r := &IdleReport{Benchmark: "idle", Server: s.Server, Seconds: length.Seconds(), RSSBefore: rss()}
	err := s.withWorker(ctx, func(ctx context.Context) error {
		s.Progress("waiting %s for the worker to settle", settled)
		if err := sleep.For(ctx, min(settled, 2*length)); err != nil {
			return err
		}
		before, err := s.transactions(ctx)
		if err != nil {
			return err
		}
		s.Progress("watching the idle worker for %s", length)
		began := time.Now()
		if err := sleep.For(ctx, length); err != nil {
			return err
		}
		after, err := s.transactions(ctx)
		if err != nil {
			return err
		}
		r.RSSBytes, r.Anonymous = rss(), memory("/proc/self/status", "RssAnon:")
		r.Transactions = round(float64(after-before)/time.Since(began).Minutes(), 1)
		const sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name LIKE 'sexton%'"
		return problem.Doing(s.Admin.QueryRow(ctx, sessions, s.Pool.Config().ConnConfig.Database).Scan(&r.Connections), "count sessions")
	})
	return r, err
}

// StopAutovacuum ends it on a server of the benchmark's own: after the warm-up it has more transactions than an idle worker.
func (s *Site) StopAutovacuum(ctx context.Context) error {
	for _, sql := range []string{"ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()"} {
		if _, err := s.Admin.Exec(ctx, sql); err != nil {
			return fmt.Errorf("stop autovacuum: %w", err)
		}
	}
	return nil
}

// transactions asks from another database, so that asking is not counted.
func (s *Site) transactions(ctx context.Context) (int64, error) {
	var n int64
	const sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"
	err := s.Admin.QueryRow(ctx, sql, s.Pool.Config().ConnConfig.Database).Scan(&n)
	return n, problem.Doing(err, "count transactions")
}

// rss is the resident memory of this process in bytes, as Linux tells it.
func rss() *int64 { return memory("/proc/self/status", "VmRSS:") }

// Text writes a few lines.
func (r *IdleReport) Text(w io.Writer) {
	if r.RSSBytes != nil && r.RSSBefore != nil {
		_, _ = fmt.Fprintf(w, "resident memory\t%.1f MiB\t%.2f x that before the worker was started\n",
			float64(*r.RSSBytes)/(1<<20), ratio(float64(*r.RSSBytes), float64(*r.RSSBefore)))
	}
	if r.Anonymous != nil {
		_, _ = fmt.Fprintf(w, "of that anonymous\t%.1f MiB\tthe rest are pages of the program, which copies share\n", float64(*r.Anonymous)/(1<<20))
	}
	_, _ = fmt.Fprintf(w, "transactions per minute\t%.0f\tby pg_stat_database; on a given server autovacuum's included\n", r.Transactions)
	_, _ = fmt.Fprintf(w, "connections\t%d\n", r.Connections)
	_, _ = fmt.Fprintf(w, "\nwatched for %g s; %s\n", r.Seconds, r.Server)
}
