package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/riverqueue/river"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// obstacles are what may keep a job from its work, beside its backlog and its lease. Each is empty where
// there is nothing of the kind.
type obstacles struct {
	// down says why the database cannot be reached.
	down string
	// paused says who paused the job's queue.
	paused string
	// spent says that the limits of this tick are used up.
	spent string
	// stalled says which job no worker has fetched, or works on.
	stalled string
	// unmanned says that no worker lives.
	unmanned string
	// awake says who else holds the awake lock.
	awake string
	// held says what of the configuration does not fit the database, as a worker found it.
	held string
	// outdated says which workers have read other definitions than the installed ones; stopped, that all have.
	outdated string
	stopped  bool
	// deaf says which workers poll, because notifications do not reach them.
	deaf string
}

func findObstacles(
	ctx context.Context, all *installation.Connections, job riverjobs.Job, db database.Database, alive []dbsqlc.ClientsAliveRow,
) (obstacles, error) {
	var found obstacles
	var err error
	if found.awake, err = foreignAwake(ctx, db, job.Kind); err != nil {
		return found, err
	}
	spent := false
	if job.LimitedByTick {
		if spent, err = riverjobs.TickSpent(ctx, all.Jobs(), job.Kind, db.Name); err != nil {
			return found, err
		}
	}
	if spent {
		found.spent = "the next tick of its schedule: the limits of this one are used up"
		if cron, err := job.Cron.Parse(); err == nil {
			found.spent = fmt.Sprintf("the next tick of its schedule at %s: the limits of this one are used up",
				cron.Next(time.Now().UTC()).Format(time.RFC3339))
		}
	}
	if !job.Inserted() {
		if found.stalled, err = riverjobs.Stalled(ctx, all.Jobs(), job.Kind, db.Name); err != nil {
			return found, err
		}
	}
	if len(alive) == 0 {
		found.unmanned = "a worker: none is running (start one with sexton run)"
	}
	var outdated []string
	for _, client := range alive {
		if !job.Inserted() && slices.Contains(client.Outdated, job.LeaseKey(db.Name)) {
			outdated = append(outdated, client.ClientID)
		}
		found.hold(client.Held, job.Kind, db.Name)
		if slices.Contains(client.Deaf, job.Kind+"/"+db.Name) {
			found.deaf = "the next poll of " + client.ClientID + ": notifications do not reach it (give listen_url a direct connection)"
		}
	}
	if len(outdated) > 0 {
		found.stopped = len(outdated) == len(alive)
		found.outdated = fmt.Sprintf("the installed definitions: %d of %s read others (%s); have those read there, or run sexton triggers install",
			len(outdated), words.Counted(len(alive), "worker"), outdated[0])
	}
	return found, nil
}

// WaitClass is the sort of a reason to wait: few words, for metrics and alerts, where the reason itself is for people.
type WaitClass string

// The sorts, beside those of a pass itself. A database that cannot be reached has none: it shows as such.
const (
	waitPaused     WaitClass = "paused"
	waitLease      WaitClass = "lease"
	waitDefinition WaitClass = "definition"
	waitGeneration WaitClass = "generation"
	waitDeferred   WaitClass = "deferred"
	waitTick       WaitClass = "tick"
	waitWorker     WaitClass = "worker"
	waitAwakeLock  WaitClass = "awake_lock"
	waitPoll       WaitClass = "poll"
)

// WaitClasses are all sorts.
func WaitClasses() []WaitClass {
	return []WaitClass{
		waitPaused, WaitClass(pace.WaitReplica), WaitClass(pace.WaitLock), WaitClass(pace.WaitBackOff),
		waitLease, waitDefinition, waitGeneration, waitDeferred, waitTick, waitWorker, waitAwakeLock, waitPoll,
	}
}

// explain fills WaitingFor from what else the document knows. A pass at work waits for what it says itself, if anything.
func (s *JobState) explain(document statusDocument) {
	reason, class := s.obstacles.paused, waitPaused
	switch {
	case reason != "":
	case s.obstacles.down != "":
		reason, class = "its database: "+s.obstacles.down, ""
	case s.Running != nil:
		reason, class = s.Running.waitingFor()
	default:
		reason, class = s.reason(document)
	}
	if reason != "" {
		s.WaitingFor, s.class = &reason, class
	}
}

