package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/groupdelete"
	"sexton/internal/installation"
	"sexton/internal/loosefk/plan"
	"sexton/internal/migrate"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

// PlannedDatabase is one entry of `sexton plan --json`.
type PlannedDatabase struct {
	Database     string `json:"database"`
	*plan.Result        //nolint:embeddedstructfieldcheck // the fields have the order of the JSON document
	// Jobs are the other enabled jobs with rows in the database. It is absent if no other
	// job has rows.
	Jobs []PlannedJob `json:"jobs,omitempty"`
	// Uncovered lists what `sexton undo` would not restore. It is absent if undo is
	// disabled.
	Uncovered []PlannedLoss `json:"undo_uncovered,omitempty"`
	// Unreachable is the connection error. If it is set, the definitions of the database
	// are unknown.
	Unreachable string `json:"unreachable,omitempty"`
}

// Plan previews the next run of every kind.
func Plan(ctx context.Context, all *installation.Bound) ([]PlannedDatabase, error) {
	runs, err := plan.Plan(ctx, components.PlanSites(all.Connections, all.Parents), components.PlanLimits())
	if err != nil {
		return nil, err
	}
	plans := make([]PlannedDatabase, len(all.Databases))
	for i, db := range all.Databases {
		plans[i] = PlannedDatabase{Database: db.Name, Result: runs[db.Name]}
		if down := all.Down[db.Name]; down != nil {
			plans[i].Unreachable = down.Error()
		} else if plans[i].Uncovered, err = planLosses(ctx, all, db); err != nil {
			return nil, err
		}
		if plans[i].Unreachable == "" {
			if plans[i].Jobs, err = planJobs(ctx, all, db); err != nil {
				return nil, err
			}
		}
	}
	return plans, nil
}

