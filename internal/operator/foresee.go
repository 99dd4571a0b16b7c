package operator

import (
	"cmp"
	"context"
	"fmt"
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
	*plan.Result        //nolint:embeddedstructfieldcheck // the order is that of the document
	// Jobs are the other enabled jobs, whose rows are in the jobs database; absent in
	// other databases, and where there is none.
	Jobs []PlannedJob `json:"jobs,omitempty"`
	// Uncovered says what `sexton undo` would not bring back; absent where nothing is
	// kept.
	Uncovered []PlannedLoss `json:"undo_uncovered,omitempty"`
	// Unreachable is why nothing is known of the database: what definitions have their
	// parents there, for one.
	Unreachable string `json:"unreachable,omitempty"`
}

// Plan foresees a pass of every kind.
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
		if db.Name == all.Jobs().Name {
			if plans[i].Jobs, err = planJobs(ctx, all); err != nil {
				return nil, err
			}
		}
	}
	return plans, nil
}

// PlannedLoss is something that `sexton undo` would not bring back.
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

// PlannedJob foresees the work of a job other than the clean-up of loose foreign keys.
type PlannedJob struct {
	Kind               string `json:"kind"`
	components.Planned        //nolint:embeddedstructfieldcheck // the order is that of the document

	// Unit names one of them.
	Unit string `json:"unit"`
	// NextRun is the next tick of its schedule (UTC); null for a kind whose jobs another
	// one inserts. What falls due by a commit is taken at once.
	NextRun *time.Time `json:"next_run"`
	// WaitingFor is why nothing happens; null where nothing stands in the way.
	WaitingFor *string `json:"waiting_for"`
	// Error is why nothing is known, in the time that there is for it.
	Error string `json:"error,omitempty"`
}

// planJobs looks at the kinds whose rows are in the jobs database. One of which that
// takes too long, or is not allowed, hides no other.
func planJobs(ctx context.Context, all *installation.Bound) ([]PlannedJob, error) {
	var planned []PlannedJob
	var states []JobState
	for _, job := range riverjobs.Jobs(all.Config) {
		if job.Kind == riverjobs.LooseForeignKeys {
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
		if one.Planned, err = planJob(ctx, all, job.Kind); err != nil {
			if database.Lost(err) || ctx.Err() != nil {
				return nil, err
			}
			one.Error = err.Error()
		}
		planned = append(planned, one)
	}
	return planned, nil
}

// planJob asks in a transaction that can change nothing and in which no statement lasts.
func planJob(ctx context.Context, all *installation.Bound, kind string) (planned components.Planned, err error) {
	db := all.Jobs()
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

// Text describes the due work.
func (j PlannedJob) Text() string {
	said := render.AtLeast(j.Capped) + render.Counted(j.Due, j.Unit)
	if j.PerRun > 0 && j.Due > int64(j.PerRun) {
		said += fmt.Sprintf(" (%d per run)", j.PerRun)
	}
	if j.RemovalsDue > 0 {
		said += ", " + render.Counted(j.RemovalsDue, "object") + " to remove"
	}
	return said
}

// Foreseen is the output of `sexton group delete --plan --json` and `sexton user delete
// --plan --json`.
type Foreseen struct {
	GroupID *dml.ID `json:"group_id,omitempty"`
	UserID  *dml.ID `json:"user_id,omitempty"`
	// Nullified rows of groups, and those below a user's deleted rows, are by
	// table.column, and so are loose ones that stay.
	*dml.Foresight //nolint:embeddedstructfieldcheck // the order is that of the document
	// Remote counts definitions of loose foreign keys whose children, in other databases,
	// are not counted.
	Remote int `json:"remote,omitempty"`
	// AboutSeconds is the time that it takes at RowsPerSecond, which is that of the last
	// runs where Measured is set.
	AboutSeconds  float64 `json:"about_seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
	Measured      bool    `json:"measured"`
}

// ForeseeGroup looks at what a group's destruction would do. by, the user on whose behalf
// it is done, may be empty.
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
	return p, p.time(ctx, db, riverjobs.GroupDestroy)
}

// looseIn are the definitions of the loose foreign keys whose children are in a database;
// remote counts the others.
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

// ForeseeUser counts what the deletion of a user would do. hard also deletes
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
	return p, p.time(ctx, db, riverjobs.GhostUsers)
}

// assumedRate is the rows per second of a worker that has no runs to go by: what half of
// the time gives on small hardware.
const assumedRate = 2000

// time fills in how long it takes.
func (p *Foreseen) time(ctx context.Context, db database.Database, kind string) error {
	if err := db.Pool.QueryRow(ctx, db.Names.Render(sqlText("rate")), kind).Scan(&p.RowsPerSecond); err != nil {
		return fmt.Errorf("read the speed of %s: %w", kind, err)
	}
	if p.Measured = p.RowsPerSecond > 0; !p.Measured {
		p.RowsPerSecond = assumedRate
	}
	p.AboutSeconds = float64(p.Rows) / p.RowsPerSecond
	return nil
}
