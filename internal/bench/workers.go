package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// crew is a number of workers on a number of databases of one server.
type crew struct{ databases, workers int }

// heldPause is the pause of a worker while another one has the lease.
const heldPause = 250 * time.Millisecond

// Workers drains the set wide by 1, 2 and 4 workers on one database, and by a worker each on 2 and 4 databases.
func (o *Options) Workers(ctx context.Context, g *Cluster) (*Report, error) {
	crews := []crew{{1, 1}, {1, 2}, {1, 4}, {2, 2}, {4, 4}}
	set, err := newDataSet(Wide, o.Scale)
	if err != nil {
		return nil, err
	}
	var rows int64
	var took [][]time.Duration
	g.Progress("making the rows")
	err = g.with(ctx, set.source(), func(data *template) (err error) {
		took, err = inTurn(o.Rounds, crews, func(round int, c crew) (took time.Duration, err error) {
			g.Progress("round %d of %d, %d workers on %d databases", round, o.Rounds, c.workers, c.databases)
			took, rows, err = g.crew(ctx, data, set.trial(set.Targets), c)
			return took, err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	speed := func(at int) float64 {
		return round(float64(rows*int64(crews[at].databases))/median(took[at]).Seconds(), 0)
	}
	figures := make([]Row, len(crews))
	for i, c := range crews {
		figures[i] = Row{
			{"databases", "databases", "%d", c.databases},
			{"workers", "workers", "%d", c.workers},
			{"seconds", "seconds", "%.2f", round(median(took[i]).Seconds(), 3)},
			{"rows_per_second", "rows/s of all", "%.0f", speed(i)},
			{"ratio_to_one_worker", "to one worker", "%.2f", ratio(speed(i), speed(0))},
		}
	}
	// The rows are those of each database.
	r := &Report{Row: append(g.head("workers", *o), Figure{"rows", "", "", rows}, Figure{"crews", "", "", figures})}
	r.show(figures...)
	r.notef("set wide, %d rows in each database; median of %d interleaved rounds; scale %g; %s", rows, o.Rounds, o.Scale, g.Server)
	return r, nil
}

// crew lets the workers of a crew drain fresh copies, and returns how long that took and the rows of each.
func (g *Cluster) crew(ctx context.Context, data *template, t trial, c crew) (took time.Duration, rows int64, err error) {
	copies := make([]*dataCopy, c.databases)
	defer func() {
		for _, p := range slices.Backward(copies) {
			if p != nil {
				err = errors.Join(err, p.drop())
			}
		}
	}()
	for i := range copies {
		p, err := g.copyOf(ctx, data, t, fullDuty, nil)
		if err != nil {
			return 0, 0, err
		}
		copies[i], rows = p, concerned(p.before)
		if _, err := t.begin(ctx, p.conn); err != nil {
			return 0, 0, err
		}
	}
	for i := range c.workers {
		if err := openWorker(ctx, copies[i%c.databases]); err != nil {
			return 0, 0, err
		}
	}
	began := time.Now()
	all, working := errgroup.WithContext(ctx)
	for _, p := range copies {
		drained := make(chan struct{})
		end := sync.OnceFunc(func() { close(drained) })
		for _, worker := range p.workers {
			all.Go(func() error { return worker.drainBeside(working, drained, end) })
		}
	}
	err = all.Wait()
	took = time.Since(began)
	for _, p := range copies {
		if err == nil {
			err = p.check(ctx)
		}
	}
	return took, rows, err
}

// drainBeside is drain for a worker beside others of its database: one has the lease at a time, and the others are skipped until it ends
// their common work.
func (w *Worker) drainBeside(ctx context.Context, drained <-chan struct{}, end func()) error {
	for {
		pass, err := w.Pass(ctx, nil)
		switch {
		case err != nil:
			return fmt.Errorf("run pass: %w", err)
		case strings.HasPrefix(pass.Trouble, skippedPass):
			select {
			case <-drained:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(heldPause):
			}
		case pass.Trouble != "":
			return fmt.Errorf("run pass: %s", pass.Trouble)
		case !pass.More:
			end()
			return nil
		}
	}
}

// skippedPass begins the trouble of a pass that another worker's lease kept from working.
const skippedPass = "skipped: "
