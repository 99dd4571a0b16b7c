package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/groupschedule"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/migrate"
	"sexton/internal/problem"
	"sexton/internal/web"
	riverjobs "sexton/river_jobs"
)

const (
	// pingTimeout is how long a reading waits for a database before it takes it for down.
	pingTimeout = time.Second
	// shownRuns are those among the last runsWindow of all that did something.
	shownRuns    = 15
	runsWindow   = 500
	shownChanges = 10
	shownGroups  = 50
	// failuresFor is for how long a look at failures is shared: it reads more than the
	// rest.
	failuresFor     = 10 * time.Second
	failuresTimeout = 5 * time.Second
)

// PageSource serves the page's readings and changes.
type PageSource struct {
	all   *installation.Bound
	noted *riverjobs.Bindings
	log   *slog.Logger
	// failures are read less often than the rest.
	failures  *web.Cached[Failures]
	latencies *Latencies
	kept      *web.CachedByKey[int64, *Kept]

	// undone are the last deletions that this process takes back or has taken back,
	// guarded by undoing.
	undoing  sync.Mutex
	undone   []*Undone
	stopUndo context.CancelFunc
}

// NewPageSource reads for the page of a worker.
func NewPageSource(all *installation.Bound, noted *riverjobs.Bindings, log *slog.Logger) *PageSource {
	s := &PageSource{all: all, noted: noted, log: log, latencies: NewLatencies(all.Connections)}
	s.failures = &web.Cached[Failures]{Read: s.readFailures, Timeout: failuresTimeout, Keep: failuresFor}
	s.kept = &web.CachedByKey[int64, *Kept]{Read: s.readKept, Timeout: keptTimeout, Keep: keptFor}
	return s
}

// Overview is the reading that the page shows, with what happened before it.
type Overview struct {
	Reading

	Failures Failures
	Runs     []dbsqlc.RunsRecentRow
	Changes  []database.Change
	// Groups are to be deleted, in the order in which they fall due.
	Groups []groupschedule.Group
	// Kept are deletions that can be taken back.
	Kept *Kept
}

// Overview reads everything, or nothing: half a page would look like one with nothing to
// show.
func (s *PageSource) Overview(ctx context.Context) (Overview, error) {
	all := reachable(ctx, s.all.Connections)
	if err := all.Down[all.Jobs().Name]; err != nil {
		return Overview{}, err
	}
	kept := make(chan *Kept, 1)
	go func() { kept <- s.kept.Get(ctx, 0) }() // It takes longest.
	reading, err := Read(ctx, Noted(all, s.noted))
	if err != nil {
		return Overview{}, err
	}
	if err := s.latencies.Note(ctx, reading.Jobs); err != nil {
		return Overview{}, err
	}
	o := Overview{Reading: reading, Failures: s.failures.Get(ctx)}
	if o.Runs, err = all.Jobs().Queries().RunsRecent(ctx, runsWindow, shownRuns); err != nil {
		return o, fmt.Errorf("read last runs: %w", err)
	}
	if all.Config.Has(migrate.AdjournedGroups) {
		if o.Groups, err = groupschedule.ReadGroups(ctx, all.Jobs().Pool, all.Jobs().Names, shownGroups); err != nil {
			return o, err
		}
	}
	o.Kept = <-kept
	o.Changes, err = database.LastChanges(ctx, all.Jobs(), shownChanges)
	return o, err
}

// reachable are the connections, with those as down that do not answer now, the jobs
// database too.
func reachable(ctx context.Context, c *installation.Connections) *installation.Connections {
	failed := make([]error, len(c.Databases))
	var asking sync.WaitGroup
	for i, db := range c.Databases {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, pingTimeout)
			defer cancel()
			failed[i] = db.Ping(ctx)
		})
	}
	asking.Wait()
	now := &installation.Connections{Config: c.Config, Databases: c.Databases, Down: map[string]error{}}
	for i, err := range failed {
		if err != nil {
			now.Down[c.Databases[i].Name] = err
		}
	}
	return now
}

// History is the backlog of the last span, the highest value of each bin.
func (s *PageSource) History(ctx context.Context, span, bin time.Duration) ([]jobrun.Series, error) {
	return jobrun.ReadSamples(ctx, s.all.Jobs(), span, bin)
}

