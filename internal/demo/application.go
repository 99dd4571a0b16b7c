package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pace is how much the application deletes, and how fast.
type pace struct {
	// share of a table's rows is deleted, in percent.
	share int64
	// length is how long all deletions take, unless that would be fewer than slowest a second.
	length  time.Duration
	slowest float64
}

// paceOf is that of a demo that ends once all is drained, or of one that goes on until it is stopped. The
// former leaves parents over, to show that only children of deleted ones go.
func paceOf(drain bool) pace {
	if drain {
		return pace{share: 60, length: 25 * time.Second, slowest: 40}
	}
	return pace{share: 100, length: 10 * time.Minute, slowest: 4}
}

const (
	// inBursts is the part of the parents that goes in large requests.
	inBursts = 0.25
	// step is the pause between two requests of the application, burstEvery that between two large ones.
	step       = 50 * time.Millisecond
	burstEvery = 6 * time.Second
)

// parentTables are the tables from which the application deletes, with how often.
func parentTables() []parentTable {
	return []parentTable{
		{name: "ci_pipelines", weight: 8, most: 1000},
		{name: "issues", weight: 4, most: 1000},
		{name: "merge_requests", weight: 3, most: 100},
		{name: "web_hooks", weight: 2, most: 100},
		{name: "packages_packages", weight: 2, most: 100},
		// Each takes many others along, by its real foreign keys and by the loose ones.
		{name: "projects", weight: 1, most: 1, fraction: 6},
	}
}

// deadlock is the SQLSTATE deadlock_detected.
const deadlock = "40P01"

type parentTable struct {
	name   string
	weight int
	// most is how many go in one statement.
	most int
	// fraction divides the share of rows that go; 0 means 1.
	fraction int64
	// left is how many are still to go.
	left int64
	// first and last are the keys between which its rows are.
	first, last int64
}

// application deletes parents at random: mostly one at a time, now and then many in one statement.
type application struct {
	pool      *pgxpool.Pool
	times     *stopwatch
	tables    []parentTable
	planned   int64
	perSecond float64
	deleted   atomic.Int64
	done      atomic.Bool
}

func newApplication(ctx context.Context, pool *pgxpool.Pool, times *stopwatch, pace pace) (*application, error) {
	a := &application{pool: pool, times: times, tables: parentTables()}
	for i, table := range a.tables {
		var rows int64
		sql := "SELECT count(*), coalesce(min(id), 0), coalesce(max(id), 0) FROM " + pgx.Identifier{table.name}.Sanitize()
		if err := pool.QueryRow(ctx, sql).Scan(&rows, &a.tables[i].first, &a.tables[i].last); err != nil {
			return nil, fmt.Errorf("count %s: %w", table.name, err)
		}
		a.tables[i].left = (rows*pace.share + 99) / 100 / max(1, table.fraction)
		a.planned += a.tables[i].left
	}
	a.tables = slices.DeleteFunc(a.tables, func(t parentTable) bool { return t.left == 0 })
	a.perSecond = max(pace.slowest, float64(a.planned)/pace.length.Seconds())
	return a, nil
}

// run deletes until the plan is fulfilled or ctx ends. Most parents go one by one, a
// quarter in bursts, so that there is a backlog to see.
func (a *application) run(ctx context.Context) error {
	defer a.done.Store(true)
	tick := time.NewTicker(step)
	defer tick.Stop()
	singles, burst := 0.0, time.Now()
	for len(a.tables) > 0 {
		for singles += a.perSecond * (1 - inBursts) * step.Seconds(); singles >= 1; singles-- {
			if err := a.delete(ctx, 1); err != nil {
				return err
			}
		}
		if time.Since(burst) >= burstEvery {
			burst = time.Now()
			if err := a.delete(ctx, int(a.perSecond*inBursts*burstEvery.Seconds())); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// delete removes up to limit parents that stand together in one table, as one statement. A table of which
// enough is gone, or all, is left alone from then on.
func (a *application) delete(ctx context.Context, limit int) error {
	if len(a.tables) == 0 {
		return nil
	}
	at := a.pick()
	table := &a.tables[at]
	limit = min(limit, table.most, int(table.left))
	from := table.first + rand.Int64N(table.last-table.first+1)
	ids, err := a.remove(ctx, table.name, from, limit)
	if err == nil && len(ids) == 0 {
		ids, err = a.remove(ctx, table.name, table.first, limit)
	}
	// Two sessions that delete the same rows in different orders: an application tries again, this one later.
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == deadlock {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete from %s: %w", table.name, err)
	}
	a.deleted.Add(int64(len(ids)))
	table.left -= int64(len(ids))
	if len(ids) == 0 || table.left <= 0 {
		a.tables = slices.Delete(a.tables, at, at+1)
	}
	return nil
}

// pick returns a table by weight.
func (a *application) pick() int {
	total := 0
	for _, table := range a.tables {
		total += table.weight
	}
	n := rand.IntN(total)
	for i, table := range a.tables {
		if n -= table.weight; n < 0 {
			return i
		}
	}
	return 0
}

// remove deletes rows in the order of their keys, and tells the stopwatch when that was committed.
func (a *application) remove(ctx context.Context, table string, from int64, limit int) ([]int64, error) {
	quoted := pgx.Identifier{table}.Sanitize()
	sql := "DELETE FROM " + quoted + " WHERE id IN (SELECT id FROM " + quoted + " WHERE id >= $1 ORDER BY id LIMIT $2) RETURNING id"
	rows, err := a.pool.Query(ctx, sql, from, limit)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err == nil {
		a.times.committed(table, ids)
	}
	return ids, err
}
