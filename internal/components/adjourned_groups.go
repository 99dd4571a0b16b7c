package components

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivertype"

	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/doctor"
	"sexton/internal/drain/dml"
	"sexton/internal/groupdelete"
	"sexton/internal/groupschedule"
	"sexton/internal/installation"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/problem"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

func adjournedGroups() *Component {
	return &Component{
		Key: migrate.AdjournedGroups, Units: map[string]string{groupschedule.Table: "group"},
		Backlog: readGroups, Failures: groupFailures(),
		Gauges: func(b Backlog) []metrics.Sample {
			groups, _ := b.Details.(waitingGroups)
			sample := func(metric string, value int64) metrics.Sample {
				return metrics.Sample{Metric: metric, Value: float64(value), Labels: []string{b.Database}}
			}
			return []metrics.Sample{
				sample(metrics.GroupsAdjourned, groups.Groups.Adjourned),
				sample(metrics.GroupsDestroying, groups.Groups.Destroying),
				sample(metrics.GroupsStuck, groups.Groups.Stuck),
				sample(metrics.GroupsUnscheduled, groups.Groups.Unscheduled),
			}
		},
		Plan: map[string]Planner{
			riverjobs.AdjournedGroupDeletion: Counting(groupschedule.CountDueSQL()+", "+groupschedule.NextDueSQL(),
				nil),
		},
		Grants: func(g Granting) []migrate.TableGrant {
			t := grants{schema: g.Database.Schema}
			t.below(definitions.Name{Table: cmp.Or(g.Config.AdjournedGroups.Groups.Table, "groups")}, migrate.Anyhow)
			if g.Config.AdjournedGroups.Groups.Table == "" {
				t.below(definitions.Name{Table: "projects"}, migrate.Anyhow)
			}
			return t.list
		},
		Checks: []Check{{Name: "adjourned_groups", When: Binding, Look: examineGroups}},
	}
}

// examineGroups reports problems that prevent the deletion of groups, and foreign keys
// whose cascades delete schedules.
func examineGroups(ctx context.Context, x *Exam) ([]doctor.Finding, error) {
	found, err := groupschedule.Examine(ctx, x.DB.Pool, x.DB.Names)
	if err != nil {
		return nil, err
	}
	// Resolve also reports missing indexes on the keys of tables below groups.
	plan, planned, err := groupdelete.Resolve(ctx, x.DB.Pool, x.DB.Names, riverjobs.GroupsOf(x.Config),
		x.Config.Has(migrate.GhostUsers))
	if plan != nil {
		for _, key := range plan.Blocking() {
			planned = append(planned, problem.Problem{
				Severity: problem.Info, Key: migrate.AdjournedGroups,
				Message: key + ": rows that are not deleted first prevent the deletion of their group",
			})
		}
	}
	return doctor.Findings(append(found, planned...)), err
}

// waitingGroups holds the counts of pending groups and the first of them for the output
// of status.
type waitingGroups struct {
	Groups struct {
		groupschedule.Backlog

		// First lists the groups that are being deleted, then the other groups in the
		// order in which they become due.
		First []groupschedule.Group `json:"first"`
	} `json:"groups"`
}

// readGroups reads the backlog of groups. It omits groups whose period has not ended.
func readGroups(ctx context.Context, _ Source, db database.Database) ([]Backlog, error) {
	backlog, err := ReadBacklog(ctx, db, migrate.AdjournedGroups)
	if err != nil {
		return nil, err
	}
	var details waitingGroups
	if details.Groups.Backlog, err = groupschedule.ReadBacklog(ctx, db.Pool, db.Names); err != nil {
		return nil, err
	}
	if details.Groups.First, err = groupschedule.ReadGroups(ctx, db.Pool, db.Names, Shown); err != nil {
		return nil, err
	}
	backlog.Details = details
	if counts := details.Groups.Backlog; counts.Period == 0 && counts.Adjourned > 0 {
		backlog.Lacks = "a period of 1 to 90 days in application_settings.deletion_adjourned_period"
	}
	return []Backlog{backlog}, nil
}

// Print prints counts that the table of backlogs does not have, and the first groups.
func (d waitingGroups) Print(w io.Writer) {
	b := d.Groups
	if len(b.First) == 0 {
		return
	}
	_, _ = fmt.Fprintf(w,
		"\nGroups to be deleted: %d in their period, %d due, %d deferred, %d being destroyed (%d stuck), %d with a mark and no schedule\n",
		b.Adjourned, b.Due, b.Failed, b.Destroying, b.Stuck, b.Unscheduled)
	PrintGroups(w, "", b.First)
}

