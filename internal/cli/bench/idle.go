package bench

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/pace"
	"sexton/internal/problem"
)

// idleAfter is the time after which the worker counts as idle. By then River has elected
// its leader. Idle sessions report their statistics after ten seconds, so the counters
// then include the warm-up.
const idleAfter = 12 * time.Second

// Idle measures the memory, transactions and connections of an idle worker. The worker
// has processed tombstones before.
func Idle(ctx context.Context, s *Site, length time.Duration) (*Report, error) {
	// On a server with autovacuum, the transactions of autovacuum are included. Most of
	// the memory that is not anonymous is the program file, which all replicas on a
	// machine share.
	var perMinute float64
	var connections int
	var resident, anonymous *int64
	before := rss()
	err := s.withWorker(ctx, func(ctx context.Context) error {
		s.progressf("waiting %s for the worker to become idle", idleAfter)
		if err := pace.Sleep(ctx, min(idleAfter, 2*length)); err != nil {
			return err
		}
		earlier, err := s.transactions(ctx)
		if err != nil {
			return err
		}
		s.progressf("measuring the idle worker for %s", length)
		began := time.Now()
		if err := pace.Sleep(ctx, length); err != nil {
			return err
		}
		after, err := s.transactions(ctx)
		if err != nil {
			return err
		}
		resident, anonymous = rss(), memory("/proc/self/status", "RssAnon:")
		perMinute = round(float64(after-earlier)/time.Since(began).Minutes(), 1)
		const sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name LIKE 'sexton%'"
		return problem.Doing(s.Admin.QueryRow(ctx, sessions, s.Pool.Config().ConnConfig.Database).Scan(&connections),
			"count sessions")
	})
	if err != nil {
		return nil, err
	}
	r := &Report{Row: Row{
		{"benchmark", "", "", "idle"},
		{"server", "", "", s.Server},
		{"seconds", "", "", length.Seconds()},
		{"rss_bytes", "", "", resident},
		{"rss_before_worker_bytes", "", "", before},
		{"rss_anonymous_bytes", "", "", anonymous},
		{"transactions_per_minute", "", "", perMinute},
		{"connections", "", "", connections},
	}}
	line := func(what, format string, value any, remark string) Row {
		return Row{{"", "", "%s", what}, {"", "", format, value}, {"", "", "%s", remark}}
	}
	var lines []Row
	if resident != nil && before != nil {
		grown := fmt.Sprintf("%.2f times the memory before the worker started", ratio(float64(*resident), float64(*before)))
		lines = append(lines, line("resident memory", "%.1f MiB", mebibytes(resident), grown))
	}
	if anonymous != nil {
		lines = append(lines, line("anonymous memory", "%.1f MiB", mebibytes(anonymous),
			"the remainder is program code, which replicas on one machine share"))
	}
	r.show(append(lines, line("transactions per minute", "%.0f", perMinute,
		"from pg_stat_database; with --database-url, autovacuum is included"),
		line("connections", "%d", connections, ""))...)
	r.notef("measured for %g s; %s", length.Seconds(), s.Server)
	return r, nil
}

// StopAutovacuum disables autovacuum on a private server. After the warm-up, autovacuum
// has more transactions than an idle worker.
func (s *Site) StopAutovacuum(ctx context.Context) error {
	for _, sql := range []string{"ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()"} {
		if _, err := s.Admin.Exec(ctx, sql); err != nil {
			return fmt.Errorf("stop autovacuum: %w", err)
		}
	}
	return nil
}

// transactions returns the number of transactions in the site's database. It runs its
// query in another database, so that the query is not counted.
func (s *Site) transactions(ctx context.Context) (int64, error) {
	var n int64
	const sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"
	err := s.Admin.QueryRow(ctx, sql, s.Pool.Config().ConnConfig.Database).Scan(&n)
	return n, problem.Doing(err, "count transactions")
}

// rss returns the resident memory of this process in bytes, or nil if /proc is not
// available.
func rss() *int64 { return memory("/proc/self/status", "VmRSS:") }
