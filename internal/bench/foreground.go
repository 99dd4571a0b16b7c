package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/each"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
	"sexton/internal/problem"
)

const (
	// foregroundClients are sessions of the application, which together begin foregroundRate transactions per
	// second whether the earlier ones have ended or not: a client that waits for a lock is late for its next transactions, too,
	// as a user is. Each has 5.3 ms for a transaction: where they take longer than that on average, the queue
	// grows as long as the load lasts, and with it the latencies.
	foregroundClients = 8
	foregroundRate    = 1500
	// warmLoad is how long the load runs before anything is measured.
	warmLoad = 300 * time.Millisecond
	// calm is how long the undisturbed load is measured at a fifth of the full size and above, less at less; at least
	// shortCalm. Its p99 is compared with that of seconds under a variant.
	calm      = 5 * time.Second
	calmScale = 0.2
	shortCalm = 200 * time.Millisecond
)

// stillness is how long the undisturbed load is measured.
func stillness(scale float64) time.Duration {
	return max(shortCalm, time.Duration(min(scale/calmScale, 1)*float64(calm)))
}

// disturbance is the application's experience under one variant.
type disturbance struct {
	name string
	// transactions were due from the parents' DELETE until the last child was gone, in all rounds.
	transactions int
	// ms are from the time that a transaction was due until its COMMIT came back.
	ms jobrun.Percentiles
	// busy is the share of their time, in percent, that the clients needed for these transactions. At 100 and above they
	// were offered more than they got done: ms then tells of a queue that grew until the end.
	busy float64
	// The ratios compare with the undisturbed load.
	ratioP50, ratioP99 float64
	// rowsPerSecond and statementMS are those of the variant meanwhile, ratioAlone is its speed without the load to compare with.
	rowsPerSecond, ratioAlone float64
	statementMS               jobrun.Percentiles
}

func (f disturbance) figures() Row {
	row := variantFigure("contender", f.name)
	row[1].Head = "foreground under"
	return append(row, Row{
		{"ms", "", "", f.ms},
		{"", "p50 ms", "%.2f", f.ms.P50},
		{"", "p90 ms", "%.2f", f.ms.P90},
		{"", "p99 ms", "%.2f", f.ms.P99},
		{"", "max ms", "%.2f", f.ms.Max},
		{"ratio_p50_to_undisturbed", "p50 / undisturbed", "%.2f", f.ratioP50},
		{"ratio_p99_to_undisturbed", "p99 / undisturbed", "%.2f", f.ratioP99},
		{"clients_busy_percent", "clients busy %", "%.0f", f.busy},
		{"transactions", "transactions", "%d", f.transactions},
		{"rows_per_second", "rows/s beside it", "%.0f", f.rowsPerSecond},
		{"ratio_rows_per_second_to_alone", "/ alone", "%.2f", f.ratioAlone},
		{"statement_ms", "", "", f.statementMS},
		{"", "its statements p99 ms", "%.1f", f.statementMS.P99},
		{"", "max ms", "%.1f", f.statementMS.Max},
	}...)
}

// foreground measures the load with half of the parents or users going, so that it meets both rows that change and rows
// that stay.
func (g *Cluster) foreground(ctx context.Context, data *template, w workload, o Options, alone comparison) ([]disturbance, error) {
	all := []variant{{name: undisturbed, drain: func(ctx context.Context, _ *dataCopy) error { return pace.Sleep(ctx, stillness(o.Scale)) }}}
	all = append(all, slices.DeleteFunc(w.variants(), func(c variant) bool { return !c.stalls })...)
	var rows int64
	rounds, err := inTurn(o.Rounds, all, func(round int, c variant) (beside, error) {
		g.Progress("%s: foreground load, round %d of %d, %s", w.title(), round, o.Rounds, c.name)
		targets := max(1, w.size()/2)
		if c.name == undisturbed {
			targets = 0
		}
		l := &load{transaction: w.transaction}
		m, changed, err := g.measure(ctx, data, w.trial(targets), c, o.Duty, l)
		rows = max(rows, changed)
		return beside{l, m}, problem.Doing(err, "%s under load", c.name)
	})
	if err != nil {
		return nil, err
	}
	found := make([]disturbance, len(all))
	for i, c := range all {
		found[i] = disturbed(c.name, rows, rounds[i])
		found[i].ratioP50, found[i].ratioP99 = ratio(found[i].ms.P50, found[0].ms.P50), ratio(found[i].ms.P99, found[0].ms.P99)
		found[i].ratioAlone = ratio(found[i].rowsPerSecond, alone.of(c.name).rowsPerSecond)
	}
	return found, nil
}

