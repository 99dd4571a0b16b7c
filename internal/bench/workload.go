package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/each"
	"sexton/internal/jobrun"
	"sexton/internal/problem"
)

// Options says what a benchmark of whole drains measures.
type Options struct {
	// Sets are among the benchmark's data sets; Scale is a fraction of their full size.
	Sets  []string
	Scale float64
	// Rounds are how often each variant works; another one begins in each round.
	Rounds int
	// Foreground also measures what clients feel that use the same tables meanwhile.
	Foreground bool
	// Duty is the share of its time that the worker may work: auto, or a percentage, with which it works all of its time without clients.
	Duty string
}

// alone is the worker's duty while nothing runs beside it.
func (o Options) alone() string {
	if o.Duty == autoDuty {
		return autoDuty
	}
	return fullDuty
}

// head begins the report of a benchmark of whole drains. The duty is that of the worker beside the foreground load, in percent or auto; null
// where that was not asked for.
func (g *Cluster) head(benchmark string, o Options) Row {
	var duty any
	if percent, err := strconv.Atoi(o.Duty); err == nil && o.Foreground {
		duty = percent
	} else if o.Foreground {
		duty = o.Duty
	}
	return Row{
		{"benchmark", "", "", benchmark},
		{"server", "", "", g.Server},
		{"scale", "", "", o.Scale},
		{"rounds", "", "", o.Rounds},
		{"foreground_duty", "", "", duty},
	}
}

// workload is a data set, the work that it can make, and the ways to do that.
type workload interface {
	source() source
	// title names the data set.
	title() string
	// size is how many parents, users or groups it has whose rows can be made work of.
	size() int64
	variants() []variant
	// trial is the work for the first so many of them.
	trial(targets int64) trial
	// transaction is one of the application's on the same tables.
	transaction(ctx context.Context, conn *pgx.Conn) error
}

// trial is work that each variant does on a copy of its own.
type trial struct {
	tables []counted
	// done is the content that a table must have afterwards.
	done func(before content) content
	// begin makes the work and tells how long the application had to wait for that. What it writes counts as written. Nil where
	// the work is there.
	begin func(ctx context.Context, conn *pgx.Conn) (time.Duration, error)
	// leftovers is the query of a text about the rows that Sexton has left in its queue, or otherwise must not leave; null where there
	// are none. Empty where the tables say it all.
	leftovers string
	// definitions are Sexton's, watch tells its statements apart.
	definitions string
	watch       *stopwatch
}

// counted is a table, and the query of its content with its arguments.
type counted struct {
	table, sql string
	args       []any
}

// content sums up the rows of a table.
type content struct {
	// rows are all of them, referring those with a parent or, in a benchmark of users, those of the ghost user.
	rows, referring int64
	// targets are to be deleted or changed. The sum of the ids of all others shows whether they are the same.
	targets, others int64
	// doubles are those of targets of which the ghost user has the like.
	doubles int64
}

// look is asked before there is any work.
func (t trial) look(ctx context.Context, conn *pgx.Conn) (map[string]content, error) {
	found := map[string]content{}
	for _, table := range t.tables {
		var c content
		if err := conn.QueryRow(ctx, table.sql, table.args...).Scan(&c.rows, &c.referring, &c.targets, &c.others, &c.doubles); err != nil {
			return nil, fmt.Errorf("count rows of %s: %w", table.table, err)
		}
		found[table.table] = c
	}
	return found, nil
}

// concerned are the rows to be deleted or changed.
func concerned(tables map[string]content) (n int64) {
	for _, c := range tables {
		n += c.targets
	}
	return n
}

// check reports as an error if other rows than the right ones have been changed, or if Sexton, where it was Sexton, has left
// something in its queue.
func (t trial) check(ctx context.Context, conn *pgx.Conn, before map[string]content, bySexton bool) error {
	if bySexton && t.leftovers != "" {
		var left *string
		if err := conn.QueryRow(ctx, t.leftovers).Scan(&left); err != nil {
			return fmt.Errorf("count what remains: %w", err)
		}
		if left != nil {
			return fmt.Errorf("%s remain after the last pass", *left)
		}
	}
	after, err := t.look(ctx, conn)
	if err != nil {
		return err
	}
	for table, c := range before {
		if want := t.done(c); after[table] != want {
			return fmt.Errorf("table %s is not as it must be: want %+v, have %+v", table, want, after[table])
		}
	}
	return nil
}

// outcome holds the figures of a variant: the medians of its rounds.
type outcome struct {
	name string
	// took is from the first statement after the work was there to its end; of variants that have done it by then,
	// the time that it took to make it. seconds is the same.
	took                   time.Duration
	seconds, rowsPerSecond float64
	// begun is how long it took to make the work, restored how long to put the rows back, in the benchmark that does so.
	begun, restored time.Duration
	// wal is all that the server wrote meanwhile in bytes, that by which the work came about included.
	wal int64
	// sent counts the statements that changed rows in all rounds, statements those of one round, and statementMS is how long they
	// took. Of Sexton's it is the whole transaction, from BEGIN to COMMIT: as long are its locks held.
	sent, statements int
	statementMS      jobrun.Percentiles
}

