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
	// pingTimeout is the time within which a database must answer. A slower database
	// counts as down.
	pingTimeout = time.Second
	// shownRuns is the number of runs with changes that are shown, among the last
	// runsWindow runs.
	shownRuns    = 15
	runsWindow   = 500
	shownChanges = 10
	shownGroups  = 50
	// failuresFor is the time for which failures are cached, because reading them is
	// expensive.
	failuresFor     = 10 * time.Second
	failuresTimeout = 5 * time.Second
)

// PageSource serves the readings and changes of the page.
type PageSource struct {
	all      *installation.Bound
	bindings *riverjobs.Bindings
	log      *slog.Logger
	// failures are cached longer than the other data.
	failures  *web.Cached[Failures]
	latencies *Latencies
	kept      *web.CachedByKey[int64, *Kept]

	// undone are the latest restores that this process has begun. undoing guards them.
	undoing  sync.Mutex
	undone   []*Undone
	stopUndo context.CancelFunc
}

// NewPageSource returns the source for the page of a worker.
func NewPageSource(all *installation.Bound, bindings *riverjobs.Bindings, log *slog.Logger) *PageSource {
	s := &PageSource{all: all, bindings: bindings, log: log, latencies: NewLatencies(all.Connections)}
	s.failures = &web.Cached[Failures]{Read: s.readFailures, Timeout: failuresTimeout, Keep: failuresFor}
	s.kept = &web.CachedByKey[int64, *Kept]{Read: s.readKept, Timeout: keptTimeout, Keep: keptFor}
	return s
}

// Overview holds all data of the page except the chart: the reading, failures, last runs,
// changes by users, scheduled groups and saved deletions.
type Overview struct {
	Reading

	Failures Failures
	Runs     []dbsqlc.RunsRecentRow
	Changes  []database.Change
	// Groups are the groups that are scheduled for deletion, in the order in which they
	// fall due.
	Groups []groupschedule.Group
	// Kept holds the newest deletions that can be restored.
	Kept *Kept
}

// Overview reads all data of the page. It returns an error if any part cannot be read: a
// partial page would look like a page without pending work.
func (s *PageSource) Overview(ctx context.Context) (Overview, error) {
	all := reachable(ctx, s.all.Connections)
	if err := all.Down[all.Jobs().Name]; err != nil {
		return Overview{}, err
	}
	kept := make(chan *Kept, 1)
	// Listing saved deletions takes longest, so it runs while the other parts are read.
	go func() { kept <- s.kept.Get(ctx, 0) }()
	reading, err := Read(ctx, Noted(all, s.bindings))
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

// reachable returns the connections, and marks the databases that do not answer now as
// down, including the jobs database.
func reachable(ctx context.Context, c *installation.Connections) *installation.Connections {
	failed := make([]error, len(c.Databases))
	var pings sync.WaitGroup
	for i, db := range c.Databases {
		pings.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, pingTimeout)
			defer cancel()
			failed[i] = db.Ping(ctx)
		})
	}
	pings.Wait()
	now := &installation.Connections{Config: c.Config, Databases: c.Databases, Down: map[string]error{}}
	for i, err := range failed {
		if err != nil {
			now.Down[c.Databases[i].Name] = err
		}
	}
	return now
}

// History returns the backlog during the last span of time, as the highest value of each
// bin.
func (s *PageSource) History(ctx context.Context, span, bin time.Duration) ([]jobrun.Series, error) {
	return jobrun.ReadSamples(ctx, s.all.Jobs(), span, bin)
}

// SetPaused pauses or resumes a kind on all workers, or all kinds if kind is empty. Like
// the methods below, it returns a *components.RefusedError for a message that the page
// shows to the user.
func (s *PageSource) SetPaused(ctx context.Context, by web.Visitor, kind, reason string, pause bool) error {
	entry := database.Change{Actor: by.Actor, Remote: by.Remote, Reason: reason}
	if kind == "" {
		var left error
		for _, kind := range s.all.Kinds() {
			// SetPaused refuses a kind that somebody else has paused, and leaves the
			// earlier note unchanged.
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
		return components.Refuse("%s is already %s; the earlier note is kept", kind, note)
	}
	return err
}

// Retry makes failed rows due immediately and returns a summary.
func (s *PageSource) Retry(ctx context.Context, by web.Visitor, what components.Retry) (string, error) {
	defer s.failures.Forget()
	entry := database.Change{Actor: by.Actor, Remote: by.Remote}
	if what.Reason != "" {
		return RetryReason(ctx, s.all.Connections, what.Reason, entry)
	}
	return RetryFailures(ctx, s.all.Connections, what, entry)
}

// RunNow inserts a job of a scheduled kind for each of its databases, without waiting for
// the next tick.
func (s *PageSource) RunNow(ctx context.Context, by web.Visitor, kind string) error {
	jobs := riverjobs.Jobs(s.all.Config)
	i := slices.IndexFunc(jobs, func(job riverjobs.Job) bool { return job.Kind == kind && !job.Inserted() })
	if i < 0 {
		return components.Refuse("there is no job %q with a schedule, or it is not enabled", kind)
	}
	pauses, err := installation.Pauses(ctx, s.all.Connections)
	if err != nil {
		return err
	}
	if paused := pauses[jobs[i].Queue]; paused != "" {
		return components.Refuse("%s is %s: resume it first", kind, paused)
	}
	jobsDB := s.all.Jobs()
	entry := database.Change{Actor: by.Actor, Remote: by.Remote, Action: "run", Target: kind}
	if err := s.all.Record(ctx, entry); err != nil {
		return err
	}
	for _, name := range jobs[i].Databases {
		if _, err := riverjobs.Enqueue(ctx, jobsDB.Pool, jobsDB, kind, jobs[i].ArgsOf(name), nil); err != nil {
			return err
		}
	}
	return nil
}

// CancelGroup restores a group that is scheduled for deletion, for a user of the
// application who may remove it.
func (s *PageSource) CancelGroup(ctx context.Context, by web.Visitor, groupID, userID string) error {
	jobsDB := s.all.Jobs()
	if _, err := strconv.ParseInt(userID, 10, 64); err != nil && !jobsDB.Names.GroupViews {
		return components.Refuse("enter the numeric ID of the user who requests it")
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

// readFailures reads the failures of the databases that answer. It logs an error and
// returns the failures that it could read.
func (s *PageSource) readFailures(ctx context.Context) Failures {
	found, err := ReadFailures(ctx, reachable(ctx, s.all.Connections), components.FailureWindow)
	if err != nil {
		s.log.WarnContext(ctx, "failures_not_read", "error", err)
	}
	return found
}
