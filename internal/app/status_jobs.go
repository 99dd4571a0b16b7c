package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"sexton/internal/dbsqlc"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/pace"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// JobState is a kind in one of its databases.
type JobState struct {
	Kind        string     `json:"kind"`
	Queue       string     `json:"queue"`
	Database    string     `json:"database"`
	Schedule    string     `json:"schedule"`
	LastTick    *time.Time `json:"last_tick"`
	NextTick    *time.Time `json:"next_tick"`
	Paused      bool       `json:"paused"`
	LastRun     *time.Time `json:"last_run"`
	LastOutcome *string    `json:"last_outcome"`
	LastError   *string    `json:"last_error"`
	// WaitingFor says why nothing happens, be there a pass or not, although something is pending; null where nothing
	// stands in the way.
	WaitingFor *string `json:"waiting_for"`
	// Running is the pass that is at work now; null where none is.
	Running *runningPass `json:"running"`

	Job       riverjobs.Job `json:"-"`
	obstacles obstacles
	// turnedBack is why the last pass could not do its work then, where that was no failure.
	turnedBack string
	// lastEnded is when the last run ended; nil while it goes on. Runs without any change share a row that began with the first.
	lastEnded *time.Time
	// class is the sort of what it waits for.
	class WaitClass
}

// runningPass is a pass that has not ended, with its statistics of half a second ago at most.
type runningPass struct {
	RunID     int64           `json:"run_id"`
	Holder    string          `json:"holder"`
	StartedAt time.Time       `json:"started_at"`
	Stats     json.RawMessage `json:"stats"`
}

// waitingFor names the reason for which the pass waits and its class, or "" while it works.
func (p *runningPass) waitingFor() (reason string, class WaitClass) {
	var stats loosefk.Stats
	if err := json.Unmarshal(p.Stats, &stats); err != nil {
		return "", ""
	}
	class = WaitClass(stats.WaitingClass)
	if stats.WaitingFor != "" && class == "" {
		class = WaitClass(pace.WaitLock) // Most kinds do not tell the sorts apart.
	}
	return stats.WaitingFor, class
}

// JobStates reads schedule, pause and last run of every job and database.
func JobStates(ctx context.Context, all *installation.Connections) ([]JobState, error) {
	runs, alive, err := readRuns(ctx, all)
	if err != nil {
		return nil, err
	}
	states := []JobState{}
	for _, job := range riverjobs.Jobs(all.Config) {
		paused, err := PausedQueue(ctx, all, job.Queue)
		if err != nil {
			return nil, err
		}
		for _, name := range job.Databases {
			db := all.Database(name)
			state := newJobState(job, db.Name, runs, alive, paused)
			if down := all.Down[db.Name]; down != nil {
				state.obstacles.down = down.Error()
			} else if state.obstacles, err = findObstacles(ctx, all, job, db, alive); err != nil {
				return nil, err
			}
			state.obstacles.paused = paused
			states = append(states, state)
		}
	}
	return states, noteTicks(ctx, all, states)
}

// readRuns reads the last run of each kind and database, and the workers that are alive.
func readRuns(ctx context.Context, all *installation.Connections) ([]dbsqlc.RunsLastRow, []dbsqlc.ClientsAliveRow, error) {
	runs, err := all.Jobs().Queries().RunsLast(ctx, dbsqlc.RunsLastParams{Kinds: all.Kinds(), Databases: all.Names()})
	if err != nil {
		return nil, nil, fmt.Errorf("read last runs: %w", err)
	}
	alive, err := all.Jobs().Queries().ClientsAlive(ctx, all.Config.Jobs.Silence.Seconds())
	if err != nil {
		return nil, nil, fmt.Errorf("read workers: %w", err)
	}
	return runs, alive, nil
}

// newJobState fills in what the last run tells.
func newJobState(job riverjobs.Job, database string, runs []dbsqlc.RunsLastRow, alive []dbsqlc.ClientsAliveRow, paused string) JobState {
	state := JobState{Kind: job.Kind, Queue: job.Queue, Database: database, Schedule: job.Schedule, Paused: paused != "", Job: job}
	for _, run := range runs {
		if run.Kind == job.Kind && run.Database == database {
			state.LastRun, state.LastOutcome, state.LastError = &run.StartedAt, run.Outcome, lastError(run)
			state.Running, state.lastEnded = running(run, alive), run.EndedAt
			state.turnedBack = turnedBack(run)
		}
	}
	return state
}

// running is a run that has not ended and whose worker lives.
func running(run dbsqlc.RunsLastRow, alive []dbsqlc.ClientsAliveRow) *runningPass {
	lives := slices.ContainsFunc(alive, func(c dbsqlc.ClientsAliveRow) bool { return c.ClientID == run.Holder })
	if run.EndedAt != nil || !lives {
		return nil
	}
	return &runningPass{RunID: run.ID, Holder: run.Holder, StartedAt: run.StartedAt, Stats: run.Stats}
}

// lastError is why a run failed or, where it went through, the first thing that it met in single tables:
// a reader of a growing backlog wants to see that, too.
func lastError(run dbsqlc.RunsLastRow) *string {
	if run.Error != nil {
		return run.Error
	}
	var stats loosefk.Stats
	if err := json.Unmarshal(run.Stats, &stats); err != nil || len(stats.Errors) == 0 {
		return nil
	}
	text := words.ErrorText(stats.Errors[0])
	if more := len(stats.Errors) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return &text
}
