package operator

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/cleanup"
	"sexton/internal/problem"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

//go:embed queries
var sqlFiles embed.FS

// sqlText returns an embedded query. The files are part of the program, so it cannot
// fail.
func sqlText(name string) string {
	text, _ := sqlFiles.ReadFile("queries/" + name + ".sql")
	return string(text)
}

// Reading is the state of an installation at one time. As JSON, it is the output of
// `sexton status --json`.
type Reading struct {
	DeletionTables []components.Backlog `json:"deletion_tables"`
	Leases         []Lease              `json:"leases"`
	Jobs           []JobState           `json:"jobs"`
	// Cron is null if no worker leads.
	Cron *Leader `json:"cron"`

	// ReloadErrors are the workers that refused changed files and continue with the old
	// ones.
	ReloadErrors []ReloadError `json:"reload_errors,omitempty"`

	// Workers are the workers that sent a heartbeat lately.
	Workers []dbsqlc.ClientsAliveRow `json:"-"`
}

// ReloadError is a worker that refused changed files.
type ReloadError struct {
	Worker string `json:"worker"`
	Host   string `json:"host"`
	Error  string `json:"error"`
}

// Lease is a held lease.
type Lease struct {
	Key        string    `json:"key"`
	Holder     string    `json:"holder"`
	Token      int64     `json:"token"`
	AcquiredAt time.Time `json:"acquired_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	// Alive reports that the holder sent a heartbeat lately.
	Alive bool `json:"alive"`
}

// shared holds the data that the jobs database stores about all databases.
type shared struct {
	// runs holds the last run of each kind and database.
	runs    []dbsqlc.RunsLastRow
	workers []dbsqlc.ClientsAliveRow
	leases  []Lease
	// pauses maps each paused queue to a text with the user, the time and the reason of
	// the pause.
	pauses map[string]string
}

// Defined returns a source with the parents of the definition files. If the files cannot
// be read, the source has no parents, and other commands report the error.
func Defined(all *installation.Connections) components.Source {
	return components.Source{Connections: all, Defined: func(ctx context.Context, db database.Database) ([]string,
		error,
	) {
		defs, err := installation.LoadDefinitions(all.Config)
		if err != nil {
			return nil, nil //nolint:nilerr // other commands report the error
		}
		parents, _, err := loosefk.Resolve(ctx, all.Sites(), defs)
		if err != nil {
			return nil, err
		}
		return cleanup.RecordedNames(parents[db.Name]), nil
	}}
}

// Bound returns a source with the parents of resolved definitions.
func Bound(all *installation.Bound) components.Source {
	return components.Source{Connections: all.Connections, Defined: all.RecordedParents}
}

// Noted returns a source with the parents of the definitions that a worker has resolved.
func Noted(all *installation.Connections, bindings *riverjobs.Bindings) components.Source {
	return components.Source{Connections: all, Defined: func(_ context.Context, db database.Database) ([]string,
		error,
	) {
		return bindings.ParentNames(db.Name), nil
	}}
}

// Deferred returns the reason why no remaining row of a job is due, or "" if a row is
// due.
func Deferred(ctx context.Context, all *installation.Bound, job riverjobs.Job,
	database string,
) (reason string, _ error) {
	tables, err := components.Backlogs(ctx, Bound(all), all.Database(database))
	for _, table := range tables {
		if table.Table == job.DeletionTable {
			reason, _ = table.Obstacle()
		}
	}
	return reason, err
}

// Read reads all data except latencies, from the databases that are not down.
func Read(ctx context.Context, at components.Source) (Reading, error) {
	var r Reading
	var err error
	if r.DeletionTables, err = components.AllBacklogs(ctx, at); err != nil {
		return r, err
	}
	known, err := readShared(ctx, at.Connections)
	if err != nil {
		return r, err
	}
	r.Leases, r.Workers = known.leases, known.workers
	for _, w := range known.workers {
		if w.ReloadError != "" {
			r.ReloadErrors = append(r.ReloadErrors, ReloadError{Worker: w.ClientID, Host: w.Host, Error: w.ReloadError})
		}
	}
	if r.Jobs, err = known.jobs(ctx, at.Connections, at.Config.DatabaseNames(), r.DeletionTables); err != nil {
		return r, err
	}
	if err := noteTicks(ctx, at.Connections, r.Jobs); err != nil {
		return r, err
	}
	r.Cron, err = readLeader(ctx, at.Jobs(), at.Config.Jobs.Silence)
	return r, err
}

// ReadJobs reads the jobs without their backlog.
func ReadJobs(ctx context.Context, all *installation.Connections) ([]JobState, error) {
	known, err := readShared(ctx, all)
	if err != nil {
		return nil, err
	}
	return known.jobs(ctx, all, all.Config.DatabaseNames(), nil)
}

func readShared(ctx context.Context, all *installation.Connections) (*shared, error) {
	var known shared
	var err error
	if known.runs, err = readRuns(ctx, all); err != nil {
		return nil, err
	}
	if known.workers, err = all.Jobs().Queries().ClientsAlive(ctx, all.Config.Jobs.Silence.Seconds()); err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	if known.leases, err = ReadLeases(ctx, all.Jobs(), all.Config.Jobs.Silence); err != nil {
		return nil, err
	}
	known.pauses, err = installation.Pauses(ctx, all)
	return &known, err
}

// readRuns reads the last run of each kind and database.
func readRuns(ctx context.Context, all *installation.Connections) ([]dbsqlc.RunsLastRow, error) {
	runs, err := all.Jobs().Queries().RunsLast(ctx, all.Kinds(), all.Config.DatabaseNames())
	return runs, problem.Doing(err, "read last runs")
}

// ReadLeases lists the held leases.
func ReadLeases(ctx context.Context, jobs database.Database, silence time.Duration) ([]Lease, error) {
	rows, err := jobs.Queries().LeasesHeld(ctx, silence.Seconds())
	return render.Each(rows, func(l dbsqlc.LeasesHeldRow) Lease {
		return Lease{
			Key: l.Key, Holder: l.Holder, Token: l.Token, AcquiredAt: l.AcquiredAt, ExpiresAt: l.ExpiresAt,
			Alive: l.Alive,
		}
	}), problem.Doing(err, "read leases")
}

// jobs returns the states of all jobs in these databases. tables is their backlog.
func (k *shared) jobs(ctx context.Context, all *installation.Connections, databases []string,
	tables []components.Backlog,
) ([]JobState, error) {
	states := []JobState{}
	refusals, err := k.refusals(ctx, all, databases)
	if err != nil {
		return nil, err
	}
	for _, job := range riverjobs.Jobs(all.Config) {
		for _, name := range job.Databases {
			if !slices.Contains(databases, name) {
				continue
			}
			state := k.job(job, name)
			state.readOnly = cmp.Or(refusals[all.Jobs().Name], refusals[name])
			if state.Running != nil {
				state.Running.Estimate(backlogOf(tables, job.DeletionTable, name))
			}
			if err := k.explain(ctx, all, &state, tables); err != nil {
				return nil, err
			}
			states = append(states, state)
		}
	}
	return states, nil
}

// refusals returns the databases that accept no writes, with the reason. It includes the
// jobs database: if heartbeats cannot be written there, a live worker looks dead.
func (k *shared) refusals(ctx context.Context, all *installation.Connections,
	databases []string,
) (map[string]string, error) {
	found := map[string]string{}
	for _, db := range all.Databases {
		if all.Down[db.Name] != nil || db.Name != all.Jobs().Name && !slices.Contains(databases, db.Name) {
			continue
		}
		refusal, err := db.WriteRefusal(ctx)
		if err != nil {
			return nil, err
		}
		if refusal != "" {
			found[db.Name] = readOnly(db.Name, refusal)
		}
	}
	return found, nil
}

// backlogOf returns the backlog of a deletion table. If the table was not read, the
// backlog is marked as not completely counted.
func backlogOf(tables []components.Backlog, table, name string) components.Backlog {
	for _, t := range tables {
		if t.Table == table && t.Database == name {
			return t
		}
	}
	return components.Backlog{Table: table, Database: name, Capped: true}
}

// Leader is the worker whose River client inserts the jobs of all schedules.
type Leader struct {
	Leader string    `json:"leader"`
	Until  time.Time `json:"until"`
	// Unled are the schedules that the leader lacks and other workers have.
	Unled []Unled `json:"unled,omitempty"`
}

// Unled is a schedule that has no ticks because the leader's configuration lacks it.
type Unled struct {
	Kind     string   `json:"kind"`
	Database string   `json:"database"`
	Workers  []string `json:"workers"`
}

func (s Unled) String() string {
	return fmt.Sprintf("%s of %s has no ticks: the leader's configuration lacks it (configured in %s)", s.Kind,
		s.Database, render.Listed(s.Workers))
}

// readLeader returns nil if no worker leads.
func readLeader(ctx context.Context, jobs database.Database, silence time.Duration) (*Leader, error) {
	var l Leader
	err := jobs.Pool.QueryRow(ctx, jobs.Names.Render(sqlText("leader"))).Scan(&l.Leader, &l.Until)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // a missing leader is not an error
	}
	if err != nil {
		return nil, fmt.Errorf("read the leader of the schedules: %w", err)
	}
	rows, _ := jobs.Pool.Query(ctx, jobs.Names.Render(sqlText("unled")), l.Leader, silence.Seconds())
	if l.Unled, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Unled]); err != nil {
		return nil, fmt.Errorf("read schedules of workers: %w", err)
	}
	return &l, nil
}

func (l *Leader) String() string {
	if l == nil {
		return "cron leader: none"
	}
	text := []string{fmt.Sprintf("cron leader: %s until %s", l.Leader, l.Until.UTC().Format(time.RFC3339))}
	for _, s := range l.Unled {
		text = append(text, s.String())
	}
	return strings.Join(text, "\n")
}