// beside is a load, and what a variant did meanwhile.
type beside struct {
	load *load
	work measured
}

// disturbed sums up the rounds of a variant.
func disturbed(name string, rows int64, rounds []beside) disturbance {
	var times []time.Duration
	var busy, length time.Duration
	for _, round := range rounds {
		times, busy, length = append(times, round.load.times...), busy+round.load.busy, length+round.load.length
	}
	f := disturbance{name: name, transactions: len(times), ms: jobrun.PercentilesOf(times)}
	f.busy = round(100*ratio(float64(busy), float64(foregroundClients*length)), 1)
	if name != undisturbed {
		work := summary(name, rows, each.Of(rounds, func(b beside) measured { return b.work }))
		f.rowsPerSecond, f.statementMS = work.rowsPerSecond, work.statementMS
	}
	return f
}

// load is a number of clients that read and update the rows that a variant changes.
type load struct {
	transaction func(ctx context.Context, conn *pgx.Conn) error
	// times are the latencies of the transactions that were due while something ran beside them, busy is how long the
	// clients were at them, and length that of the time in which they were due.
	times        []time.Duration
	busy, length time.Duration
}

// served is a transaction of a client.
type served struct {
	due        time.Time
	took, busy time.Duration
}

// during runs the load beside do. Either one's failure ends the other.
func (l *load) during(ctx context.Context, url string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var clients sync.WaitGroup
	w := &window{closed: make(chan struct{})}
	began := time.Now()
	found := make([][]served, foregroundClients)
	for i := range foregroundClients {
		clients.Go(func() {
			var err error
			if found[i], err = l.client(ctx, url, began.Add(time.Duration(i)*time.Second/foregroundRate), w); err != nil {
				cancel(fmt.Errorf("run foreground load: %w", err))
			}
		})
	}
	err := pace.Sleep(ctx, warmLoad)
	w.from = time.Now()
	if err == nil {
		err = do(ctx)
	}
	w.until = time.Now()
	close(w.closed)
	if err != nil {
		cancel(err) // Unless a client's failure was first.
	}
	clients.Wait()
	l.times, l.busy, l.length = nil, 0, w.until.Sub(w.from)
	for _, one := range slices.Concat(found...) {
		if one.due.After(w.from) && !one.due.After(w.until) {
			l.times, l.busy = append(l.times, one.took), l.busy+one.busy
		}
	}
	return context.Cause(ctx)
}

// window is the time in which transactions count. Clients know its end once it is closed.
type window struct {
	from, until time.Time
	closed      chan struct{}
}

// client runs its share of the transactions, each when it is due or, where it is late, at once. It ends with
// the last one that was due in the window.
func (l *load) client(ctx context.Context, url string, due time.Time, w *window) (done []served, err error) {
	conn, closeConn, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer closeConn()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ; ; due = due.Add(foregroundClients * time.Second / foregroundRate) {
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return done, ctx.Err()
		case <-w.closed:
		}
		select {
		case <-w.closed:
			if due.After(w.until) {
				return done, nil
			}
		default:
		}
		sent := time.Now()
		if err := l.transaction(ctx, conn); err != nil {
			return done, err
		}
		done = append(done, served{due, time.Since(due), time.Since(sent)})
	}
}

// crowded is the share of their time, in percent, up to which the clients may be busy while nothing runs beside them: with
// less than half of it left, waits of a few milliseconds add up to a queue.
const crowded = 50

// foregroundNotes explain the tables. Work says what the variants did, and duty is Sexton's.
func (r *Report) foregroundNotes(work, duty string, sets []comparison) {
	if duty != autoDuty {
		duty += " %"
	}
	r.notef("foreground: %d clients, %d transactions per second offered, latency from when each was due; %s, Sexton's duty %s",
		foregroundClients, foregroundRate, work, duty)
	r.notef("clients busy: at 100 %% and above they could not keep up, and the latencies are those of a queue that grew until the end")
	for _, set := range sets {
		if alone := set.foreground[0].busy; alone > crowded {
			r.notef("the undisturbed load took %.0f %% of the clients' time: this machine is too slow or too busy to tell what a variant adds", alone)
		}
	}
}
