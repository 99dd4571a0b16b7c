package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/latency"
)

// workload is a data set, the work that it can make, and the ways to do that.
type workload interface {
	// title names the data set.
	title() string
	// size is how many parents or users it has whose rows can be made work of.
	size() int64
	contenders() []contender
	// stalls reports whether the foreground is to be measured beside that contender, too.
	stalls(contender string) bool
	// trial is the work for the first so many of them.
	trial(doomed int64) trial
	// transaction is one of the application's on the same tables.
	transaction(ctx context.Context, conn *pgx.Conn) error
}

// trial is work that each contender does on a copy of its own.
type trial struct {
	// look is asked before there is any work: it counts the rows that are concerned and returns what finds out whether
	// exactly they have been changed, and whether Sexton, where it was Sexton, has left nothing in its queue.
	look func(ctx context.Context, conn *pgx.Conn) (rows int64, check func(ctx context.Context, bySexton bool) error, err error)
	// begin makes the work and tells how long the application had to wait for that. What it writes counts as written.
	begin func(ctx context.Context, conn *pgx.Conn) (time.Duration, error)
	// definitions are Sexton's, watch tells its statements apart.
	definitions string
	watch       *stopwatch
}

// Contender is one way to do the work, and what it took.
type Contender struct {
	Name string `json:"contender"`
	// Seconds are from the first statement after the work was there to its end; of contenders that have done it by then,
	// the time that it took to make it.
	Seconds       float64 `json:"seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
	// WALBytes are all that the server wrote meanwhile, that by which the work came about included.
	WALBytes int64 `json:"wal_bytes"`
	// Statements counts the ones that changed rows in one round, StatementMS how long they took in all rounds. Of
	// Sexton's it is the whole transaction, from BEGIN to COMMIT.
	Statements  int                 `json:"statements"`
	StatementMS latency.Percentiles `json:"statement_ms"`
}

// contender is one way to do a workload's work.
type contender struct {
	name string
	// prepare runs before there is work; nil where there is nothing to do.
	prepare func(ctx context.Context, p *plot) error
	// ready runs between that and drain, untimed; nil likewise.
	ready func(ctx context.Context, p *plot) error
	// drain works off what there is to do, and returns how long its statements took. Nil where everything is done
	// by what made the work.
	drain func(ctx context.Context, p *plot) ([]time.Duration, error)
}

// measured holds the figures of one contender in one round.
type measured struct {
	took, begun time.Duration
	wal         int64
	times       []time.Duration
}

// plot is the copy of the data that a contender works on.
type plot struct {
	ground *Ground
	trial  trial
	url    string
	conn   *pgx.Conn
	// duty and worker are Sexton's alone.
	duty   int
	worker *Worker
}

// rounds lets the contenders take turns in who begins, each on a fresh copy.
func (g *Ground) rounds(ctx context.Context, data *template, w workload, rounds int) (map[string][]measured, int64, error) {
	found := map[string][]measured{}
	all := w.contenders()
	var rows int64
	for round := range rounds {
		for i := range all {
			c := all[(i+round)%len(all)]
			g.Progress("%s: round %d of %d, %s", w.title(), round+1, rounds, c.name)
			m, changed, err := g.measure(ctx, data, w.trial(w.size()), c, nil)
			if err != nil {
				return nil, 0, fmt.Errorf("%s: %w", c.name, err)
			}
			found[c.name] = append(found[c.name], m)
			rows = changed
		}
	}
	return found, rows, nil
}

// measure lets a contender work on a fresh copy. It returns also how many rows were concerned. The load beside it, if
// any, is put on the same copy.
func (g *Ground) measure(ctx context.Context, data *template, t trial, c contender, beside *load) (m measured, rows int64, err error) {
	p := &plot{ground: g, trial: t, duty: fullDuty}
	if beside != nil {
		p.duty = beside.duty
	}
	url, conn, drop, err := g.copyOf(ctx, data)
	if err != nil {
		return m, 0, err
	}
	p.url, p.conn = url, conn
	defer func() { err = errors.Join(err, drop()) }()
	rows, check, err := t.look(ctx, conn)
	if err != nil {
		return m, 0, err
	}
	if c.prepare != nil {
		if err := c.prepare(ctx, p); err != nil {
			return m, 0, err
		}
	}
	if p.worker != nil {
		defer p.worker.Close()
	}
	if err := settle(ctx, conn); err != nil {
		return m, 0, err
	}
	if beside != nil {
		err = beside.during(ctx, url, func(ctx context.Context) error { return p.run(ctx, c, &m) })
	} else {
		err = p.run(ctx, c, &m)
	}
	if err != nil {
		return m, 0, err
	}
	return m, rows, check(ctx, c.name == sexton)
}

// run does the measured work.
func (p *plot) run(ctx context.Context, c contender, m *measured) error {
	start, err := walPosition(ctx, p.conn)
	if err != nil {
		return err
	}
	if m.begun, err = p.trial.begin(ctx, p.conn); err != nil {
		return err
	}
	if c.ready != nil {
		if err := c.ready(ctx, p); err != nil {
			return err
		}
	}
	m.took, m.times = m.begun, []time.Duration{m.begun}
	if c.drain != nil {
		began := time.Now()
		if m.times, err = c.drain(ctx, p); err != nil {
			return err
		}
		m.took = time.Since(began)
	}
	end, err := walPosition(ctx, p.conn)
	m.wal = end - start
	return err
}

// openWorker connects the worker, as one is up already when work comes.
func openWorker(ctx context.Context, p *plot) (err error) {
	p.worker, err = p.ground.Open(ctx, p.url, p.trial.definitions, p.duty, p.trial.watch)
	return err
}

func drainByWorker(ctx context.Context, p *plot) ([]time.Duration, error) {
	_, err := p.worker.drain(ctx)
	times, _ := p.trial.watch.take()
	return times, err
}

// summary takes the median of the rounds.
func summary(name string, rows int64, rounds []measured) Contender {
	var took, times []time.Duration
	var wal []int64
	for _, m := range rounds {
		took, wal, times = append(took, m.took), append(wal, m.wal), append(times, m.times...)
	}
	middle := median(took)
	return Contender{
		Name: name, Seconds: round(middle.Seconds(), 4), RowsPerSecond: round(float64(rows)/middle.Seconds(), 0), WALBytes: median(wal),
		Statements: len(times) / len(rounds), StatementMS: latency.Of(times),
	}
}
