package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/robfig/cron/v3"

	"sexton/internal/batch"
	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
	"sexton/internal/problem"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

// JobState is the state of one kind in one database.
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
	// WaitingFor is the reason for which pending work is not processed, whether or not a
	// run is in progress. It is null if nothing blocks the work.
	WaitingFor *string `json:"waiting_for"`
	// Running is the run in progress, or null.
	Running *Pass `json:"running"`
	// Latency is the cleanup time of the last runs. It is null if they cleaned up
	// nothing, as for kinds that insert jobs of another kind.
	Latency *Latency `json:"clean_up_latency"`

	Job riverjobs.Job `json:"-"`
	// LastEnded is the end of the last run, or nil while it is running. Runs without
	// changes share one row, which began with the first of them.
	LastEnded *time.Time `json:"-"`
	// ending is the outcome of the last run for people.
	ending string
	// retryReason is the lock or other obstacle that the last run waited for, if it could
	// not work but did not fail.
	retryReason string
	// readOnly describes the database that accepts no writes, its own or the jobs
	// database, and the reason. It is empty if both accept writes.
	readOnly string
	// class is the class of WaitingFor.
	class pace.WaitClass
}

// Notable reports whether an operator should look at what the job waits for. It is false
// for waits that end by themselves (deferred rows, the limits of a tick, a backoff) and
// for failed rows, which the list of failures shows.
func (s *JobState) Notable() bool {
	return s.WaitingFor != nil && s.class != components.WaitDeferred && s.class != waitTick &&
		s.class != pace.WaitBackOff
}

// Ending returns the outcome of the last run for people.
func (s *JobState) Ending() string { return s.ending }

// Pass is a run in progress. Its statistics are at most half a second old.
type Pass struct {
	RunID     int64           `json:"run_id"`
	Holder    string          `json:"holder"`
	StartedAt time.Time       `json:"started_at"`
	Stats     json.RawMessage `json:"stats"`
	// Rows is the number of rows that the run has changed.
	Rows          int64 `json:"rows"`
	RowsPerSecond int64 `json:"rows_per_second"`
	// SecondsLeft is the estimated time until the backlog is done, or null if it is
	// unknown.
	SecondsLeft *float64 `json:"seconds_left"`
	Pace        Pace     `json:"-"`
}

// Estimate sets the speed and the remaining time of the run.
func (p *Pass) Estimate(left components.Backlog) {
	p.Pace = PaceOf(*p, left, components.Unit(left.Table), time.Now())
	p.Rows, p.RowsPerSecond = p.Pace.Digest.Rows, p.Pace.RowsPerSecond
	if p.Pace.Left > 0 {
		p.SecondsLeft = new(p.Pace.Left.Seconds())
	}
}

// Duty returns the share of time that the run works, or 0 if it reports none.
func (p *Pass) Duty() pace.Duty {
	var duty pace.Duty
	if json.Unmarshal(p.Stats, &duty) != nil {
		return pace.Duty{}
	}
	return duty
}

// runStats are the statistics that every kind may have.
type runStats struct {
	WaitingFor   string              `json:"waiting_for"`
	WaitingClass pace.WaitClass      `json:"waiting_class"`
	Refused      bool                `json:"refused"`
	Errors       []batch.FaultCounts `json:"errors"`
}

// parseRunStats decodes statistics. It returns the zero value on error.
func parseRunStats(stats json.RawMessage) (t runStats) {
	if json.Unmarshal(stats, &t) != nil {
		return runStats{}
	}
	return t
}

// waitingFor returns what the run waits for and the class of that wait, or "" if the run
// does not wait.
func (p *Pass) waitingFor() (reason string, class pace.WaitClass) {
	t := parseRunStats(p.Stats)
	if t.WaitingFor != "" && t.WaitingClass == "" {
		// Most kinds report no class. Their runs wait for locks.
		t.WaitingClass = pace.WaitLock
	}
	return t.WaitingFor, t.WaitingClass
}

// job returns the state of a job, which it derives from the job's last run.
func (k *shared) job(job riverjobs.Job, database string) JobState {
	state := JobState{
		Kind: job.Kind, Queue: job.Queue, Database: database, Schedule: job.Schedule,
		Paused: k.pauses[job.Queue] != "", Job: job,
	}
	for _, run := range k.runs {
		if run.Kind != job.Kind || run.Database != database {
			continue
		}
		state.LastRun, state.LastOutcome, state.LastError, state.LastEnded = &run.StartedAt, run.Outcome,
			lastError(run), run.EndedAt
		state.retryReason, state.ending = retryReason(run), Ending(run.Outcome, run.Stats)
		if run.EndedAt == nil && slices.ContainsFunc(k.workers,
			func(c dbsqlc.ClientsAliveRow) bool { return c.ClientID == run.Holder }) {
			state.Running = &Pass{RunID: run.ID, Holder: run.Holder, StartedAt: run.StartedAt, Stats: run.Stats}
		}
	}
	return state
}

