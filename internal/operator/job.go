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

// JobState describes one kind in one database.
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
	// WaitingFor says why nothing happens, whether there is a pass or not, although
	// something is pending; null where nothing stands in the way.
	WaitingFor *string `json:"waiting_for"`
	// Running is the pass that is at work now; null where none is.
	Running *Pass `json:"running"`
	// Latency sums up what the last runs have finished; null where that is nothing, as of
	// kinds that pass their work on.
	Latency *Latency `json:"clean_up_latency"`

	Job riverjobs.Job `json:"-"`
	// LastEnded is when the last run ended; nil while it goes on. Runs without any change
	// share a row that began with the first.
	LastEnded *time.Time `json:"-"`
	// ending is that of the last run for people.
	ending string
	// turnedBack is why the last pass could not do its work then, where that was no
	// failure.
	turnedBack string
	// readOnly names the database that accepts no writes, its own or the jobs database,
	// and why; empty if both accept them.
	readOnly string
	// class is the sort of what it waits for.
	class pace.WaitClass
}

// Notable reports whether it waits for something that a person should look at. What is
// put off, and what the limits of a tick leave to the next, goes on by itself; rows that
// failed stand among the failures.
func (s *JobState) Notable() bool {
	return s.WaitingFor != nil && s.class != components.WaitDeferred && s.class != waitTick &&
		s.class != pace.WaitBackOff
}

// Ending is how the last run ended, for people.
func (s *JobState) Ending() string { return s.ending }

// Pass is a pass that has not ended, with its statistics of half a second ago at most.
type Pass struct {
	RunID     int64           `json:"run_id"`
	Holder    string          `json:"holder"`
	StartedAt time.Time       `json:"started_at"`
	Stats     json.RawMessage `json:"stats"`
	// Rows counts the rows that the pass has changed.
	Rows          int64 `json:"rows"`
	RowsPerSecond int64 `json:"rows_per_second"`
	// SecondsLeft is how long the backlog will take at this rate; null where that cannot
	// be told.
	SecondsLeft *float64 `json:"seconds_left"`
	Pace        Pace     `json:"-"`
}

// Estimate fills in how fast the pass works off a backlog.
func (p *Pass) Estimate(left components.Backlog) {
	p.Pace = PaceOf(*p, left, components.Unit(left.Table), time.Now())
	p.Rows, p.RowsPerSecond = p.Pace.Digest.Rows, p.Pace.RowsPerSecond
	if p.Pace.Left > 0 {
		p.SecondsLeft = new(p.Pace.Left.Seconds())
	}
}

// Duty is the share of its time at which the pass works now, 0 where it tells none.
func (p *Pass) Duty() pace.Duty {
	var told pace.Duty
	if json.Unmarshal(p.Stats, &told) != nil {
		return pace.Duty{}
	}
	return told
}

// told has the parts of the statistics that every kind may have.
type told struct {
	WaitingFor   string              `json:"waiting_for"`
	WaitingClass pace.WaitClass      `json:"waiting_class"`
	Refused      bool                `json:"refused"`
	Errors       []batch.FaultCounts `json:"errors"`
}

// toldBy decodes statistics; what is none says nothing.
func toldBy(stats json.RawMessage) (t told) {
	if json.Unmarshal(stats, &t) != nil {
		return told{}
	}
	return t
}

// waitingFor names the reason for which the pass waits and its class, or "" while it
// works.
func (p *Pass) waitingFor() (reason string, class pace.WaitClass) {
	t := toldBy(p.Stats)
	if t.WaitingFor != "" && t.WaitingClass == "" {
		t.WaitingClass = pace.WaitLock // Most kinds do not tell the sorts apart.
	}
	return t.WaitingFor, t.WaitingClass
}

// job fills in what the last run reports.
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
		state.turnedBack, state.ending = turnedBack(run), Ending(run.Outcome, run.Stats)
		if run.EndedAt == nil && slices.ContainsFunc(k.workers,
			func(c dbsqlc.ClientsAliveRow) bool { return c.ClientID == run.Holder }) {
			state.Running = &Pass{RunID: run.ID, Holder: run.Holder, StartedAt: run.StartedAt, Stats: run.Stats}
		}
	}
	return state
}

