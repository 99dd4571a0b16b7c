package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/pace"
)

// fastest is the assumed maximum of deletions per second by all clients together. It
// determines the number of rows to insert. If the clients are faster, a measurement runs
// out of rows and ends early. The measured rate is still correct.
const fastest = 40_000

// triggerState is a variant of Notify: the state of the triggers and the worker during a
// measurement.
type triggerState struct {
	name string
	// plain selects a table without triggers. Otherwise each deletion writes a tombstone.
	plain bool
	// wake enables Sexton's trigger that wakes a worker. each enables a trigger that
	// sends a notification for each deletion.
	wake, each bool
	// held makes a session hold the worker's awake lock, so that the trigger sends no
	// notification. worker lets a worker run.
	held, worker bool
}

const (
	noTrigger      = "no_trigger"
	tombstonesOnly = "tombstones_only"
)

func notifyStates() []triggerState {
	return []triggerState{
		{name: noTrigger, plain: true},
		{name: tombstonesOnly},
		{name: "notify_each_time", each: true},
		// This variant measures the wake trigger without the load of a worker.
		{name: "sexton_awake_lock_only", wake: true, held: true},
		{name: "sexton_with_worker", wake: true, worker: true},
	}
}

// NotifyOptions holds the options of Notify.
type NotifyOptions struct {
	// Turn is the duration of one measurement. Each round measures all variants once, in
	// random order, so that they run under the same conditions.
	Turn   time.Duration
	Rounds int
	// Clients holds the numbers of clients that delete in parallel.
	Clients []int
}

// lead returns the duration of the warm-up before a measurement. In this time, the worker
// reaches its steady state.
func (o NotifyOptions) lead() time.Duration { return o.Turn / 2 }

// turn holds the results of one measurement: commits per second, and the number of
// notifications.
type turn struct {
	rate          float64
	notifications int64
}