// lastError returns the error of a failed run. For a successful run, it returns the first
// error in a single table, which may explain a growing backlog.
func lastError(run dbsqlc.RunsLastRow) *string {
	if run.Error != nil {
		return run.Error
	}
	met := parseRunStats(run.Stats).Errors
	if len(met) == 0 {
		return nil
	}
	text := met[0].Text()
	if more := len(met) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return &text
}

// retryReason returns the obstacle that a run had to wait for, such as an unavailable
// object store.
func retryReason(run dbsqlc.RunsLastRow) string {
	stats := parseRunStats(run.Stats)
	switch {
	case run.Outcome == nil:
	case *run.Outcome == string(jobrun.Failed) && stats.Refused:
		return "a fix for the error of its last run; it retries automatically"
	case *run.Outcome == string(jobrun.Skipped) && stats.WaitingFor != "":
		return "its next attempt, after: " + stats.WaitingFor
	}
	return ""
}

// noteTicks sets the last and the next tick of each state with a schedule.
func noteTicks(ctx context.Context, all *installation.Connections, states []JobState) error {
	ticks, err := riverjobs.Ticks(all.Config)
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

// nextTick returns the next time of a schedule, or nil if there is none. A schedule of
// intervals counts from its last tick.
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

// These are the wait classes of jobs without a run in progress. Runs and backlogs have
// further classes. Metrics and alerts use all of them. An unreachable database has no
// class: sexton_up reports it.
const (
	waitPaused     pace.WaitClass = "paused"
	waitReadOnly   pace.WaitClass = "read_only"
	waitLease      pace.WaitClass = "lease"
	waitGeneration pace.WaitClass = "generation"
	waitTick       pace.WaitClass = "tick"
	waitWorker     pace.WaitClass = "worker"
	waitAwakeLock  pace.WaitClass = "awake_lock"
	waitPoll       pace.WaitClass = "poll"
)

// WaitClasses returns all wait classes.
func WaitClasses() []pace.WaitClass {
	return []pace.WaitClass{
		waitPaused, waitReadOnly, pace.WaitReplica, pace.WaitLock, pace.WaitBackOff, waitLease,
		components.WaitDefinition,
		waitGeneration, components.WaitDeferred, waitTick, waitWorker, waitAwakeLock, waitPoll,
	}
}

// explain sets what a job waits for. A run in progress reports its own reason.
func (k *shared) explain(ctx context.Context, all *installation.Connections, s *JobState,
	tables []components.Backlog,
) error {
	reason, class := k.pauses[s.Queue], waitPaused
	var err error
	switch {
	case reason != "":
	case all.Down[s.Database] != nil:
		reason, class = "its database: "+all.Down[s.Database].Error(), ""
	case s.readOnly != "":
		reason, class = s.readOnly, waitReadOnly
	case s.Running != nil:
		reason, class = s.Running.waitingFor()
	case s.retryReason != "" && s.Job.Inserted():
		// The rows wait until another kind inserts the job, so the wait has no class.
		reason, class = s.retryReason, ""
	case s.Job.Inserted():
		reason, err = stalled(ctx, all.Jobs(), all.Config.Jobs.Silence, s.Job, s.Database)
		class = waitWorker
	default:
		reason, class, err = k.obstacle(ctx, all, s, tables)
	}
	if reason != "" {
		s.WaitingFor, s.class = &reason, class
	}
	return err
}

// obstacle returns what prevents a scheduled job from running, and otherwise what delays
// it.
func (k *shared) obstacle(
	ctx context.Context, all *installation.Connections, s *JobState, tables []components.Backlog,
) (reason string, class pace.WaitClass, err error) {
	outdated, stopped := k.outdated(s.Job.LeaseKey(s.Database))
	if stopped {
		return outdated, waitGeneration, nil
	}
	for _, l := range k.leases {
		if l.Key == s.Job.LeaseKey(s.Database) {
			return fmt.Sprintf("lease held by %s until %s", l.Holder, l.ExpiresAt.UTC().Format(time.RFC3339)),
				waitLease, nil
		}
	}
	pending := false
	for _, t := range tables {
		if t.Database == s.Database && t.Table == s.Job.DeletionTable {
			pending = pending || t.Pending > 0
			if reason, class := t.Obstacle(); reason != "" {
				return reason, class, nil
			}
		}
	}
	if held := k.held(s.Kind, s.Database); held != "" {
		return held, components.WaitDefinition, nil
	}
	if pending && s.Job.LimitedByTick {
		spent, err := riverjobs.TickSpent(ctx, all.Jobs(), s.Kind, s.Database)
		if spent || err != nil {
			return "the next tick of its schedule" + nextText(s.Job) + ": this run has reached its limits", waitTick,
				err
		}
	}
	if pending && len(k.workers) == 0 {
		return "a worker: none is running (start one with sexton run)", waitWorker, nil
	}
	if job, err := stalled(ctx, all.Jobs(), all.Config.Jobs.Silence, s.Job, s.Database); job != "" || err != nil {
		return job, waitWorker, err
	}
	if outdated != "" {
		return outdated, waitGeneration, nil
	}
	if awake, err := foreignAwake(ctx, all.Database(s.Database), s.Kind); awake != "" || err != nil {
		return awake, waitAwakeLock, err
	}
	return k.polling(s.Kind, s.Database), waitPoll, nil
}

// stalled describes a job that no worker has fetched, or whose worker does not run it. It
// returns "" if the kind has no such job.
func stalled(ctx context.Context, jobs database.Database, silence time.Duration, of riverjobs.Job,
	name string,
) (string, error) {
	found, err := jobs.Queries().JobStalled(ctx, dbsqlc.JobStalledParams{
		Kind: of.Kind, Database: name, SilenceSeconds: silence.Seconds(), Several: of.Inserted(),
	})
	if err != nil || len(found) == 0 {
		return "", err
	}
	job, since := found[0], found[0].Since.UTC().Format(time.RFC3339)
	if job.Running {
		return fmt.Sprintf("worker %s: its job %d has been marked as running since %s, but has no run", job.Client, job.ID,
			since), nil
	}
	return fmt.Sprintf("a worker: none has fetched job %d, available since %s", job.ID, since), nil
}

func nextText(job riverjobs.Job) string {
	cron, err := job.Cron.Parse()
	if err != nil {
		return ""
	}
	return " at " + cron.Next(time.Now().UTC()).Format(time.RFC3339)
}

// outdated describes the workers that have loaded other definitions than the installed
// ones. stopped reports that these are all workers.
func (k *shared) outdated(lease string) (reason string, stopped bool) {
	var clients []string
	for _, client := range k.workers {
		if slices.Contains(client.Outdated, lease) {
			clients = append(clients, client.ClientID)
		}
	}
	if len(clients) == 0 {
		return "", false
	}
	return fmt.Sprintf("the installed definitions: %d of %s loaded other definitions (%s); deploy the installed files there, or run sexton triggers install",
		len(clients), render.Counted(len(k.workers), "worker"), clients[0]), len(clients) == len(k.workers)
}

// held describes the difference between the configuration and the database that a worker
// has reported.
func (k *shared) held(kind, database string) string {
	var reasons []string
	for _, client := range slices.Backward(k.workers) {
		for _, line := range client.Held {
			if reason, is := strings.CutPrefix(line, kind+"/"+database+": "); is {
				reasons = append(reasons, reason)
			}
		}
		if len(reasons) > 0 {
			break
		}
	}
	switch len(reasons) {
	case 0:
		return ""
	case 1:
		return "a configuration that matches the database: " + reasons[0]
	default:
		return fmt.Sprintf("a configuration that matches the database: %s (and %d more)", reasons[0], len(reasons)-1)
	}
}

// polling describes a worker that polls because notifications do not reach it.
func (k *shared) polling(kind, database string) string {
	for _, client := range slices.Backward(k.workers) {
		if slices.Contains(client.Deaf, kind+"/"+database) {
			return "the next poll of " + client.ClientID +
				": notifications do not reach it (give listen_url a direct connection)"
		}
	}
	return ""
}

// foreignAwake names the sessions that hold the awake lock of a kind instead of a worker,
// or returns "". In exclusive mode, the lock prevents commits from waking workers, so
// pending work waits for the next poll.
func foreignAwake(ctx context.Context, db database.Database, kind string) (string, error) {
	key1, key2 := triggers.AwakeKey(kind)
	rows, _ := db.Pool.Query(ctx, sqlText("awake_holders"), int64(uint32(key1)), int64(uint32(key2)))
	holders, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(holders) == 0 {
		return "", problem.Doing(err, "read which sessions hold the awake lock of %s", kind)
	}
	return "awake lock held by " + render.Listed(holders), nil
}
