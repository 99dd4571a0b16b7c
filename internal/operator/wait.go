package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/component"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/installation"
	"sexton/internal/pace"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

// The classes of reasons to wait, for metrics and alerts, beside those of a pass and of a backlog. A database that cannot be reached has
// none: it shows as such.
const (
	waitPaused     pace.WaitClass = "paused"
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
		waitPaused, pace.WaitReplica, pace.WaitLock, pace.WaitBackOff, waitLease, component.WaitDefinition, waitGeneration, component.WaitDeferred,
		waitTick, waitWorker, waitAwakeLock, waitPoll,
	}
}

// explain fills in what a job waits for. A pass at work waits for what it says itself, if anything.
func (k *shared) explain(ctx context.Context, all *installation.Connections, s *JobState, tables []component.Backlog) error {
	reason, class := k.pauses[s.Queue], waitPaused
	var err error
	switch {
	case reason != "":
	case all.Down[s.Database] != nil:
		reason, class = "its database: "+all.Down[s.Database].Error(), ""
	case s.Running != nil:
		reason, class = s.Running.waitingFor()
	case s.Job.Inserted():
		reason, class = s.turnedBack, "" // The rows wait for the job that inserts it.
	default:
		reason, class, err = k.obstacle(ctx, all, s, tables)
	}
	if reason != "" {
		s.WaitingFor, s.class = &reason, class
	}
	return err
}

// obstacle finds what keeps a scheduled job from its work: first what stops it, last what only delays it.
func (k *shared) obstacle(
	ctx context.Context, all *installation.Connections, s *JobState, tables []component.Backlog,
) (reason string, class pace.WaitClass, err error) {
	outdated, stopped := k.outdated(s.Job.LeaseKey(s.Database))
	if stopped {
		return outdated, waitGeneration, nil
	}
	for _, l := range k.leases {
		if l.Key == s.Job.LeaseKey(s.Database) {
			return fmt.Sprintf("lease held by %s until %s", l.Holder, l.ExpiresAt.UTC().Format(time.RFC3339)), waitLease, nil
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
		return held, component.WaitDefinition, nil
	}
	if pending && s.Job.LimitedByTick {
		spent, err := riverjobs.TickSpent(ctx, all.Jobs(), s.Kind, s.Database)
		if spent || err != nil {
			return "the next tick of its schedule" + nextText(s.Job) + ": the limits of this one are used up", waitTick, err
		}
	}
	if pending && len(k.workers) == 0 {
		return "a worker: none is running (start one with sexton run)", waitWorker, nil
	}
	if job, err := stalled(ctx, all.Jobs(), s.Kind, s.Database); job != "" || err != nil {
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

// stalled says which job of a kind with a schedule has been given to no worker, or to one that does not work on it, or "".
func stalled(ctx context.Context, jobs database.Database, kind, name string) (string, error) {
	found, err := jobs.Queries().JobStalled(ctx, dbsqlc.JobStalledParams{Kind: kind, Database: name})
	if err != nil || len(found) == 0 {
		return "", err
	}
	job, since := found[0], found[0].Since.UTC().Format(time.RFC3339)
	if job.Running {
		return fmt.Sprintf("worker %s: job %d counts as running there since %s, and has no run", job.Client, job.ID, since), nil
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

// outdated says which workers have read other definitions than the installed ones; stopped reports that all have.
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
	return fmt.Sprintf("the installed definitions: %d of %s read others (%s); have those read there, or run sexton triggers install",
		len(clients), words.Counted(len(k.workers), "worker"), clients[0]), len(clients) == len(k.workers)
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
			return "the next poll of " + client.ClientID + ": notifications do not reach it (give listen_url a direct connection)"
		}
	}
	return ""
}

// foreignAwake says which sessions keep a kind's awake lock from the workers of a database, or "" where none
// does. In exclusive mode it keeps writers from waking workers, so that work waits until the next look.
func foreignAwake(ctx context.Context, db database.Database, kind string) (string, error) {
	key1, key2 := triggers.AwakeKey(db.Names.Jobs, kind)
	rows, err := db.Pool.Query(ctx, sqlText("awake_holders"), int64(uint32(key1)), int64(uint32(key2)))
	if err != nil {
		return "", fmt.Errorf("look which sessions hold the awake lock of %s: %w", kind, err)
	}
	holders, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(holders) == 0 {
		return "", err
	}
	return "awake lock held by " + words.Listed(holders), nil
}
