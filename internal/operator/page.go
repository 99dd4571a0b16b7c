package operator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sexton/internal/audittrail"
	"sexton/internal/component"
	"sexton/internal/components"
	"sexton/internal/dbsqlc"
	"sexton/internal/installation"
	"sexton/internal/recent"
	"sexton/internal/samples"
	"sexton/internal/web/page"
	riverjobs "sexton/river_jobs"
)

const (
	// pingTimeout is how long a reading waits for a database before it takes it for down.
	pingTimeout = time.Second
	// shownRuns are those among the last runsWindow of all that did something.
	shownRuns    = 15
	runsWindow   = 500
	shownChanges = 10
	// failuresFor is for how long a look at failures is shared: it reads more than the rest.
	failuresFor     = 10 * time.Second
	failuresTimeout = 5 * time.Second
	// shownFailures are of each source.
	shownFailures = 20
	// shownOldest are the parent tables with the oldest tombstones.
	shownOldest = 5
)

// PageSource serves the page's readings and changes.
type PageSource struct {
	all   *installation.Connections
	noted *riverjobs.Bindings
	log   *slog.Logger
	// failures are read less often than the rest.
	failures *recent.Value[Failures]
}

var _ page.Source = (*PageSource)(nil)

// NewPageSource reads for the page of a worker.
func NewPageSource(all *installation.Connections, noted *riverjobs.Bindings, log *slog.Logger) *PageSource {
	s := &PageSource{all: all, noted: noted, log: log}
	s.failures = &recent.Value[Failures]{Read: s.readFailures, Timeout: failuresTimeout, Keep: failuresFor}
	return s
}

// Overview implements page.Source.
func (s *PageSource) Overview(ctx context.Context) (page.Overview, error) {
	all, document, err := s.status(ctx)
	if err != nil {
		return page.Overview{}, err
	}
	jobs := all.Jobs()
	var o page.Overview
	for _, t := range document.DeletionTables {
		o.Tables = append(o.Tables, tableOf(t))
	}
	for _, l := range document.Leases {
		o.Leases = append(o.Leases, page.Lease{Key: l.Key, Holder: l.Holder, ExpiresAt: l.ExpiresAt})
	}
	o.Jobs = s.jobs(document)
	if document.Cron != nil {
		o.Leader, o.LeaderUntil = document.Cron.Leader, document.Cron.Until
	}
	for _, c := range document.Workers {
		o.Workers = append(o.Workers, page.Worker{ID: c.ClientID, Host: c.Host, StartedAt: c.StartedAt, Polls: c.Deaf})
	}
	runs, err := jobs.Queries().RunsRecent(ctx, dbsqlc.RunsRecentParams{WindowRows: runsWindow, Most: shownRuns})
	if err != nil {
		return o, fmt.Errorf("read last runs: %w", err)
	}
	for _, r := range runs {
		o.Runs = append(o.Runs, s.run(r))
	}
	changes, err := audittrail.Last(ctx, jobs, shownChanges)
	if err != nil {
		return o, err
	}
	for _, c := range changes {
		o.Changes = append(o.Changes, page.Change(c))
	}
	failed := s.failures.Get(ctx)
	o.Failures, o.MoreFailures = failed.Failures, failed.More
	return o, nil
}

// status reads what `sexton status` shows, of the databases that answer now.
func (s *PageSource) status(ctx context.Context) (*installation.Connections, Reading, error) {
	all := reachable(ctx, s.all)
	if err := all.Down[all.Jobs().Name]; err != nil {
		return nil, Reading{}, err
	}
	document, err := Read(ctx, Noted(all, s.noted))
	return all, document, err
}

// reachable are the connections, with those as down that do not answer now, the jobs database too.
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

func tableOf(t component.Backlog) page.Table {
	out := page.Table{
		Name: t.Table, Database: t.Database, Unit: t.Unit, Pending: t.Pending, Capped: t.Capped,
		OldestAge: t.Oldest(), Deferred: t.Deferred, DeferredReason: t.DeferredReason,
		Confirming: t.Confirming, Undefined: t.Undefined, Unreachable: t.Unreachable,
	}
	for _, p := range t.Parents[:min(len(t.Parents), shownOldest)] {
		out.Parents = append(out.Parents, page.Parent{Name: p.Parent, Pending: p.Pending, Capped: p.Capped, OldestAge: p.Oldest()})
	}
	if t.DeferredUntil != nil {
		out.DeferredUntil = *t.DeferredUntil
	}
	return out
}

// jobs are the kinds with what they do in each of their databases.
func (s *PageSource) jobs(document Reading) []page.Job {
	var out []page.Job
	for _, state := range document.Jobs {
		if len(out) == 0 || out[len(out)-1].Kind != state.Kind {
			out = append(out, page.Job{
				Kind: state.Kind, Summary: state.Job.Summary, Schedule: state.Schedule, Table: state.Job.DeletionTable, Paused: state.Paused,
			})
		}
		job := &out[len(out)-1]
		lane := page.Lane{
			Database: state.Database, LastOutcome: deref(state.LastOutcome), LastError: deref(state.LastError), WaitingFor: deref(state.WaitingFor),
		}
		if state.LastRun != nil {
			lane.LastRun = *cmp.Or(state.lastEnded, state.LastRun)
		}
		if state.LastTick != nil {
			lane.LastTick = *state.LastTick
		}
		if state.NextTick != nil {
			lane.Next = *state.NextTick
		}
		if run := state.Running; run != nil {
			lane.Running = &page.Pass{RunID: run.RunID, Holder: run.Holder, StartedAt: run.StartedAt, Stats: run.Stats, Unit: unitOf(state.Job)}
			for _, t := range document.DeletionTables {
				if t.Table == state.Job.DeletionTable && t.Database == state.Database {
					// What is put off is not for this pass.
					lane.Running.Pending, lane.Running.Capped = max(0, t.Pending-t.Deferred), t.Capped
				}
			}
		}
		job.Lanes = append(job.Lanes, lane)
	}
	return out
}

// unitOf names the rows that a job works off.
func unitOf(job riverjobs.Job) string { return components.Unit(job.DeletionTable) }

func (s *PageSource) run(r dbsqlc.RunsRecentRow) page.Run {
	out := page.Run{
		ID: r.ID, Kind: r.Kind, Database: r.Database, StartedAt: r.StartedAt,
		Outcome: deref(r.Outcome), Error: deref(r.Error), Held: deref(r.Held), Stats: r.Stats,
	}
	if r.EndedAt != nil {
		out.Took = r.EndedAt.Sub(r.StartedAt)
	}
	for _, job := range riverjobs.Jobs(s.all.Config) {
		if job.Kind == r.Kind {
			out.Unit = unitOf(job)
		}
	}
	return out
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// History implements page.Source.
func (s *PageSource) History(ctx context.Context, span, bin time.Duration) ([]page.Series, error) {
	series, err := samples.Read(ctx, s.all.Jobs(), span, bin)
	if err != nil {
		return nil, err
	}
	out := make([]page.Series, len(series))
	for i, one := range series {
		out[i] = page.Series{Table: one.Table, Database: one.Database, Points: make([]page.Point, len(one.Points))}
		for j, point := range one.Points {
			out[i].Points[j] = page.Point(point)
		}
	}
	return out, nil
}