// summary takes the median of the rounds.
func summary(name string, rows int64, rounds []measured) outcome {
	took := median(each.Of(rounds, func(m measured) time.Duration { return m.took }))
	times := slices.Concat(each.Of(rounds, func(m measured) []time.Duration { return m.times })...)
	return outcome{
		name: name, took: took, seconds: round(took.Seconds(), 4), rowsPerSecond: round(float64(rows)/took.Seconds(), 0),
		begun:    median(each.Of(rounds, func(m measured) time.Duration { return m.begun })),
		restored: median(each.Of(rounds, func(m measured) time.Duration { return m.restored })),
		wal:      median(each.Of(rounds, func(m measured) int64 { return m.wal })),
		sent:     len(times), statements: len(times) / len(rounds), statementMS: jobrun.PercentilesOf(times),
	}
}

// variant is one way to do a workload's work.
type variant struct {
	name string
	// stalls has the foreground measured beside it, too.
	stalls bool
	// prepare runs before there is work; nil where there is nothing to do.
	prepare func(ctx context.Context, p *dataCopy) error
	// ready runs between that and drain, untimed; nil likewise.
	ready func(ctx context.Context, p *dataCopy) error
	// drain works off what there is to do. Nil where everything is done by what made the work.
	drain func(ctx context.Context, p *dataCopy) error
	// restore puts the rows back, which is timed and checked, too; nil where they stay away.
	restore func(ctx context.Context, p *dataCopy) error
}

// measured holds the figures of one variant in one round.
type measured struct {
	took, begun, restored time.Duration
	wal                   int64
	times                 []time.Duration
}

// dataCopy is the copy that a variant works on.
type dataCopy struct {
	cluster *Cluster
	trial   trial
	url     string
	conn    *pgx.Conn
	// before is the content of the tables ahead of the work.
	before map[string]content
	// times are those of the statements that changed rows.
	times []time.Duration
	// duty and workers are Sexton's alone.
	duty    string
	workers []*Worker
	// drop closes the workers and removes the copy.
	drop func() error
}

// comparison holds the figures of the variants of a workload.
type comparison struct {
	set string
	// targets are deleted, rows are what goes or changes with them.
	targets, rows int64
	variants      []outcome
	foreground    []disturbance
}

// of returns the variant of that name.
func (c comparison) of(name string) outcome {
	for _, one := range c.variants {
		if one.name == name {
			return one
		}
	}
	return outcome{}
}

// inTurn measures every variant in every round; another one begins in each round. It returns the figures of each variant, round by round.
func inTurn[V, M any](rounds int, variants []V, measure func(round int, v V) (M, error)) ([][]M, error) {
	found := make([][]M, len(variants))
	for round := range rounds {
		for i := range variants {
			at := (i + round) % len(variants)
			m, err := measure(round+1, variants[at])
			if err != nil {
				return nil, err
			}
			found[at] = append(found[at], m)
		}
	}
	return found, nil
}

// compareSets compares on each of the data sets.
func compareSets[W workload](
	ctx context.Context, g *Cluster, o Options, c contest, newSet func(name string, scale float64) (W, error),
) (*Report, error) {
	var sets []comparison
	for _, name := range o.Sets {
		set, err := newSet(name, o.Scale)
		if err != nil {
			return nil, err
		}
		found, err := g.compare(ctx, set, o)
		if err != nil {
			return nil, fmt.Errorf("measure data set %s: %w", name, err)
		}
		sets = append(sets, found)
	}
	return c.report(g, o, sets...), nil
}

// compare makes the data of a workload and lets each variant work on fresh copies, after each of which it checks that exactly
// the right rows have been changed; then once more beside the foreground, where that was asked for.
func (g *Cluster) compare(ctx context.Context, w workload, o Options) (comparison, error) {
	found := comparison{set: w.title(), targets: w.size()}
	g.Progress("%s: making the rows", w.title())
	err := g.with(ctx, w.source(), func(data *template) error {
		rounds, err := inTurn(o.Rounds, w.variants(), func(round int, c variant) (m measured, err error) {
			g.Progress("%s: round %d of %d, %s", w.title(), round, o.Rounds, c.name)
			m, found.rows, err = g.measure(ctx, data, w.trial(w.size()), c, o.alone(), nil)
			return m, problem.Doing(err, "%s", c.name)
		})
		if err != nil {
			return err
		}
		for i, c := range w.variants() {
			found.variants = append(found.variants, summary(c.name, found.rows, rounds[i]))
		}
		if o.Foreground {
			found.foreground, err = g.foreground(ctx, data, w, o, found)
		}
		return err
	})
	return found, err
}

