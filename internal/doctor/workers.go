package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/robfig/cron/v3"

	"sexton/internal/problem"
)

// Schedule is one schedule of a kind of job for a database.
type Schedule struct {
	Kind     string
	Database string
	Times    cron.Schedule
}

// missable is how many ticks may be missing before a schedule counts as stopped.
const missable = 3

// Workers are what the jobs database knows of those who do the work.
type Workers struct {
	Target
	// Silence is how long a worker may be silent before it is taken for dead.
	Silence   time.Duration
	Schedules []Schedule
}

// worker is one that lives.
type worker struct {
	Client  string
	Deaf    []string
	Started time.Time
}

// ExamineWorkers makes the checks of workers and schedules.
func ExamineWorkers(ctx context.Context, report *Report, w Workers) {
	name := w.Database.Name
	var alive []worker
	report.Run(ctx, "workers", name, func(ctx context.Context) ([]Finding, error) {
		return w.read(ctx, func(ctx context.Context, tx pgx.Tx) (found []Finding, err error) {
			alive, err = w.alive(ctx, tx)
			return judgeWorkers(alive), err
		})
	})
	if len(alive) == 0 {
		report.Skip(name, "schedules")
		return
	}
	report.Run(ctx, "schedules", name, func(ctx context.Context) ([]Finding, error) {
		return w.read(ctx, func(ctx context.Context, tx pgx.Tx) ([]Finding, error) { return w.schedules(ctx, tx, alive) })
	})
}

func (w Workers) alive(ctx context.Context, tx pgx.Tx) ([]worker, error) {
	rows, err := tx.Query(ctx, w.Database.Names.Render(`
		SELECT client.client_id, client.deaf, client.started_at
		FROM "sexton".clients AS client
		WHERE NOT client.foreground AND client.seen_at >= pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1)
		ORDER BY client.started_at, client.client_id`), w.Silence.Seconds())
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	alive, err := pgx.CollectRows(rows, pgx.RowToStructByPos[worker])
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	return alive, nil
}

func judgeWorkers(alive []worker) []Finding {
	if len(alive) == 0 {
		return []Finding{{Severity: problem.Info, Object: "workers", Message: "no worker is running", Fix: "sexton run"}}
	}
	var found []Finding
	for _, w := range alive {
		if len(w.Deaf) > 0 {
			found = append(found, Finding{
				Severity: problem.Warning, Object: w.Client,
				Message: "notifications do not reach this worker, which polls every second for " + strings.Join(w.Deaf, ", "),
				Fix:     "give listen_url a direct connection, past any pooler",
			})
		}
	}
	return found
}

// schedules looks for schedules that do not tick although a worker lives. What was missed before it started it makes
// up for within moments, so only ticks since then count.
func (w Workers) schedules(ctx context.Context, tx pgx.Tx, alive []worker) ([]Finding, error) {
	rows, err := tx.Query(ctx, w.Database.Names.Render(`
		SELECT schedule.kind, schedule.database, schedule.last_tick FROM "sexton".schedules AS schedule`))
	if err != nil {
		return nil, fmt.Errorf("read schedules: %w", err)
	}
	type name struct{ kind, database string }
	ticks := map[name]time.Time{}
	var n name
	var tick time.Time
	_, err = pgx.ForEachRow(rows, []any{&n.kind, &n.database, &tick}, func() error {
		ticks[n] = tick
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read schedules: %w", err)
	}
	var now time.Time
	if err := tx.QueryRow(ctx, "SELECT pg_catalog.clock_timestamp()").Scan(&now); err != nil {
		return nil, fmt.Errorf("ask for the server's time: %w", err)
	}
	var found []Finding
	for _, s := range w.Schedules {
		last, ticked := ticks[name{kind: s.Kind, database: s.Database}]
		if !stopped(s.Times, last, alive[0].Started, now) {
			continue
		}
		since := "never"
		if ticked {
			since = "last at " + last.UTC().Format(time.RFC3339)
		}
		found = append(found, Finding{
			Severity: problem.Warning, Object: s.Kind + "/" + s.Database,
			Message: fmt.Sprintf("%d ticks of the schedule and more are missing although a worker runs; it ticked %s", missable, since),
			Fix:     "look into the log of worker " + alive[0].Client + " for the schedule's error, or start it again",
		})
	}
	return found, nil
}

// stopped reports whether a schedule has missed too many ticks since the last one and since a worker could have
// followed it. All times are taken in UTC, as schedules are.
func stopped(times cron.Schedule, last, started, now time.Time) bool {
	at := last
	if started.After(at) {
		at = started
	}
	at = at.UTC()
	for range missable {
		if at = times.Next(at); at.IsZero() || at.After(now) {
			return false
		}
	}
	return true
}
