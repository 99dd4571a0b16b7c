package components

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/doctor"
	"sexton/internal/drain/dml"
	"sexton/internal/ghostuser"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/migrate"
	"sexton/internal/problem"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

func looseForeignKeys() *Component {
	return &Component{
		Key: migrate.LooseForeignKeys, Everywhere: true, Units: map[string]string{triggers.TombstoneTable: "tombstone"},
		Backlog:  readTombstones,
		Gauges:   keptGauges,
		Failures: &Failures{Name: "tombstones", Everywhere: true, List: listTombstones, Retry: retryTombstones},
		Grants:   grantDefinitions,
		Checks: []Check{
			{
				Name: "tables", When: Binding, Needs: func(x *Exam) bool { return len(x.Databases) > 0 },
				Look: bindDefinitions,
			},
			{Name: "child_privileges", When: Schema, Look: problemCheck(func(ctx context.Context, x *Exam) (problem.List,
				error,
			) {
				return installation.ChildPrivileges(ctx, x.As(), x.DB.Name, x.Parents)
			})},
			{Name: "parent_privileges", When: Schema, Look: problemCheck(func(ctx context.Context, x *Exam) (problem.List,
				error,
			) {
				return loosefk.UnreadableParents(ctx, x.As(), x.Parents[x.DB.Name])
			})},
			{Name: "indexes", When: Schema, Look: problemCheck(func(ctx context.Context, x *Exam) (problem.List, error) {
				return MissingIndexes(ctx, x.Connections, x.DB, x.Parents)
			})},
			// The check needs all definitions. Without a definition, the triggers of its
			// parent would seem surplus.
			{
				Name: "triggers", When: Schema, Needs: func(x *Exam) bool { return x.Installed && x.Bound },
				Look: examineTriggers,
			},
			{Name: "failed_tombstones", When: Work, Look: failedTombstones},
		},
	}
}

// problemCheck returns a check that converts the problems that look returns to findings.
func problemCheck(look func(context.Context, *Exam) (problem.List,
	error),
) func(context.Context, *Exam) ([]doctor.Finding, error) {
	return func(ctx context.Context, x *Exam) ([]doctor.Finding, error) {
		found, err := look(ctx, x)
		return doctor.Findings(found), err
	}
}

const (
	// shownParents limits the parent tables that are counted. parentCap limits the count
	// of each parent table, because each scrape of the metrics repeats the count.
	shownParents = 100
	parentCap    = 1000
)

// readTombstones reads the backlog of tombstones in one database, in total and by parent
// table. Its counts have limits.
func readTombstones(ctx context.Context, source Source, db database.Database) ([]Backlog, error) {
	backlog, err := ReadBacklog(ctx, db, migrate.LooseForeignKeys)
	if err != nil {
		return nil, err
	}
	if settings := source.Config.LooseForeignKeys.Undo; settings.On() {
		if backlog.Details, err = readKept(ctx, db, settings); err != nil {
			return nil, err
		}
	}
	parents, err := db.Queries().TombstoneParents(ctx)
	if err != nil {
		return nil, err
	}
	confirming, err := db.Queries().SweptKeys(ctx, db.Name, PendingCap)
	if err != nil {
		return nil, err
	}
	backlog.Confirming = min(confirming, PendingCap)
	if len(parents) == 0 {
		return []Backlog{backlog}, nil
	}
	defined, err := source.Defined(ctx, db)
	if err != nil {
		return nil, err
	}
	if defined != nil {
		backlog.Undefined = slices.DeleteFunc(slices.Clone(parents),
			func(name string) bool { return slices.Contains(defined, name) })
	}
	rows, err := db.Queries().TombstoneBacklogs(ctx, parents[:min(len(parents), shownParents)], parentCap+1)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		backlog.Parents = append(backlog.Parents, Parent{
			Parent: row.Name, Pending: min(row.Pending, parentCap), Capped: row.Pending > parentCap,
			OldestAgeSeconds: row.OldestAgeSeconds,
		})
	}
	slices.SortStableFunc(backlog.Parents, func(a, b Parent) int {
		return cmp.Compare(b.OldestAgeSeconds,
			a.OldestAgeSeconds)
	})
	return []Backlog{backlog}, nil
}

// listTombstones returns the failed tombstones of all reachable databases.
func listTombstones(ctx context.Context, all *installation.Connections,
	limit int,
) (failures []Failure, more bool, err error) {
	for _, db := range all.Databases {
		if all.Down[db.Name] != nil {
			continue
		}
		list, err := installation.TombstonesOf(all, db).Failed(ctx, limit, max(limit, FailureWindow))
		if err != nil {
			return failures, more, fmt.Errorf("database %s: %w", db.Name, err)
		}
		more = more || list.More > 0 || list.Capped
		for _, t := range list.First {
			failures = append(failures, tombstoneFailure(db.Name, t))
		}
	}
	return failures, more, nil
}

func tombstoneFailure(database string, t loosefk.FailedTombstone) Failure {
	failure := Failure{
		Source: "tombstones", Database: database, ID: strconv.FormatInt(t.ID, 10), What: t.Table + ", key " + t.Key,
		Attempts: t.Attempts, GivenUp: t.ConsumeAfter.InfinityModifier == pgtype.Infinity,
		Since: time.Now().Add(-time.Duration(t.AgeSeconds * float64(time.Second))),
	}
	if t.LastError != nil {
		failure.Error = *t.LastError
	}
	if t.Deferred && t.ConsumeAfter.InfinityModifier == pgtype.Finite {
		failure.Next = t.ConsumeAfter.Time
	}
	return failure
}

