package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/riverqueue/river"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
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

func findObstacles(ctx context.Context, all *connections, job riverjobs.Job, db database.Database, alive []dbsqlc.ClientsAliveRow) (obstacles, error) {
	var found obstacles
	var err error
	if found.awake, err = foreignAwake(ctx, db, job.Kind); err != nil {
		return found, err
	}
	spent := false
	if job.LimitedByTick {
		if spent, err = riverjobs.TickSpent(ctx, all.jobs(), job.Kind, db.Name); err != nil {
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
		if found.stalled, err = riverjobs.Stalled(ctx, all.jobs(), job.Kind, db.Name); err != nil {
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
			len(outdated), counted(len(alive), "worker"), outdated[0])
	}
	return found, nil
}

// waitClass is the sort of a reason to wait: few words, for metrics and alerts, where the reason itself is for people.
type waitClass string

// The sorts, beside those of a pass itself. A database that cannot be reached has none: it shows as such.
const (
	waitPaused     waitClass = "paused"
	waitLease      waitClass = "lease"
	waitDefinition waitClass = "definition"
	waitGeneration waitClass = "generation"
	waitDeferred   waitClass = "deferred"
	waitTick       waitClass = "tick"
	waitWorker     waitClass = "worker"
	waitAwakeLock  waitClass = "awake_lock"
	waitPoll       waitClass = "poll"
)

// waitClasses are all sorts.
func waitClasses() []waitClass {
	return []waitClass{
		waitPaused, waitClass(pace.WaitReplica), waitClass(pace.WaitLock), waitClass(pace.WaitBackOff),
		waitLease, waitDefinition, waitGeneration, waitDeferred, waitTick, waitWorker, waitAwakeLock, waitPoll,
	}
}

// explain fills WaitingFor from what else the document knows. A pass at work waits for what it says itself, if anything.
func (s *jobState) explain(document statusDocument) {
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

func (s *jobState) reason(document statusDocument) (string, waitClass) {
	if s.job.Inserted() {
		return s.turnedBack, "" // The rows wait for the job that inserts it.
	}
	if s.obstacles.stopped {
		return s.obstacles.outdated, waitGeneration
	}
	for _, l := range document.Leases {
		if l.Key == s.job.LeaseKey(s.Database) {
			return fmt.Sprintf("lease held by %s until %s", l.Holder, l.ExpiresAt.UTC().Format(time.RFC3339)), waitLease
		}
	}
	var pending bool
	for _, t := range document.DeletionTables {
		if t.Database != s.Database || t.Table != s.job.DeletionTable {
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

// activity says by kind what the worker is at, while so much waits for each.
func activity(ctx context.Context, all *bound, backlog map[string]int64) (map[string]string, error) {
	document, err := readStatus(ctx, all.connections, all.recordedParents)
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

func (s *jobState) activity(backlog int64) string {
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
		return "tries again, after: " + text(s.LastError)
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
func (t deletionTable) obstacle() (reason string, class waitClass) {
	switch {
	case len(t.Undefined) > 0:
		return "a definition for tombstones of " + listed(t.Undefined), waitDefinition
	case t.Groups != nil && t.Groups.Period == 0 && t.Groups.Adjourned > 0:
		return "a period of 1 to 90 days in application_settings.deletion_adjourned_period", waitDefinition
	case t.Deferred > 0 && t.Deferred == t.Pending:
		reason = counted(t.Deferred, t.unit()) + " put off"
		if t.DeferredUntil != nil {
			reason += " until " + t.DeferredUntil.Format(time.RFC3339)
		}
		if t.DeferredReason != "" {
			reason += ", after: " + text(&t.DeferredReason)
		}
		return reason, waitDeferred
	}
	return "", ""
}

// pausedQueue says who paused a queue, since when and why, if that is known, or "" where it is not
// paused.
func pausedQueue(ctx context.Context, all *connections, queue string) (string, error) {
	client, err := all.riverClient()
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
	if note := noteOf(state); note != nil {
		return note.String(), nil
	}
	return "paused since " + state.PausedAt.UTC().Format(time.RFC3339), nil
}
