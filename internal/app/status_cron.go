package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/robfig/cron/v3"

	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/installation"
	"sexton/internal/problem"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// cronLeader is the worker whose River client follows the schedules for all.
type cronLeader struct {
	Leader string    `json:"leader"`
	Until  time.Time `json:"until"`
	// Unled are the schedules that the leader does not have and other workers have.
	Unled []unledSchedule `json:"unled,omitempty"`
}

// unledSchedule is a schedule without ticks: the worker that leads has another configuration than the workers that have it.
type unledSchedule struct {
	Kind     string   `json:"kind"`
	Database string   `json:"database"`
	Workers  []string `json:"workers"`
}

func (s unledSchedule) String() string {
	return fmt.Sprintf("%s of %s has no ticks: the leader's configuration lacks it, that of %s has it", s.Kind, s.Database, words.Listed(s.Workers))
}

// unledSQL are the schedules of living workers that the leader $1 lacks. $2 is after how many seconds a worker counts as dead.
const unledSQL = `
SELECT pg_catalog.split_part(wanted.schedule, '/', 1), pg_catalog.split_part(wanted.schedule, '/', 2),
    pg_catalog.array_agg(client.client_id ORDER BY client.client_id)
FROM "sexton".clients AS leader
CROSS JOIN "sexton".clients AS client
CROSS JOIN LATERAL pg_catalog.unnest(client.schedules) AS wanted (schedule)
WHERE leader.client_id = $1
  AND client.seen_at >= pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $2::pg_catalog.float8)
  AND wanted.schedule <> ALL (leader.schedules)
GROUP BY wanted.schedule
ORDER BY wanted.schedule`

const cronLeaderSQL = `SELECT leader.leader_id, leader.expires_at FROM "sexton".river_leader AS leader WHERE leader.expires_at > pg_catalog.clock_timestamp()`

// readCronLeader returns nil where no worker leads.
func readCronLeader(ctx context.Context, jobs database.Database, silence time.Duration) (*cronLeader, error) {
	var l cronLeader
	err := jobs.Pool.QueryRow(ctx, jobs.Names.Render(cronLeaderSQL)).Scan(&l.Leader, &l.Until)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // no leader is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("read who leads cron: %w", err)
	}
	rows, err := jobs.Pool.Query(ctx, jobs.Names.Render(unledSQL), l.Leader, silence.Seconds())
	if err != nil {
		return nil, fmt.Errorf("read schedules of workers: %w", err)
	}
	if l.Unled, err = pgx.CollectRows(rows, pgx.RowToStructByPos[unledSchedule]); err != nil {
		return nil, fmt.Errorf("read schedules of workers: %w", err)
	}
	return &l, nil
}

func (l *cronLeader) String() string {
	if l == nil {
		return "cron is led by no worker"
	}
	said := []string{fmt.Sprintf("cron is led by %s until %s", l.Leader, l.Until.UTC().Format(time.RFC3339))}
	for _, s := range l.Unled {
		said = append(said, s.String())
	}
	return strings.Join(said, "\n")
}

// unled reports schedules without ticks.
func (x *examination) unled(ctx context.Context) (found []doctor.Finding, _ error) {
	leader, err := readCronLeader(ctx, x.Jobs(), x.Config.Jobs.Silence)
	if leader == nil {
		return nil, err
	}
	for _, s := range leader.Unled {
		found = append(found, doctor.Finding{
			Severity: problem.Warning, Object: s.Kind, Message: s.String(),
			Fix: "give all workers the same enabled components and databases; until then commits alone wake the job",
		})
	}
	return found, err
}

// noteTicks fills in the last and the next tick of each state that has a schedule.
func noteTicks(ctx context.Context, all *installation.Connections, states []JobState) error {
	ticks, err := riverjobs.Ticks(riverjobs.Deps{Config: all.Config})
	if err != nil {
		return err
	}
	rows, err := all.Jobs().Queries().ScheduleTicks(ctx)
	if err != nil {
		return fmt.Errorf("read last ticks: %w", err)
	}
	for i := range states {
		state := &states[i]
		var from *time.Time
		for _, row := range rows {
			if row.Kind == state.Kind && row.Database == state.Database && state.Schedule != "" {
				from = &row.LastTick
				if row.Ticked {
					state.LastTick = from
				}
			}
		}
		for _, t := range ticks {
			if t.Kind == state.Kind && t.Database == state.Database {
				state.NextTick = nextTick(t.Schedule, from, time.Now())
			}
		}
	}
	return nil
}

// nextTick is nil where a schedule never comes. One of intervals counts from its last tick.
func nextTick(times cron.Schedule, last *time.Time, now time.Time) *time.Time {
	next := times.Next(now.UTC())
	if last != nil {
		if counted := times.Next(last.UTC()); counted.After(now) {
			next = counted
		}
	}
	if next.IsZero() {
		return nil
	}
	return &next
}