func retryTombstones(ctx context.Context, all *installation.Connections, db database.Database,
	id dml.ID,
) (string, error) {
	result, err := installation.TombstonesOf(all, db).Retry(ctx, id.Number())
	switch {
	case err != nil:
		return "", fmt.Errorf("database %s: %w", db.Name, err)
	case result.Busy > 0 && result.Retried == 0:
		return "", Refuse("a worker is processing the tombstone")
	case id.Text != "" && result.Retried+result.Due == 0:
		return "", Refuse("tombstone %s is not pending", id)
	}
	return render.Counted(result.Retried+result.Due, "tombstone") + " due now", nil
}

// bindDefinitions reports definitions that do not match the tables of the reachable
// databases.
func bindDefinitions(ctx context.Context, x *Exam) ([]doctor.Finding, error) {
	found, problems, err := loosefk.Resolve(ctx, x.Sites(), x.Definitions)
	// The parents in reachable databases are known, even if their children are in other
	// databases.
	x.Parents, x.Bound = found, err == nil && x.Complete && problems.Err() == nil
	return doctor.Findings(WithoutIndexes(problems)), err
}

// examineTriggers reports the differences between the triggers and the definitions, and
// what an undo cannot restore.
func examineTriggers(ctx context.Context, x *Exam) (found []doctor.Finding, err error) {
	cfg, tracked := riverjobs.Tracking(x.Config, x.DB, x.Parents)
	err = installation.OnConnection(ctx, x.DB, func(conn *pgx.Conn) error {
		differences, err := triggers.Status(ctx, conn, cfg, tracked)
		for _, d := range differences {
			severity := problem.Error
			switch {
			case !d.Drift():
				severity = problem.Info
			case d.Kind == triggers.Surplus, d.Trigger == triggers.WakeTrigger, d.Trigger == triggers.WakeUpdateTrigger:
				severity = problem.Warning
			}
			object := d.Trigger
			if d.Table != "" {
				object += " on " + d.Table
			}
			found = append(found, doctor.One(severity, object, string(d.Kind)+": "+d.Detail, d.Fix)...)
		}
		if err != nil {
			return err
		}
		lost, err := Uncovered(ctx, conn, x.Config.LooseForeignKeys.Undo, cfg, tracked, x.Roles[x.DB.Name].Name)
		found = append(found, lost...)
		if err != nil {
			return err
		}
		personal, err := Personal(ctx, conn, x.Config.LooseForeignKeys.Undo, cfg, tracked)
		found = append(found, personal...)
		return err
	})
	return found, err
}

// failedTombstones reports the first failed tombstones individually, and the number of
// the remaining ones.
func failedTombstones(ctx context.Context, x *Exam) (found []doctor.Finding, _ error) {
	list, err := installation.TombstonesOf(x.Connections, x.DB).Failed(ctx, failingShown, FailureWindow)
	for _, t := range list.First {
		reason := "unknown reason"
		if t.LastError != nil {
			reason = *t.LastError
		}
		found = append(found, doctor.One(problem.Warning, fmt.Sprintf("%s, key %s", t.Table, t.Key),
			fmt.Sprintf("the cleanup of this row has failed, %s so far: %s", render.Counted(t.Attempts, "attempt"),
				reason),
			fmt.Sprintf("remove the cause; Sexton retries it later, or immediately with `sexton failures retry tombstones %d --database %s`",
				t.ID, x.DB.Name))...)
	}
	if list.More > 0 {
		found = append(found, doctor.One(problem.Warning, "table "+triggers.TombstoneTable,
			render.Counted(list.More, "more tombstone")+" failed", "see `sexton failures list`")...)
	}
	return found, err
}

// grantDefinitions returns the privileges on the tables of the definitions.
func grantDefinitions(g Granting) []migrate.TableGrant {
	t := grants{schema: g.Database.Schema}
	isInDatabase := func(name definitions.Name, database string) bool {
		if database != "" {
			return database == g.Database.Name
		}
		claims := func(schema string, tables []string) bool {
			return loosefk.Site{Schema: schema, Tables: tables}.Claims(name)
		}
		if claims(g.Database.Schema, g.Database.Tables) {
			return true
		}
		for _, one := range g.Config.Databases {
			if claims(one.Schema, one.Tables) {
				return false
			}
		}
		return true
	}
	settings, restores := g.Config.LooseForeignKeys.Undo, ""
	mark := func(name definitions.Name, mark string) {
		if settings.On() {
			t.list = append(t.list, migrate.TableGrant{Table: t.quoted(name), Referring: mark})
		}
	}
	if settings.On() {
		restores = ", INSERT" // An undo inserts the deleted rows again.
		for _, table := range append(slices.Clone(settings.ExcludeTables), settings.SparedUsers(),
			ghostuser.QueueTable) {
			if name, err := definitions.ParseName(table); err == nil {
				mark(name, migrate.Spared)
			}
		}
	}
	for _, d := range g.Definitions {
		if isInDatabase(d.Child, d.Database) {
			if d.OnDelete == definitions.Delete {
				t.add(d.Child, deletesRows+restores)
				mark(d.Child, migrate.Restored)
			} else {
				t.add(d.Child, changesRows)
			}
		}
		if isInDatabase(d.Parent, "") {
			t.add(d.Parent, readsRows+restores)
			mark(d.Parent, migrate.Restored)
		}
	}
	return t.list
}