// lastError is why a run failed or, where it went through, the first thing that it met in
// single tables: a reader of a growing backlog wants to see that, too.
func lastError(run dbsqlc.RunsLastRow) *string {
	if run.Error != nil {
		return run.Error
	}
	met := toldBy(run.Stats).Errors
	if len(met) == 0 {
		return nil
	}
	text := met[0].Text()
	if more := len(met) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return &text
}

// turnedBack names the thing that a run had to wait for: a store, say, that was not
// available.
func turnedBack(run dbsqlc.RunsLastRow) string {
	stats := toldBy(run.Stats)
	switch {
	case run.Outcome == nil:
	case *run.Outcome == string(jobrun.Failed) && stats.Refused:
		return "a fix for the error of its last run; it tries again by itself"
	case *run.Outcome == string(jobrun.Skipped) && stats.WaitingFor != "":
		return "its next attempt, after: " + stats.WaitingFor
	}
	return ""
}

// noteTicks fills in the last and the next tick of each state that has a schedule.
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

// nextTick is nil where a schedule never comes. One of intervals counts from its last
// tick.
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

// The classes of reasons to wait, for metrics and alerts, beside those of a pass and of a
// backlog. A database that cannot be reached has none: it shows as such.
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

// WaitClasses are all of them.
func WaitClasses() []pace.WaitClass {
	return []pace.WaitClass{
		waitPaused, waitReadOnly, pace.WaitReplica, pace.WaitLock, pace.WaitBackOff, waitLease,
		components.WaitDefinition,
		waitGeneration, components.WaitDeferred, waitTick, waitWorker, waitAwakeLock, waitPoll,
	}
}

// explain fills in what a job waits for. A pass at work waits for what it says itself, if
// anything.
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
	case s.turnedBack != "" && s.Job.Inserted():
		reason, class = s.turnedBack, "" // The rows wait for the job that inserts it.
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

// obstacle finds what keeps a scheduled job from its work: first what stops it, last what
// only delays it.
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
			return "the next tick of its schedule" + nextText(s.Job) + ": the limits of this one are used up", waitTick,
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
	return k.deaf(s.Kind, s.Database), waitPoll, nil
}

// stalled says which job of a kind has been given to no worker, or to one that does not
// work on it, or "".
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

// outdated says which workers have read other definitions than the installed ones;
// stopped reports that all have.
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
	return fmt.Sprintf("the installed definitions: %d of %s read others (%s); deploy the installed files there, or run sexton triggers install",
		len(clients), render.Counted(len(k.workers), "worker"), clients[0]), len(clients) == len(k.workers)
}

// held says what of the configuration does not fit the database, as workers found it.
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
		return "a configuration that fits the database: " + reasons[0]
	default:
		return fmt.Sprintf("a configuration that fits the database: %s (and %d more)", reasons[0], len(reasons)-1)
	}
}

// deaf says which worker polls, because notifications do not reach it.
func (k *shared) deaf(kind, database string) string {
	for _, client := range slices.Backward(k.workers) {
		if slices.Contains(client.Deaf, kind+"/"+database) {
			return "the next poll of " + client.ClientID +
				": notifications do not reach it (give listen_url a direct connection)"
		}
	}
	return ""
}

// foreignAwake says which sessions keep a kind's awake lock from the workers of a
// database, or "" where none does. In exclusive mode it keeps writers from waking
// workers, so that work waits until the next look.
func foreignAwake(ctx context.Context, db database.Database, kind string) (string, error) {
	key1, key2 := triggers.AwakeKey(kind)
	rows, _ := db.Pool.Query(ctx, sqlText("awake_holders"), int64(uint32(key1)), int64(uint32(key2)))
	holders, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(holders) == 0 {
		return "", problem.Doing(err, "read which sessions hold the awake lock of %s", kind)
	}
	return "awake lock held by " + render.Listed(holders), nil
}
