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

	"github.com/jackc/pgx/v5/pgxpool"
)

// fastest is more commits per second than any client count reaches, for the number of rows to delete. Where
// it is not, a round ends early, and its rate is right all the same.
const fastest = 40_000

// triggerState is a state of the triggers under which parents are deleted.
type triggerState struct {
	name string
	// plain deletes from the table without triggers; the others write tombstones, or have so many native foreign keys.
	plain    bool
	children int
	// wake and each switch the triggers on that wake a worker and that notify each time.
	wake, each bool
	// held has a session hold the worker's awake lock, worker a worker run.
	held, worker bool
}

const tombstonesOnly = "tombstones_only"

func notifyStates() []triggerState {
	return []triggerState{
		{name: noTrigger, plain: true},
		{name: tombstonesOnly},
		{name: "notify_each_time", each: true},
		// It is woken without what the worker itself takes of the machine.
		{name: "sexton_awake_lock_only", wake: true, held: true},
		{name: "sexton_with_worker", wake: true, worker: true},
	}
}

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
	if r.Server, err = server(ctx, s.Pool); err != nil {
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

	for _, clients := range o.Clients {
		rates, heard := map[string][]float64{}, map[string]int64{}
		err := inTurn(o.Rounds, notifyStates(), func(round int, v triggerState) error {
			s.Progress("%d clients, round %d of %d, %s", clients, round, o.Rounds, v.name)
			rate, err := s.commits(ctx, v, clients, o.Round)
			if err != nil {
				return fmt.Errorf("measure %s with %d clients: %w", v.name, clients, err)
			}
			rates[v.name] = append(rates[v.name], rate)
			count, err := listener.take(ctx, s.Pool)
			heard[v.name] += count
			return err
		})
		if err != nil {
			return nil, err
		}
		base := median(rates[tombstonesOnly])
		for _, v := range notifyStates() {
			rate := median(rates[v.name])
			r.Commits = append(r.Commits, Commit{
				Variant: v.name, Clients: clients, PerSecond: round(rate, 0), Ratio: ratio(rate, base), Notifications: heard[v.name],
			})
		}
	}
	return r, nil
}

// commits fills the table and returns how many parents per second the clients delete.
func (s *Site) commits(ctx context.Context, v triggerState, clients int, length time.Duration) (rate float64, err error) {
	rows := max(1000, int64(length.Seconds()*fastest))
	release, err := s.arrange(ctx, v, rows)
	if err != nil {
		return 0, err
	}
	defer release()
	if err := s.switchTrigger(ctx, "notify_each", v.each); err != nil {
		return 0, err
	}
	measure := func(ctx context.Context) (err error) {
		rate, err = s.deleteEach(ctx, v.table(), rows, clients, length)
		return err
	}
	if v.worker {
		err = s.withWorker(ctx, measure)
	} else {
		err = measure(ctx)
	}
	return rate, err
}

func (v triggerState) table() string {
	switch {
	case v.plain:
		return "plain_parents"
	case v.children > 0:
		return fmt.Sprintf("native_parents_%d", v.children)
	}
	return "parents"
}

// arrange fills the table of a variant, empties the tombstones and switches the wake trigger. No worker may run. Release ends
// what holds the awake lock.
func (s *Site) arrange(ctx context.Context, v triggerState, rows int64) (release func(), err error) {
	if err := s.exec(ctx, "fill table", fmt.Sprintf(`
		SET LOCAL sexton.truncate = 'ignore';
		TRUNCATE %[1]s, `+tombstones+` CASCADE;
		INSERT INTO %[1]s SELECT id, repeat('x', 60) FROM generate_series(1, %[2]d) AS id;
		ANALYZE %[1]s`, v.table(), rows)); err != nil {
		return nil, err
	}
	if err := s.switchTrigger(ctx, "sexton_wake", v.wake); err != nil || !v.held {
		return func() {}, err
	}
	conn, closeConn, err := connect(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1, $2)", s.AwakeKey1, s.AwakeKey2); err != nil {
		closeConn()
		return nil, fmt.Errorf("take awake lock: %w", err)
	}
	return closeConn, nil
}

// switchTrigger chooses what happens where a tombstone is written.
func (s *Site) switchTrigger(ctx context.Context, trigger string, on bool) error {
	state := "DISABLE"
	if on {
		state = "ENABLE ALWAYS"
	}
	return s.exec(ctx, "switch trigger", "ALTER TABLE "+tombstones+" "+state+" TRIGGER "+trigger)
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
			conn, closeConn, err := connect(ctx, s.URL)
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
	counts <-chan int64
	close  func()
}

// endOfRound is told by the benchmark itself: notifications come in the order of their commits.
const endOfRound = "check end of round"

// take returns how many notifications were committed since it was called last.
func (l *listener) take(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	if _, err := pool.Exec(ctx, "SELECT pg_catalog.pg_notify('sexton_wake', $1)", endOfRound); err != nil {
		return 0, fmt.Errorf("end the round: %w", err)
	}
	select {
	case count, ok := <-l.counts:
		if !ok {
			return 0, errors.New("the connection that counts notifications was lost")
		}
		return count, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *Site) listen(ctx context.Context) (*listener, error) {
	conn, closeConn, err := connect(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN sexton_wake"); err != nil {
		closeConn()
		return nil, fmt.Errorf("listen: %w", err)
	}
	counts := make(chan int64, 1)
	listening, stop := context.WithCancel(ctx)
	var counting sync.WaitGroup
	counting.Go(func() {
		defer close(counts)
		var heard int64
		for {
			notification, err := conn.WaitForNotification(listening)
			switch {
			case err != nil:
				return
			case notification.Payload == endOfRound:
				counts <- heard
				heard = 0
			// A worker also asks itself whether it hears.
			case !strings.HasPrefix(notification.Payload, "check "):
				heard++
			}
		}
	})
	return &listener{counts: counts, close: func() {
		stop()
		counting.Wait()
		closeConn()
	}}, nil
}

// Text writes a table.
func (r *NotifyReport) Text(w io.Writer) {
	_, _ = fmt.Fprintln(w, "clients\tvariant\tcommits/s\tratio to tombstones only\tnotifications")
	for _, c := range r.Commits {
		_, _ = fmt.Fprintf(w, "%d\t%s\t%.0f\t%.2f\t%d\n", c.Clients, words(c.Variant), c.PerSecond, c.Ratio, c.Notifications)
	}
	_, _ = fmt.Fprintf(w, "\nmedian of %d interleaved rounds of %g s; one DELETE by primary key per transaction; "+
		"clients, server and worker share the machine; %s\n", r.Rounds, r.Seconds, r.Server)
}