// PlannedLoss is something that `sexton undo` would not restore.
type PlannedLoss struct {
	Object  string `json:"object"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

func planLosses(ctx context.Context, all *installation.Bound, db database.Database) (losses []PlannedLoss, _ error) {
	settings := all.Config.LooseForeignKeys.Undo
	if !settings.On() {
		return nil, nil
	}
	err := installation.OnConnection(ctx, db, func(conn *pgx.Conn) error {
		cfg, tracked := riverjobs.Tracking(all.Config, db, all.Parents)
		found, err := components.Uncovered(ctx, conn, settings, cfg, tracked, "")
		for _, f := range found {
			losses = append(losses, PlannedLoss{f.Object, f.Message, f.Fix})
		}
		return err
	})
	return losses, err
}

// PlannedJob previews the work of a job other than the cleanup of loose foreign keys.
type PlannedJob struct {
	Kind               string `json:"kind"`
	components.Planned        //nolint:embeddedstructfieldcheck // the fields have the order of the JSON document

	// Unit is the noun for a due row.
	Unit string `json:"unit"`
	// NextRun is the next tick of its schedule in UTC, or null for a kind whose jobs
	// another kind inserts. Rows that a commit makes due are processed immediately.
	NextRun *time.Time `json:"next_run"`
	// WaitingFor is the obstacle that the job waits for, or null.
	WaitingFor *string `json:"waiting_for"`
	// Error is the reason why the work is unknown, for example a timeout.
	Error string `json:"error,omitempty"`
}

// planJobs previews the enabled kinds that have rows in a database. An error of one kind,
// such as a timeout or a missing privilege, does not affect the other kinds.
func planJobs(ctx context.Context, all *installation.Bound, db database.Database) ([]PlannedJob, error) {
	var planned []PlannedJob
	var states []JobState
	for _, job := range riverjobs.Jobs(all.Config) {
		if job.Kind == riverjobs.LooseForeignKeys || !slices.Contains(job.Databases, db.Name) {
			continue
		}
		if states == nil {
			reading, err := Read(ctx, Bound(all))
			if err != nil {
				return nil, err
			}
			states = reading.Jobs
		}
		one := PlannedJob{Kind: job.Kind, Unit: components.Unit(job.DeletionTable)}
		if job.Inserted() {
			one.Unit = "job"
		} else if cron, err := job.Cron.Parse(); err == nil {
			one.NextRun = new(cron.Next(time.Now().UTC()))
		}
		for _, state := range states {
			if state.Kind == job.Kind {
				one.WaitingFor = state.WaitingFor
			}
		}
		var err error
		if one.Planned, err = planJob(ctx, all, db, job.Kind); err != nil {
			if database.Lost(err) || ctx.Err() != nil {
				return nil, err
			}
			one.Error = err.Error()
		}
		planned = append(planned, one)
	}
	return planned, nil
}

// planJob previews one kind in a READ ONLY transaction with short timeouts.
func planJob(ctx context.Context, all *installation.Bound, db database.Database,
	kind string,
) (planned components.Planned, err error) {
	err = pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		limit := strconv.FormatInt(components.PlanLimits().StatementTimeout.Milliseconds(), 10)
		_, err := tx.Exec(ctx,
			"SELECT pg_catalog.set_config('statement_timeout', $1, true), pg_catalog.set_config('lock_timeout', $1, true)", limit)
		if err != nil {
			return fmt.Errorf("limit statements: %w", err)
		}
		planned, err = components.Plan(ctx, tx, all.Config, db, kind)
		return err
	})
	return planned, err
}

// Text describes the due work in words.
func (j PlannedJob) Text() string {
	text := render.AtLeast(j.Capped) + render.Counted(j.Due, j.Unit)
	if j.PerRun > 0 && j.Due > int64(j.PerRun) {
		text += fmt.Sprintf(" (%d per run)", j.PerRun)
	}
	if j.RemovalsDue > 0 {
		text += ", " + render.Counted(j.RemovalsDue, "object") + " to remove"
	}
	return text
}

// Foreseen is the output of `sexton group delete --plan --json` and `sexton user delete
// --plan --json`.
type Foreseen struct {
	GroupID *dml.ID `json:"group_id,omitempty"`
	UserID  *dml.ID `json:"user_id,omitempty"`
	// The keys of the maps are table.column for nullified rows of groups, for rows below
	// a user, and for rows that loose foreign keys change.
	*dml.Foresight //nolint:embeddedstructfieldcheck // the fields have the order of the JSON document
	// Remote is the number of definitions whose children are in other databases, where
	// they are not counted.
	Remote int `json:"remote,omitempty"`
	// AboutSeconds is the estimated duration at RowsPerSecond. If Measured is true,
	// RowsPerSecond is the speed of the last runs.
	AboutSeconds  float64 `json:"about_seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
	Measured      bool    `json:"measured"`
}

// ForeseeGroup counts the rows that the deletion of a group would change. by is the user
// who requests it, or empty.
func ForeseeGroup(ctx context.Context, all *installation.Connections, text, by string) (*Foreseen, error) {
	db, ghosts := all.Jobs(), all.Config.Has(migrate.GhostUsers)
	plan, problems, err := groupdelete.Resolve(ctx, db.Pool, db.Names, riverjobs.GroupsOf(all.Config), ghosts)
	if err == nil {
		err = problems.Err()
	}
	if err != nil {
		return nil, err
	}
	here, remote, err := looseIn(all, db)
	if err != nil {
		return nil, err
	}
	var loose *groupdelete.Plan
	if len(here) > 0 {
		if loose, err = groupdelete.ResolveLoose(ctx, db.Pool, db.Names, riverjobs.GroupsOf(all.Config), ghosts,
			here); err != nil {
			return nil, err
		}
	}
	id := plan.ID(text)
	seen, err := groupdelete.Foresee(ctx, db.Pool, plan, loose, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("plan the destruction of group %s: %w", id, err)
	case seen == nil:
		return nil, fmt.Errorf("there is no group %s", id)
	}
	p := &Foreseen{GroupID: &id, Foresight: seen, Remote: remote}
	if by != "" {
		var may bool
		const rule = `SELECT coalesce("sexton".may_remove_group($1, $2), false)`
		if err := db.Pool.QueryRow(ctx, db.Names.Render(rule), by, text).Scan(&may); err != nil {
			return nil, fmt.Errorf("check whether user %s may remove group %s: %w", by, id, err)
		}
		if !may {
			p.Forbidden = append(p.Forbidden, fmt.Sprintf("user %s may not remove it", by))
		}
	}
	return p, p.estimate(ctx, db, riverjobs.GroupDestroy)
}

// looseIn returns the definitions whose children are in a database, and the number of the
// other definitions.
func looseIn(all *installation.Connections, db database.Database) (loose []dml.Loose, remote int, err error) {
	defs, err := installation.LoadDefinitions(all.Config)
	for _, d := range defs {
		if d.Database != "" && d.Database != db.Name {
			remote++
			continue
		}
		named := func(name definitions.Name) [2]string {
			return [2]string{cmp.Or(name.Schema, db.Names.Tracked), name.Table}
		}
		one := dml.Loose{
			Child: named(d.Child), Parent: named(d.Parent), Columns: d.Columns, Targets: d.ParentColumns,
			Action: dml.Nullify,
		}
		if d.OnDelete == definitions.Delete {
			one.Action = dml.Remove
		}
		for _, c := range d.Conditions {
			one.Only = append(one.Only, [2]string{c.Column, string(c.Value)})
		}
		loose = append(loose, one)
	}
	return loose, remote, err
}

// ForeseeUser counts the rows that the deletion of a user would change. hard also deletes
// contributions.
func ForeseeUser(ctx context.Context, all *installation.Connections, id string, hard bool) (*Foreseen, error) {
	db := all.Jobs()
	plan, problems, err := riverjobs.CheckGhostUsers(ctx, all.Config, db)
	if err == nil {
		err = problems.Err()
	}
	if err != nil {
		return nil, err
	}
	user, err := plan.Find(ctx, db.Pool, id)
	if err != nil {
		return nil, err
	}
	loose, remote, err := looseIn(all, db)
	if err != nil {
		return nil, err
	}
	seen, err := plan.Foresee(ctx, db.Pool, user, hard, loose...)
	if err != nil {
		return nil, fmt.Errorf("plan the deletion of user %s: %w", id, err)
	}
	p := &Foreseen{UserID: &user, Foresight: seen, Remote: remote}
	return p, p.estimate(ctx, db, riverjobs.GhostUsers)
}

// assumedRate is the assumed speed before the first run, in rows per second. It is half
// of the speed on small hardware.
const assumedRate = 2000

// estimate sets the estimated duration and the assumed speed.
func (p *Foreseen) estimate(ctx context.Context, db database.Database, kind string) error {
	if err := db.Pool.QueryRow(ctx, db.Names.Render(sqlText("rate")), kind).Scan(&p.RowsPerSecond); err != nil {
		return fmt.Errorf("read the speed of %s: %w", kind, err)
	}
	if p.Measured = p.RowsPerSecond > 0; !p.Measured {
		p.RowsPerSecond = assumedRate
	}
	p.AboutSeconds = float64(p.Rows) / p.RowsPerSecond
	return nil
}
