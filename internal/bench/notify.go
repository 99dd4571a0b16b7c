package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// fastest is more commits per second than any client count reaches, for the number of rows to delete. Where
// it is not, a round ends early, and its rate is right all the same.
const fastest = 40_000

// The ways to delete a parent that are compared.
const (
	noTrigger  = "no_trigger"
	tombstone  = "tombstones_only"
	notifyEach = "notify_each_time"
	// held is woken without what the worker itself takes of the machine: somebody holds its awake lock.
	held  = "sexton_awake_lock_only"
	woken = "sexton_with_worker"
)

// NotifyOptions says how much to measure.
type NotifyOptions struct {
	// Round is the length of one measurement, Rounds how many there are of each, interleaved.
	Round  time.Duration
	Rounds int
	// Clients are the numbers of clients that delete at once.
	Clients []int
}

// NotifyReport compares what clients get done that each delete one parent per transaction.
type NotifyReport struct {
	Benchmark string   `json:"benchmark"`
	Server    Server   `json:"server"`
	Seconds   float64  `json:"seconds_per_round"`
	Rounds    int      `json:"rounds"`
	Commits   []Commit `json:"commits"`
}

// Commit is one cell of the comparison.
type Commit struct {
	Variant string `json:"variant"`
	Clients int    `json:"clients"`
	// PerSecond is the median of the rounds, Ratio its ratio to that of tombstones_only.
	PerSecond float64 `json:"commits_per_second"`
	Ratio     float64 `json:"ratio_to_tombstones_only"`
	// Notifications are those of all rounds that a listener of the same channel got.
	Notifications int64 `json:"notifications"`
}

// Notify measures the cost of waking the worker. A listener is connected all the time, as each notification
// also costs for those whom it reaches.
func Notify(ctx context.Context, s *Site, o NotifyOptions) (Report, error) {
	r := &NotifyReport{Benchmark: "notify", Seconds: o.Round.Seconds(), Rounds: o.Rounds}
	var err error
	if r.Server, err = s.server(ctx); err != nil {
		return nil, err
	}
	if err := s.exec(ctx, "create the trigger that notifies each time", `
		CREATE FUNCTION notify_each() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NOTIFY sexton_wake, 'each'; RETURN NULL; END $$;
		CREATE TRIGGER notify_each AFTER INSERT ON `+tombstones+` FOR EACH STATEMENT EXECUTE FUNCTION notify_each()`); err != nil {
		return nil, err
	}
	listener, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer listener.close()

	variants := []string{noTrigger, tombstone, notifyEach, held, woken}
	for _, clients := range o.Clients {
		rates, heard := map[string][]float64{}, map[string]int64{}
		for round := range o.Rounds {
			for _, variant := range variants {
				s.Progress("%d clients, round %d of %d, %s", clients, round+1, o.Rounds, variant)
				before := listener.heard.Load()
				rate, err := s.commits(ctx, variant, clients, o.Round)
				if err != nil {
					return nil, fmt.Errorf("measure %s with %d clients: %w", variant, clients, err)
				}
				rates[variant] = append(rates[variant], rate)
				heard[variant] += listener.heard.Load() - before
			}
		}
		base := median(rates[tombstone])
		for _, variant := range variants {
			rate := median(rates[variant])
			r.Commits = append(r.Commits, Commit{
				Variant: variant, Clients: clients, PerSecond: round(rate, 0), Ratio: ratio(rate, base), Notifications: heard[variant],
			})
		}
	}
	return r, nil
}

// commits fills the table and returns how many parents per second the clients delete.
func (s *Site) commits(ctx context.Context, variant string, clients int, length time.Duration) (float64, error) {
	rows := max(1000, int64(length.Seconds()*fastest))
	table := "parents"
	if variant == noTrigger {
		table = "plain_parents"
	}
	if err := s.refill(ctx, table, rows); err != nil {
		return 0, err
	}
	if err := s.switchTriggers(ctx, variant == held || variant == woken, variant == notifyEach); err != nil {
		return 0, err
	}
	var rate float64
	measure := func(ctx context.Context) (err error) {
		rate, err = s.deleteEach(ctx, table, rows, clients, length)
		return err
	}
	if variant == held {
		release, err := s.holdAwake(ctx)
		if err != nil {
			return 0, err
		}
		defer release()
	}
	if variant != woken {
		return rate, measure(ctx)
	}
	watcher, closeWatcher, err := s.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer closeWatcher()
	err = s.withWorker(ctx, func(ctx context.Context) error {
		if err := s.warmUp(ctx, watcher); err != nil {
			return err
		}
		return measure(ctx)
	})
	return rate, err
}