// SetPaused pauses a kind on all workers, or all kinds where none is named, or lets them
// work again. A *components.RefusedError is for the user to read, here and below.
func (s *PageSource) SetPaused(ctx context.Context, by web.Visitor, kind, reason string, pause bool) error {
	entry := database.Change{Actor: by.Actor, Remote: by.Remote, Reason: reason}
	if kind == "" {
		var left error
		for _, kind := range s.all.Kinds() {
			// A note of another person stays.
			if _, err := s.all.SetPaused(ctx, kind, pause, entry); err != nil {
				left = errors.Join(left, fmt.Errorf("%s is unchanged: %w", kind, err))
			}
		}
		return left
	}
	if !slices.Contains(s.all.Kinds(), kind) {
		return components.Refuse("there is no job %q, or it is not enabled", kind)
	}
	note, err := s.all.SetPaused(ctx, kind, pause, entry)
	if note != nil && note.Actor != by.Actor {
		return components.Refuse("%s is already %s; that note is kept", kind, note)
	}
	return err
}

// Retry has failed rows tried again now and says what came of it.
func (s *PageSource) Retry(ctx context.Context, by web.Visitor, what components.Retry) (string, error) {
	defer s.failures.Forget()
	entry := database.Change{Actor: by.Actor, Remote: by.Remote}
	if what.Reason != "" {
		return RetryReason(ctx, s.all.Connections, what.Reason, entry)
	}
	return RetryFailures(ctx, s.all.Connections, what, entry)
}

// RunNow has a pass of a kind with a schedule run in each of its databases, without
// waiting for its tick.
func (s *PageSource) RunNow(ctx context.Context, by web.Visitor, kind string) error {
	jobs := riverjobs.Jobs(s.all.Config)
	at := slices.IndexFunc(jobs, func(job riverjobs.Job) bool { return job.Kind == kind && !job.Inserted() })
	if at < 0 {
		return components.Refuse("there is no job %q with a schedule, or it is not enabled", kind)
	}
	pauses, err := installation.Pauses(ctx, s.all.Connections)
	if err != nil {
		return err
	}
	if paused := pauses[jobs[at].Queue]; paused != "" {
		return components.Refuse("%s is %s: resume it first", kind, paused)
	}
	jobsDB := s.all.Jobs()
	entry := database.Change{Actor: by.Actor, Remote: by.Remote, Action: "run", Target: kind}
	if err := s.all.Record(ctx, entry); err != nil {
		return err
	}
	for _, name := range jobs[at].Databases {
		if _, err := riverjobs.Enqueue(ctx, jobsDB.Pool, jobsDB, kind, jobs[at].ArgsOf(name), nil); err != nil {
			return err
		}
	}
	return nil
}

// CancelGroup restores a group that is marked for its deletion, on behalf of a user of
// the application who may do so.
func (s *PageSource) CancelGroup(ctx context.Context, by web.Visitor, groupID, userID string) error {
	jobsDB := s.all.Jobs()
	if _, err := strconv.ParseInt(userID, 10, 64); err != nil && !jobsDB.Names.GroupViews {
		return components.Refuse("enter the ID of the user who requests it, a number")
	}
	entry := database.Change{
		Actor: by.Actor, Remote: by.Remote, Action: "cancel",
		Target: fmt.Sprintf("group %s for user %s", groupID, userID),
	}
	var cancelled bool
	err := pgx.BeginFunc(ctx, jobsDB.Pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, jobsDB.Names.Render(`SELECT "sexton".cancel_group_deletion($1, $2)`), groupID,
			userID).Scan(&cancelled)
		if err != nil || !cancelled {
			return err
		}
		return database.RecordChange(ctx, jobsDB, tx, entry)
	})
	if refused := batch.Refusal(err); refused != nil {
		return components.Refuse("%v", refused)
	}
	if err == nil && !cancelled {
		return components.Refuse("group %s is not scheduled for deletion, so there is nothing to cancel", groupID)
	}
	return problem.Doing(err, "restore group %s", groupID)
}

// readFailures reads what there is; the log says what cannot be read.
func (s *PageSource) readFailures(ctx context.Context) Failures {
	found, err := ReadFailures(ctx, reachable(ctx, s.all.Connections), components.FailureWindow)
	if err != nil {
		s.log.WarnContext(ctx, "failures_not_read", "error", err)
	}
	return found
}
