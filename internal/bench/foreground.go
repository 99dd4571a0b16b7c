package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/latency"
	"sexton/internal/sleep"
)

const (
	// foregroundClients are sessions of the application, which together begin foregroundRate transactions per
	// second whether those before have ended or not: who waits for a lock is late for what comes after it as
	// well, as users are. Each has 5.3 ms for a transaction: where they take longer than that on average, the queue
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

// Foreground is the application's experience under one variant.
type Foreground struct {
	Variant string `json:"contender"`
	// Transactions were due from the parents' DELETE until the last child was gone, in all rounds.
	Transactions int `json:"transactions"`
	// MS are from the time that a transaction was due until its COMMIT came back.
	MS latency.Percentiles `json:"ms"`
	// Busy is the share of their time, in percent, that the clients needed for these transactions. At 100 and above they
	// were offered more than they got done: MS then tells of a queue that grew until the end.
	Busy float64 `json:"clients_busy_percent"`
	// The ratios compare with the undisturbed load.
	RatioP50 float64 `json:"ratio_p50_to_undisturbed"`
	RatioP99 float64 `json:"ratio_p99_to_undisturbed"`
	// RowsPerSecond and StatementMS are those of the variant meanwhile, RatioAlone is its speed without the load to compare with.
	RowsPerSecond float64             `json:"rows_per_second"`
	RatioAlone    float64             `json:"ratio_rows_per_second_to_alone"`
	StatementMS   latency.Percentiles `json:"statement_ms"`
}

// foreground measures the load with half of the parents or users going, so that it meets both rows that change and rows
// that stay.
func (g *Cluster) foreground(ctx context.Context, data *template, w workload, o Options, alone comparison) ([]Foreground, error) {
	all := []variant{{name: undisturbed, drain: func(ctx context.Context, _ *dataCopy) error { return sleep.For(ctx, stillness(o.Scale)) }}}
	names := []string{undisturbed}
	for _, c := range w.variants() {
		if c.stalls {
			all, names = append(all, c), append(names, c.name)
		}
	}
	loads, worked := map[string][]*load{}, map[string][]measured{}
	var rows int64
	err := inTurn(o.Rounds, all, func(round int, c variant) error {
		g.Progress("%s: foreground load, round %d of %d, %s", w.title(), round, o.Rounds, c.name)
		targets := max(1, w.size()/2)
		if c.name == undisturbed {
			targets = 0
		}
		beside := &load{transaction: w.transaction}
		m, changed, err := g.measure(ctx, data, w.trial(targets), c, o.Duty, beside)
		if err != nil {
			return fmt.Errorf("%s under load: %w", c.name, err)
		}
		loads[c.name], worked[c.name] = append(loads[c.name], beside), append(worked[c.name], m)
		rows = max(rows, changed)
		return nil
	})
	if err != nil {
		return nil, err
	}
	found := compareLoads(names, rows, loads, worked)
	for i := range found {
		found[i].RatioAlone = ratio(found[i].RowsPerSecond, alone.of(found[i].Variant).RowsPerSecond)
	}
	return found, nil
}

// compareLoads sums up the rounds of each variant, of which the first is undisturbed.
func compareLoads(names []string, rows int64, loads map[string][]*load, worked map[string][]measured) []Foreground {
	out := make([]Foreground, len(names))
	for i, name := range names {
		var times []time.Duration
		var busy, length time.Duration
		for _, l := range loads[name] {
			times, busy, length = append(times, l.times...), busy+l.busy, length+l.length
		}
		out[i] = Foreground{Variant: name, Transactions: len(times), MS: latency.Of(times)}
		out[i].Busy = round(100*ratio(float64(busy), float64(foregroundClients*length)), 1)
		out[i].RatioP50, out[i].RatioP99 = ratio(out[i].MS.P50, out[0].MS.P50), ratio(out[i].MS.P99, out[0].MS.P99)
		if name != undisturbed {
			work := summary(name, rows, worked[name])
			out[i].RowsPerSecond, out[i].StatementMS = work.RowsPerSecond, work.StatementMS
		}
	}
	return out
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
	err := sleep.For(ctx, warmLoad)
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

const foregroundHead = "\nset\tforeground under\tp50 ms\tp90 ms\tp99 ms\tmax ms\tp50 / undisturbed\tp99 / undisturbed\tclients busy %\t" +
	"transactions\trows/s beside it\t/ alone\tits statements p99 ms\tmax ms\n"

func foregroundText(w io.Writer, set string, found []Foreground) {
	for _, f := range found {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t%d\t%.0f\t%.2f\t%.1f\t%.1f\n", set, words(f.Variant),
			f.MS.P50, f.MS.P90, f.MS.P99, f.MS.Max, f.RatioP50, f.RatioP99, f.Busy, f.Transactions, f.RowsPerSecond,
			f.RatioAlone, f.StatementMS.P99, f.StatementMS.Max)
	}
}

// crowded is the share of their time, in percent, up to which the clients may be busy while nothing runs beside them: with
// less than half of it left, waits of a few milliseconds add up to a queue.
const crowded = 50

// foregroundNote explains the tables. Work says what the variants did, and Sexton's duty.
func foregroundNote(w io.Writer, work string, duty any, tables ...[]Foreground) {
	if percent, fixed := duty.(int); fixed {
		duty = fmt.Sprintf("%d %%", percent)
	}
	_, _ = fmt.Fprintf(w, "foreground: %d clients, %d transactions per second offered, latency from when each was due; %s, Sexton's duty %s\n",
		foregroundClients, foregroundRate, work, duty)
	_, _ = fmt.Fprintln(w, "clients busy: at 100 % and above they could not keep up, and the latencies are those of a queue that grew until the end")
	for _, found := range tables {
		if alone := found[0].Busy; alone > crowded {
			_, _ = fmt.Fprintf(w, "the undisturbed load took %.0f %% of the clients' time: "+
				"this machine is too slow or too busy to tell what a variant adds\n", alone)
		}
	}
}

// underLoad are the clients' experiences on one data set.
type underLoad struct {
	set   string
	found []Foreground
}

// ending writes the foreground, where it was asked for, and how the figures were taken: what, how and note are the benchmark's own
// words, work says what the variants did beside the foreground.
func (h Head) ending(w io.Writer, what, how, note, work string, loads []underLoad) {
	var tables [][]Foreground
	if h.Duty != nil {
		_, _ = fmt.Fprint(w, foregroundHead)
		for _, l := range loads {
			foregroundText(w, l.set, l.found)
			tables = append(tables, l.found)
		}
	}
	_, _ = fmt.Fprintf(w, "\n%smedian of %d interleaved rounds, each on a fresh copy of the data; scale %g%s; %s\n%s",
		what, h.Rounds, h.Scale, how, h.Server, note)
	if h.Duty != nil {
		foregroundNote(w, work, h.Duty, tables...)
	}
}
