package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/robfig/cron/v3"

	"sexton/internal/database"
	riverjobs "sexton/river_jobs"
)

// cronLeader is the worker whose River client follows the schedules for all.
type cronLeader struct {
	Leader string    `json:"leader"`
	Until  time.Time `json:"until"`
}

const cronLeaderSQL = `SELECT leader.leader_id, leader.expires_at FROM "sexton".river_leader AS leader WHERE leader.expires_at > pg_catalog.clock_timestamp()`

// readCronLeader returns nil where no worker leads.
func readCronLeader(ctx context.Context, jobs database.Database) (*cronLeader, error) {
	var l cronLeader
	err := jobs.Pool.QueryRow(ctx, jobs.Names.Render(cronLeaderSQL)).Scan(&l.Leader, &l.Until)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // no leader is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("read who leads cron: %w", err)
	}
	return &l, nil
}

func (l *cronLeader) String() string {
	if l == nil {
		return "cron is led by no worker"
	}
	return fmt.Sprintf("cron is led by %s until %s", l.Leader, l.Until.UTC().Format(time.RFC3339))
}

// noteTicks fills in the last and the next tick of each state that has a schedule.
func noteTicks(ctx context.Context, all *connections, states []jobState) error {
	ticks, err := riverjobs.Ticks(riverjobs.Deps{Config: all.config})
	if err != nil {
		return err
	}
	rows, err := all.jobs().Queries().ScheduleTicks(ctx)
	if err != nil {
		return fmt.Errorf("read last ticks: %w", err)
	}
	for i := range states {
		state := &states[i]
		for _, row := range rows {
			if row.Kind == state.Kind && row.Database == state.Database && state.Schedule != "" {
				state.LastTick = &row.LastTick
			}
		}
		for _, t := range ticks {
			if t.Kind == state.Kind && t.Database == state.Database {
				state.NextTick = nextTick(t.Schedule, state.LastTick, time.Now())
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