// holdAwake takes the lock that a worker holds while it is awake, on a connection of its own that release closes.
func (s *Site) holdAwake(ctx context.Context) (release func(), err error) {
	conn, closeConn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1, $2)", s.AwakeKey1, s.AwakeKey2); err != nil {
		closeConn()
		return nil, fmt.Errorf("take awake lock: %w", err)
	}
	return closeConn, nil
}

// refill empties the table and the tombstones. No worker may run.
func (s *Site) refill(ctx context.Context, table string, rows int64) error {
	return s.exec(ctx, "fill table", fmt.Sprintf(`
		SET LOCAL sexton.truncate = 'ignore';
		TRUNCATE %[1]s, `+tombstones+`;
		INSERT INTO %[1]s SELECT id, repeat('x', 60) FROM generate_series(1, %[2]d) AS id;
		ANALYZE %[1]s`, table, rows))
}

// switchTriggers chooses what happens where a tombstone is written.
func (s *Site) switchTriggers(ctx context.Context, wake, each bool) error {
	state := func(on bool) string {
		if on {
			return "ENABLE ALWAYS"
		}
		return "DISABLE"
	}
	return s.exec(ctx, "switch triggers", fmt.Sprintf("ALTER TABLE %s %s TRIGGER sexton_wake, %s TRIGGER notify_each", tombstones, state(wake), state(each)))
}

// deleteEach has clients delete one row per transaction until the time or the table is over.
func (s *Site) deleteEach(ctx context.Context, table string, rows int64, clients int, length time.Duration) (float64, error) {
	var next, committed atomic.Int64
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	failures := make([]error, clients)
	ready.Add(clients)
	var deadline time.Time
	for i := range clients {
		done.Go(func() {
			conn, closeConn, err := s.connect(ctx)
			if err == nil {
				defer closeConn()
				_, err = conn.Prepare(ctx, "delete", "DELETE FROM "+table+" WHERE id = $1")
			}
			ready.Done()
			<-start
			for err == nil && time.Now().Before(deadline) {
				id := next.Add(1)
				if id > rows {
					break
				}
				if _, err = conn.Exec(ctx, "delete", id); err == nil {
					committed.Add(1)
				}
			}
			failures[i] = err
		})
	}
	ready.Wait()
	began := time.Now()
	deadline = began.Add(length)
	close(start)
	done.Wait()
	return float64(committed.Load()) / time.Since(began).Seconds(), errors.Join(failures...)
}

// listener counts notifications.
type listener struct {
	heard atomic.Int64
	close func()
}

func (s *Site) listen(ctx context.Context) (*listener, error) {
	conn, closeConn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN sexton_wake"); err != nil {
		closeConn()
		return nil, fmt.Errorf("listen: %w", err)
	}
	l := &listener{}
	listening, stop := context.WithCancel(ctx)
	var counting sync.WaitGroup
	counting.Go(func() {
		for {
			notification, err := conn.WaitForNotification(listening)
			if err != nil {
				return
			}
			// A worker also asks itself whether it hears.
			if !strings.HasPrefix(notification.Payload, "check ") {
				l.heard.Add(1)
			}
		}
	})
	l.close = func() {
		stop()
		counting.Wait()
		closeConn()
	}
	return l, nil
}

// Text writes a table.
func (r *NotifyReport) Text(w io.Writer) {
	_, _ = fmt.Fprintln(w, "clients\tvariant\tcommits/s\tratio to tombstones only\tnotifications")
	for _, c := range r.Commits {
		_, _ = fmt.Fprintf(w, "%d\t%s\t%.0f\t%.2f\t%d\n", c.Clients, strings.ReplaceAll(c.Variant, "_", " "), c.PerSecond, c.Ratio, c.Notifications)
	}
	_, _ = fmt.Fprintf(w, "\nmedian of %d interleaved rounds of %g s; one DELETE by primary key per transaction; "+
		"clients, server and worker share the machine; %s\n", r.Rounds, r.Seconds, r.Server)
}