// PrintGroups prints groups. If there are no groups, it prints the text in none.
func PrintGroups(w io.Writer, none string, groups []groupschedule.Group) {
	render.List(w, none, "GROUP\tPATH\tSTATE\tUSER\tMARKED\tDUE\tBEGINS\tDONE\tATTEMPTS\tERROR", groups,
		func(g groupschedule.Group) []any {
			user, done, begins := "-", "-", g.DestroyAt
			if g.UserID != nil {
				user = fmt.Sprint(*g.UserID)
			}
			if g.BegunAt != nil {
				begins, done = g.BegunAt, fmt.Sprint(g.Done)
				if g.Total != nil {
					done += fmt.Sprintf(" of %d", *g.Total)
				}
				if g.ETASeconds != nil && g.State == "destroying" {
					done += fmt.Sprintf(", %s left", render.Span(time.Duration(*g.ETASeconds*float64(time.Second))))
				}
			}
			return []any{
				g.GroupID, &g.Path, strings.ReplaceAll(g.State, "_", " "), user, g.MarkedOn, g.DueOn, begins, done,
				g.Attempts, &g.LastError,
			}
		})
}

// groupFailures returns the groups whose deletion or decision has failed.
func groupFailures() *Failures {
	read := func(ctx context.Context, all *installation.Connections, limit int) ([]groupschedule.Group, error) {
		return groupschedule.ReadFailed(ctx, all.Jobs().Pool, all.Jobs().Names, limit)
	}
	id := func(group groupschedule.Group) dml.ID { return group.GroupID }
	ids := func(ctx context.Context, all *installation.Connections) ([]dml.ID, error) {
		failed, err := read(ctx, all, FailureWindow)
		return render.Each(failed, id), err
	}
	failures := Keyed("groups", "group", "due now", "has not failed", read, id,
		func(_ *installation.Connections, group groupschedule.Group) Failure {
			failure := Failure{Error: group.LastError, Attempts: group.Attempts}
			if group.Path != "" {
				failure.What = " (" + group.Path + ")"
			}
			if group.BegunAt != nil {
				failure.Since = *group.BegunAt
				failure.What += ", its destruction"
			}
			if next := cmp.Or(group.DestroyAt, group.RetryAt); next != nil {
				failure.Next = *next
			}
			return failure
		},
		func(ctx context.Context, all *installation.Connections, id dml.ID) (retried int64, err error) {
			wanted := []dml.ID{id}
			if id.Text == "" {
				wanted, err = ids(ctx, all)
			}
			for _, id := range wanted {
				found, err := retryGroup(ctx, all, id)
				if err != nil {
					return retried, err
				}
				if found {
					retried++
				}
			}
			return retried, err
		})
	failures.Shows = func(ctx context.Context, all *installation.Connections) (func(*rivertype.JobRow) bool, error) {
		listed, err := ids(ctx, all)
		return func(row *rivertype.JobRow) bool {
			var args riverjobs.GroupDestroyArgs
			return row.Kind == riverjobs.GroupDestroy && json.Unmarshal(row.EncodedArgs, &args) == nil &&
				slices.Contains(listed, args.GroupID)
		}, err
	}
	return failures
}

// retryGroup retries a group now. It starts the unfinished job of the group. If the group
// has no job, it inserts one if the destruction has begun, and otherwise wakes the job
// that decides about groups.
func retryGroup(ctx context.Context, all *installation.Connections, id dml.ID) (found bool, err error) {
	db := all.Jobs()
	client, err := all.RiverClient()
	if err != nil {
		return false, err
	}
	// The insertion of a unique job needs READ COMMITTED.
	err = pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		failed, err := groupschedule.Retry(ctx, tx, db.Names, id.Text)
		if err != nil || failed == nil {
			return err
		}
		found = true
		switch {
		case failed.JobID != 0:
			_, err = client.JobRetryTx(ctx, tx, failed.JobID)
		case failed.BegunAt != nil:
			noUser := dml.IntegerID(0)
			if db.Names.GroupViews {
				noUser = dml.ID{}
			}
			args := riverjobs.GroupDestroyArgs{GroupID: failed.GroupID, UserID: *cmp.Or(failed.UserID, &noUser)}
			_, err = riverjobs.Enqueue(ctx, tx, db, riverjobs.GroupDestroy, args, nil)
		default:
			// The worker is woken explicitly, because an UPDATE of the failure sends no
			// NOTIFY.
			err = installation.Wake(ctx, tx, riverjobs.AdjournedGroupDeletion)
		}
		return err
	})
	return found, problem.Doing(err, "retry group %s", id)
}
