package operator

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/dbsqlc"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	riverjobs "sexton/river_jobs"
)

const (
	// lateAfter is how long after the third tick without a success a job is late. The alert SextonNoSuccess waits as long.
	lateAfter = 5 * time.Minute
	// lateFor is for how long a look for late jobs is shared: a probe may come every second.
	lateFor     = 10 * time.Second
	lateTimeout = 2 * time.Second
)

// lateJobs say by database which jobs had no success for too long, in any process. Paused ones are not late, nor jobs that have
// not run yet.
func lateJobs(ctx context.Context, all *installation.Connections, started, now time.Time) (map[string][]string, error) {
	runs, err := readRuns(ctx, all)
	if err != nil {
		return nil, err
	}
	known, err := readSuccesses(ctx, all)
	if err != nil {
		return nil, err
	}
	paused, err := installation.Pauses(ctx, all)
	if err != nil {
		return nil, err
	}
	late := map[string][]string{}
	for _, job := range riverjobs.Jobs(all.Config) {
		for _, name := range job.Databases {
			for _, last := range runs {
				if last.Kind != job.Kind || last.Database != name || paused[job.Queue] != "" {
					continue
				}
				if reason := lateness(job, last, known.last(job.Kind, name), started, now); reason != "" {
					late[name] = append(late[name], reason)
				}
			}
		}
	}
	return late, nil
}

// lateness says that a job is late, given its last run and when the last success ended, in seconds of the epoch and 0 where there is none.
func lateness(job riverjobs.Job, last dbsqlc.RunsLastRow, success float64, started, now time.Time) string {
	due, scheduled := successDue(job, last.Database, success)
	switch {
	case success == 0 && !job.Inserted():
		failed := last.Outcome != nil && *last.Outcome == string(jobrun.Failed)
		if failed && now.Sub(started) > lateAfter { // A new worker may well mend it with its first run.
			return job.Kind + " has had no success yet; its last run failed"
		}
	case scheduled && now.After(time.Unix(int64(due), 0).Add(lateAfter)):
		return fmt.Sprintf("%s had its last success at %s, more than three ticks of its schedule ago",
			job.Kind, time.Unix(int64(success), 0).UTC().Format(time.RFC3339))
	}
	return ""
}