// measure lets a variant work on a fresh copy. It returns also how many rows were concerned. The load beside it, if
// any, is put on the same copy.
func (g *Cluster) measure(ctx context.Context, data *template, t trial, c variant, duty string, beside *load) (m measured, rows int64, err error) {
	p, err := g.copyOf(ctx, data, t, duty, c.prepare)
	if err != nil {
		return m, 0, err
	}
	defer func() { err = errors.Join(err, p.drop()) }()
	if beside != nil {
		err = beside.during(ctx, p.url, func(ctx context.Context) error { return p.run(ctx, c, &m) })
	} else {
		err = p.run(ctx, c, &m)
	}
	if err != nil {
		return m, 0, err
	}
	if err := p.check(ctx); err != nil || c.restore == nil {
		return m, concerned(p.before), err
	}
	began := time.Now()
	if err := c.restore(ctx, p); err != nil {
		return m, 0, err
	}
	m.restored = time.Since(began)
	p.trial.done = func(c content) content { return c }
	return m, concerned(p.before), p.check(ctx)
}

// run does the measured work.
func (p *dataCopy) run(ctx context.Context, c variant, m *measured) error {
	start, err := walPosition(ctx, p.conn)
	if err != nil {
		return err
	}
	if p.trial.begin != nil {
		if m.begun, err = p.trial.begin(ctx, p.conn); err != nil {
			return err
		}
	}
	if c.ready != nil {
		if err := c.ready(ctx, p); err != nil {
			return err
		}
	}
	m.took, m.times = m.begun, []time.Duration{m.begun}
	if c.drain != nil {
		began := time.Now()
		if err = c.drain(ctx, p); err != nil {
			return err
		}
		m.took, m.times = time.Since(began), p.times
	}
	end, err := walPosition(ctx, p.conn)
	m.wal = end - start
	return err
}

func (p *dataCopy) check(ctx context.Context) error {
	return p.trial.check(ctx, p.conn, p.before, len(p.workers) > 0)
}

// openWorker connects a worker, as one is up already when work comes.
func openWorker(ctx context.Context, p *dataCopy) error {
	worker, err := p.cluster.Open(ctx, p.url, p.trial.definitions, p.duty, p.trial.watch)
	if err == nil {
		p.workers = append(p.workers, worker)
	}
	return err
}

func drainByWorker(ctx context.Context, p *dataCopy) error {
	_, err := p.workers[0].drain(ctx)
	p.times, _ = p.trial.watch.take()
	return err
}

// send runs a statement that changes rows of a table, and keeps how long it took.
func (p *dataCopy) send(ctx context.Context, table, sql string, args ...any) (changed int64, err error) {
	tag, took, err := timed(ctx, p.conn, sql, args...)
	if err != nil {
		return 0, fmt.Errorf("change %s: %w", table, err)
	}
	p.times = append(p.times, took)
	return tag.RowsAffected(), nil
}

// exhaust sends a statement until it changes nothing.
func (p *dataCopy) exhaust(ctx context.Context, table, sql string, args ...any) error {
	for {
		if changed, err := p.send(ctx, table, sql, args...); err != nil || changed == 0 {
			return err
		}
	}
}

// together sends the statements in one transaction.
func (p *dataCopy) together(ctx context.Context, statements []counted) error {
	return pgx.BeginFunc(ctx, p.conn, func(pgx.Tx) error {
		for _, s := range statements {
			if _, err := p.send(ctx, s.table, s.sql, s.args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// avoidSequentialScans holds for the rest of the session, which ends with the copy.
func (p *dataCopy) avoidSequentialScans(ctx context.Context) error {
	_, err := p.conn.Exec(ctx, "SET enable_seqscan = off")
	return problem.Doing(err, "switch sequential scans off")
}

// timed runs a statement and tells how long it took, commit and round trip included.
func timed(ctx context.Context, conn *pgx.Conn, sql string, args ...any) (pgconn.CommandTag, time.Duration, error) {
	began := time.Now()
	tag, err := conn.Exec(ctx, sql, args...)
	return tag, time.Since(began), err
}

// use is a transaction of the application: it reads some rows and another one, and updates that one, in one round trip.
func use(ctx context.Context, conn *pgx.Conn, some string, key int64, table, column string, row int64) error {
	batch := &pgx.Batch{}
	batch.Queue(some, key)
	batch.Queue("SELECT * FROM "+table+" WHERE id = $1", row)
	batch.Queue(fmt.Sprintf("UPDATE %s SET %s = reverse(%[2]s) WHERE id = $1", table, column), row)
	return problem.Doing(conn.SendBatch(ctx, batch).Close(), "use %s", table)
}