// Notify measures the effect of triggers and notifications on the commit rate of clients.
// A listener and the worker stay connected in all variants, because each connected
// listener makes a notification more expensive. In variants without a worker, the worker
// is paused.
func Notify(ctx context.Context, s *Site, o NotifyOptions) (*Report, error) {
	if err := s.exec(ctx, "create the trigger that notifies on each deletion", `
		CREATE FUNCTION notify_each() RETURNS trigger LANGUAGE plpgsql
			AS $$ BEGIN NOTIFY sexton_wake, 'each'; RETURN NULL; END $$;
		CREATE TRIGGER notify_each AFTER INSERT ON `+tombstones+` FOR EACH STATEMENT EXECUTE FUNCTION notify_each();
		ALTER TABLE `+tombstones+` DISABLE TRIGGER notify_each`); err != nil {
		return nil, err
	}
	listener, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer listener.close()
	var figures []Row
	err = s.withWorker(ctx, func(ctx context.Context) error {
		if err := s.pause(ctx); err != nil {
			return err
		}
		for _, clients := range o.Clients {
			found, err := s.compareStates(ctx, o, clients, listener)
			if err != nil {
				return fmt.Errorf("with %d clients: %w", clients, err)
			}
			figures = append(figures, found...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := &Report{Row: Row{
		{"benchmark", "", "", "notify"},
		{"server", "", "", s.Server},
		{"seconds_per_turn", "", "", o.Turn.Seconds()},
		{"rounds", "", "", o.Rounds},
		{"commits", "", "", figures},
	}}
	r.show(figures...)
	r.notef("medians of %d rounds; each round measures every variant for %g s, and ratios compare variants of one round; "+
		"one DELETE by primary key per transaction; clients, server and worker run on one machine; %s", o.Rounds,
		o.Turn.Seconds(), s.Server)
	return r, nil
}

// compareStates measures all variants with the given number of clients.
func (s *Site) compareStates(ctx context.Context, o NotifyOptions, clients int,
	listener *listener,
) (figures []Row, err error) {
	turns := map[string][]turn{}
	states := notifyStates()
	for round := range o.Rounds {
		for _, i := range rand.Perm(len(states)) {
			v := states[i]
			s.progressf("%d clients, round %d of %d, %s", clients, round+1, o.Rounds, v.name)
			found, err := s.commits(ctx, v, clients, o, listener)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", v.name, err)
			}
			turns[v.name] = append(turns[v.name], found)
		}
	}
	for _, v := range states {
		row := append(Row{{"clients", "clients", "%d", clients}}, variantFigure("variant", v.name)...)
		figures = append(figures, append(row, commitFigures(turns[v.name], turns[tombstonesOnly])...))
	}
	return figures, nil
}

// commitFigures returns the figures of a variant. The rate is the median of its turns.
// The ratios compare each turn with the turn of the variant base in the same round. The
// number of notifications is the total of all turns.
func commitFigures(turns, base []turn) Row {
	var rates, ratios []float64
	var notifications int64
	for i, t := range turns {
		notifications += t.notifications
		rates, ratios = append(rates, t.rate), append(ratios, ratio(t.rate, base[i].rate))
	}
	low, high := quantile(ratios, 0.25), quantile(ratios, 0.75)
	return Row{
		{"commits_per_second", "commits/s", "%.0f", round(median(rates), 0)},
		{"ratio_to_tombstones_only", "ratio to tombstones only", "%.2f", median(ratios)},
		{"ratio_quartiles", "", "", [2]float64{low, high}},
		{"", "quartiles", "%s", fmt.Sprintf("%.2f to %.2f", low, high)},
		{"notifications", "notifications", "%d", notifications},
	}
}

// commits measures the commit rate of one variant.
func (s *Site) commits(ctx context.Context, v triggerState, clients int, o NotifyOptions,
	listener *listener,
) (found turn, err error) {
	rows := max(1000, int64((o.lead()+o.Turn).Seconds()*fastest))
	release, err := s.prepareVariant(ctx, v, rows)
	if err != nil {
		return turn{}, err
	}
	defer release()
	if err := s.switchTrigger(ctx, "notify_each", v.each); err != nil {
		return turn{}, err
	}
	if v.worker {
		if err := s.resume(ctx); err != nil {
			return turn{}, err
		}
		defer func() { err = errors.Join(err, s.pause(ctx)) }()
	}
	// Discard the notifications of earlier measurements.
	if _, err := listener.takeCount(ctx, s.Pool); err != nil {
		return turn{}, err
	}
	if found, err = s.deleteEach(ctx, v.table(), rows, clients, o); err == nil {
		found.notifications, err = listener.takeCount(ctx, s.Pool)
	}
	return found, err
}

// pause waits until the worker has processed all tombstones, and pauses its queue.
func (s *Site) pause(ctx context.Context) error {
	watcher, closeWatcher, err := connect(ctx, s.URL)
	if err != nil {
		return err
	}
	defer closeWatcher()
	if err := awaitTrue(ctx, watcher, "SELECT NOT EXISTS (SELECT FROM "+tombstones+")"); err != nil {
		return fmt.Errorf("pause the worker: %w", err)
	}
	return s.exec(ctx, "pause the worker", "UPDATE sexton.river_queue SET paused_at = now()")
}

// resume resumes the queue and waits until the worker processes tombstones again. That
// takes some seconds.
func (s *Site) resume(ctx context.Context) error {
	if err := s.exec(ctx, "resume the worker", "UPDATE sexton.river_queue SET paused_at = NULL"); err != nil {
		return err
	}
	return s.warmUp(ctx)
}

func (v triggerState) table() string {
	if v.plain {
		return "plain_parents"
	}
	return "parents"
}

// prepareVariant prepares the database for a variant while the worker is paused. It fills
// the table, deletes all tombstones, sets the wake trigger, and takes the awake lock if
// the variant needs it. The returned function releases the lock.
func (s *Site) prepareVariant(ctx context.Context, v triggerState, rows int64) (release func(), err error) {
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

// switchTrigger enables or disables a trigger on the table of tombstones.
func (s *Site) switchTrigger(ctx context.Context, trigger string, on bool) error {
	state := "DISABLE"
	if on {
		state = "ENABLE ALWAYS"
	}
	return s.exec(ctx, "switch trigger", "ALTER TABLE "+tombstones+" "+state+" TRIGGER "+trigger)
}

// deleteEach lets clients delete one row per transaction. It ends after the warm-up and
// the turn, and returns the rate during the turn.
func (s *Site) deleteEach(ctx context.Context, table string, rows int64, clients int,
	o NotifyOptions,
) (found turn, err error) {
	var next, committed atomic.Int64
	var ready, done sync.WaitGroup
	var ended atomic.Bool
	start := make(chan struct{})
	failures := make([]error, clients)
	ready.Add(clients)
	for i := range clients {
		done.Go(func() {
			conn, closeConn, err := connect(ctx, s.URL)
			if err == nil {
				defer closeConn()
				_, err = conn.Prepare(ctx, "delete", "DELETE FROM "+table+" WHERE id = $1")
			}
			ready.Done()
			<-start
			for err == nil && !ended.Load() {
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
	close(start)
	defer func() {
		ended.Store(true)
		done.Wait()
		err = errors.Join(err, errors.Join(failures...))
	}()
	if err := pace.Sleep(ctx, o.lead()); err != nil {
		return turn{}, err
	}
	began, count := time.Now(), committed.Load()
	if err := pace.Sleep(ctx, o.Turn); err != nil {
		return turn{}, err
	}
	return turn{rate: float64(committed.Load()-count) / time.Since(began).Seconds()}, nil
}

// listener counts the notifications of the channel sexton_wake.
type listener struct {
	counts <-chan int64
	close  func()
}

// endOfRound is the payload of the notification that ends a count. Postgres delivers
// notifications in the order of their commits.
const endOfRound = "check end of round"

// takeCount returns the number of notifications since the last call.
func (l *listener) takeCount(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
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
		var notifications int64
		for {
			notification, err := conn.WaitForNotification(listening)
			switch {
			case err != nil:
				return
			case notification.Payload == endOfRound:
				counts <- notifications
				notifications = 0
			// Workers send notifications with the prefix "check " to check their own
			// listeners. These are not counted.
			case !strings.HasPrefix(notification.Payload, "check "):
				notifications++
			}
		}
	})
	return &listener{counts: counts, close: func() {
		stop()
		counting.Wait()
		closeConn()
	}}, nil
}