func (s *JobState) reason(document statusDocument) (string, WaitClass) {
	if s.Job.Inserted() {
		return s.turnedBack, "" // The rows wait for the job that inserts it.
	}
	if s.obstacles.stopped {
		return s.obstacles.outdated, waitGeneration
	}
	for _, l := range document.Leases {
		if l.Key == s.Job.LeaseKey(s.Database) {
			return fmt.Sprintf("lease held by %s until %s", l.Holder, l.ExpiresAt.UTC().Format(time.RFC3339)), waitLease
		}
	}
	var pending bool
	for _, t := range document.DeletionTables {
		if t.Database != s.Database || t.Table != s.Job.DeletionTable {
			continue
		}
		pending = pending || t.Pending > 0
		if reason, class := t.obstacle(); reason != "" {
			return reason, class
		}
	}
	if s.obstacles.held != "" {
		return s.obstacles.held, waitDefinition
	}
	if pending && s.obstacles.spent != "" {
		return s.obstacles.spent, waitTick
	}
	if pending && s.obstacles.unmanned != "" {
		return s.obstacles.unmanned, waitWorker
	}
	if s.obstacles.stalled != "" {
		return s.obstacles.stalled, waitWorker
	}
	if s.obstacles.outdated != "" {
		return s.obstacles.outdated, waitGeneration
	}
	// Last, as these only delay.
	if s.obstacles.awake != "" {
		return s.obstacles.awake, waitAwakeLock
	}
	return s.obstacles.deaf, waitPoll
}

// Activity says by kind what the worker is at, while so much waits for each.
func Activity(ctx context.Context, all *installation.Bound, backlog map[string]int64) (map[string]string, error) {
	document, err := readStatus(ctx, all.Connections, all.RecordedParents)
	if err != nil {
		return nil, err
	}
	said := map[string]string{}
	for _, job := range document.Jobs {
		part := job.activity(backlog[job.Kind])
		if before := said[job.Kind]; before != "" {
			part = before + "; " + part
		}
		said[job.Kind] = part
	}
	return said, nil
}

func (s *JobState) activity(backlog int64) string {
	switch {
	case s.Paused && s.WaitingFor != nil:
		return "is " + *s.WaitingFor
	case s.Running != nil && s.WaitingFor == nil:
		return fmt.Sprintf("works (run %d)", s.Running.RunID)
	case s.WaitingFor != nil:
		return "waits for " + *s.WaitingFor
	case backlog == 0:
		return "sleeps until a commit comes"
	case s.LastOutcome != nil && *s.LastOutcome == string(jobrun.Failed):
		return "tries again, after: " + words.Cell(s.LastError)
	default:
		return "begins its next run"
	}
}

// unit names its rows.
func (t deletionTable) unit() string {
	switch t.Table {
	case ghostQueue:
		return "user"
	case placeholderTable:
		return "placeholder user"
	case groupSchedules:
		return "group"
	case diffTable:
		return "diff"
	case removalTable:
		return "object"
	default:
		return "tombstone"
	}
}

// obstacle says what in the backlog itself keeps it from being worked off.
func (t deletionTable) obstacle() (reason string, class WaitClass) {
	switch {
	case len(t.Undefined) > 0:
		return "a definition for tombstones of " + words.Listed(t.Undefined), waitDefinition
	case t.Groups != nil && t.Groups.Period == 0 && t.Groups.Adjourned > 0:
		return "a period of 1 to 90 days in application_settings.deletion_adjourned_period", waitDefinition
	case t.Deferred > 0 && t.Deferred == t.Pending:
		reason = words.Counted(t.Deferred, t.unit()) + " put off"
		if t.DeferredUntil != nil {
			reason += " until " + t.DeferredUntil.Format(time.RFC3339)
		}
		if t.DeferredReason != "" {
			reason += ", after: " + words.Cell(&t.DeferredReason)
		}
		return reason, waitDeferred
	}
	return "", ""
}

// PausedQueue says who paused a queue, since when and why, if that is known, or "" where it is not
// paused.
func PausedQueue(ctx context.Context, all *installation.Connections, queue string) (string, error) {
	client, err := all.RiverClient()
	if err != nil {
		return "", err
	}
	state, err := client.QueueGet(ctx, queue)
	switch {
	case errors.Is(err, river.ErrNotFound):
		return "", nil // no worker has served it yet
	case err != nil:
		return "", fmt.Errorf("read queue %s: %w", queue, err)
	case state.PausedAt == nil:
		return "", nil
	}
	if note := installation.NoteOf(state); note != nil {
		return note.String(), nil
	}
	return "paused since " + state.PausedAt.UTC().Format(time.RFC3339), nil
}

// hold takes what a worker holds of a kind and database into the reason to wait.
func (o *obstacles) hold(held []string, kind, database string) {
	var reasons []string
	for _, line := range held {
		if reason, is := strings.CutPrefix(line, kind+"/"+database+": "); is {
			reasons = append(reasons, reason)
		}
	}
	if len(reasons) == 0 {
		return
	}
	o.held = "a configuration that fits the database: " + reasons[0]
	if more := len(reasons) - 1; more > 0 {
		o.held += fmt.Sprintf(" (and %d more)", more)
	}
}
