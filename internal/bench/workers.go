package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// WorkersReport compares numbers of workers and of databases.
type WorkersReport struct {
	Head

	// Rows are those of each database.
	Rows  int64         `json:"rows"`
	Crews []WorkersCrew `json:"crews"`
}

// WorkersCrew is so many workers on so many databases of one server, and what they got done together.
type WorkersCrew struct {
	Databases int     `json:"databases"`
	Workers   int     `json:"workers"`
	Seconds   float64 `json:"seconds"`
	// RowsPerSecond are those of all databases. Ratio compares them with those of one worker on one.
	RowsPerSecond float64 `json:"rows_per_second"`
	Ratio         float64 `json:"ratio_to_one_worker"`
}

// heldPause is the pause of a worker while another one has the lease.
const heldPause = 250 * time.Millisecond

// Workers drains the set wide by 1, 2 and 4 workers on one database, and by a worker each on 2 and 4 databases.
func (o *Options) Workers(ctx context.Context, g *Cluster) (_ Report, err error) {
	r := &WorkersReport{Head: g.head("workers", *o)}
	for _, n := range [][2]int{{1, 1}, {1, 2}, {1, 4}, {2, 2}, {4, 4}} {
		r.Crews = append(r.Crews, WorkersCrew{Databases: n[0], Workers: n[1]})
	}
	set, err := newDataSet(Wide, o.Scale)
	if err != nil {
		return nil, err
	}
	g.Progress("making the rows")
	data, err := g.template(ctx, set.create(), set.definitions(), set.fill()...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, data.drop()) }()
	took := map[WorkersCrew][]time.Duration{}
	err = inTurn(o.Rounds, r.Crews, func(round int, c WorkersCrew) error {
		g.Progress("round %d of %d, %d workers on %d databases", round, o.Rounds, c.Workers, c.Databases)
		t, rows, err := g.crew(ctx, data, set.trial(set.targets), c)
		took[c], r.Rows = append(took[c], t), rows
		return err
	})
	for i, c := range r.Crews {
		if len(took[c]) == 0 {
			continue
		}
		t := median(took[c])
		r.Crews[i].Seconds, r.Crews[i].RowsPerSecond = round(t.Seconds(), 3), round(float64(r.Rows*int64(c.Databases))/t.Seconds(), 0)
		r.Crews[i].Ratio = ratio(r.Crews[i].RowsPerSecond, r.Crews[0].RowsPerSecond)
	}
	return r, err
}

// crew lets the workers of a crew drain fresh copies, and returns how long that took and the rows of each.
func (g *Cluster) crew(ctx context.Context, data *template, t trial, c WorkersCrew) (took time.Duration, rows int64, err error) {
	copies := make([]*dataCopy, c.Databases)
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
	for i := range c.Workers {
		if err := openWorker(ctx, copies[i%c.Databases]); err != nil {
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

// Text writes a table.
func (r *WorkersReport) Text(w io.Writer) {
	_, _ = fmt.Fprintln(w, "databases\tworkers\tseconds\trows/s of all\tto one worker")
	for _, c := range r.Crews {
		_, _ = fmt.Fprintf(w, "%d\t%d\t%.2f\t%.0f\t%.2f\n", c.Databases, c.Workers, c.Seconds, c.RowsPerSecond, c.Ratio)
	}
	_, _ = fmt.Fprintf(w, "\nset wide, %d rows in each database; median of %d interleaved rounds; scale %g; %s\n", r.Rows, r.Rounds, r.Scale, r.Server)
}
