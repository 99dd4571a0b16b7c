package components

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/riverqueue/river/rivertype"

	"sexton/internal/component"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/extdiff"
	"sexton/internal/installation"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// diffTable is where diffs wait to be moved, removalTable where objects wait to be removed after their diffs.
const (
	diffTable    = "merge_request_diffs"
	removalTable = "external_diff_removals"
)

// diffsSwitch is the configuration key that has diffs moved, and the objects of deleted ones removed.
const diffsSwitch = "external_diffs.enabled"

func externalDiffs() *component.Component {
	return &component.Component{
		Key: migrate.ExternalDiffs, Units: map[string]string{diffTable: "diff", removalTable: "object"},
		Backlog: readDiffs, Left: readUnattended, Failures: diffFailures(), Checks: diffChecks(),
		Plan: map[string]component.Planner{riverjobs.ScheduleExternalDiffs: planDiffs},
		Measure: func(o *metrics.Options) {
			for _, reason := range extdiff.Skips() {
				o.DiffSkips = append(o.DiffSkips, string(reason))
			}
		},
	}
}

// readDiffs reads what is left to be moved, and to be removed, a bounded part of it. Nothing tells since when a diff waits.
func readDiffs(ctx context.Context, _ component.Place, db database.Database) ([]component.Backlog, error) {
	backlog, err := extdiff.ReadBacklog(ctx, db.Pool, db.Names)
	if err != nil {
		return nil, err
	}
	diffs := component.Backlog{Table: diffTable, Database: db.Name, Pending: backlog.Pending, Capped: backlog.Capped, Details: waitingDiffs{&backlog}}
	removals, err := component.ReadBacklog(ctx, db, "external_diff_removals")
	return []component.Backlog{diffs, removals}, err
}

// readUnattended reads what the trigger on diffs goes on queuing although no job removes objects any more; none where nothing waits.
func readUnattended(ctx context.Context, db database.Database) ([]component.Backlog, error) {
	queued, err := extdiff.ReadQueued(ctx, db.Pool, db.Names)
	if err != nil {
		return nil, err
	}
	if queued.Objects == 0 {
		return nil, nil
	}
	return []component.Backlog{{
		Table: removalTable, Database: db.Name, Pending: queued.Objects, Capped: queued.Capped, OldestAgeSeconds: queued.Oldest.Seconds(),
		Disabled: diffsSwitch,
	}}, nil
}

// planDiffs counts diffs that a run that begins now would hand on, and objects that it would remove.
func planDiffs(ctx context.Context, on dbsqlc.DBTX, c *config.Config, db database.Database) (planned component.Planned, err error) {
	planned.PerRun = c.ExternalDiffs.Limit
	sql := extdiff.Rule(c.ExternalDiffs.When).CountDueSQL(c.ExternalDiffs.Order == "size")
	if err := on.QueryRow(ctx, db.Names.Render(sql)).Scan(&planned.Due, &planned.Capped); err != nil {
		return planned, fmt.Errorf("count what is due: %w", err)
	}
	planned.Capped = planned.Capped || planned.Due > component.PendingCap
	planned.Due = min(planned.Due, component.PendingCap)
	err = planned.CountRemovals(ctx, on, db, extdiff.CountRemovalsSQL+", "+extdiff.NextRemovalSQL)
	return planned, err
}

// diffFailures are diffs that are due and stay in the database: they cannot be moved, or moving them has failed.
func diffFailures() *component.Failures {
	read := func(ctx context.Context, all *installation.Connections, limit int) ([]extdiff.Failure, error) {
		return extdiff.ReadFailed(ctx, all.Jobs().Pool, all.Jobs().Names, limit)
	}
	failures := component.Rows("diffs", "diff", "to be tried now", "is not in the database, or not any more", read,
		func(diff extdiff.Failure) int64 { return diff.DiffID },
		func(all *installation.Connections, diff extdiff.Failure) component.Failure {
			failure := component.Failure{Error: diff.Error, Attempts: diff.Attempts}
			if diff.Skip != "" {
				failure.Error = "skipped: " + strings.ReplaceAll(string(diff.Skip), "_", " ")
			}
			if diff.Next != nil {
				failure.Next = *diff.Next
			} else if cron, err := all.Config.ExternalDiffs.Schedule.Parse(); err == nil {
				failure.Next = cron.Next(time.Now().UTC()) // The rounds over all diffs begin with a tick.
			}
			return failure
		},
		func(ctx context.Context, all *installation.Connections, id int64) (int64, error) {
			wanted := []int64{id}
			if id == 0 {
				failed, err := read(ctx, all, component.FailureWindow)
				if err != nil {
					return 0, err
				}
				wanted = wanted[:0]
				for _, diff := range failed {
					wanted = append(wanted, diff.DiffID)
				}
			}
			return extdiff.Retry(ctx, all.Jobs().Pool, all.Jobs().Names, wanted)
		})
	failures.Shows = func(context.Context, *installation.Connections) (func(*rivertype.JobRow) bool, error) {
		return func(row *rivertype.JobRow) bool { return row.Kind == riverjobs.MigrateExternalDiff }, nil
	}
	return failures
}

// waitingDiffs is the backlog of diffs with bytes and reasons.
type waitingDiffs struct {
	Diffs *extdiff.Backlog `json:"diffs"`
}

// Print says how much is left to be moved, and why some of it is not.
func (d waitingDiffs) Print(w io.Writer) {
	b := d.Diffs
	printSweep(w, b.Stores)
	words.List(w, "", "\nUPLOAD OF DIFF\tSENT\tBYTES\tBEGAN\tLAST SEEN\tFAILURES\tLAST ERROR", b.Uploads, func(u extdiff.Unfinished) []any {
		return []any{u.DiffID, u.Sent, u.Bytes, u.BeganAt, u.SeenAt, u.Failures, u.Error}
	})
	if b.Pending+b.Removals == 0 {
		return
	}
	more := ""
	if b.BytesCapped {
		more = ", in the first of them"
	}
	words.Table(w, "\nDIFFS IN THE DATABASE\tBYTES"+more+"\tOBJECTS TO BE REMOVED", []any{b}, func(any) []any { return []any{b.Pending, b.Bytes, b.Removals} })
	words.Rows(w, slices.Sorted(maps.Keys(b.Skipped)), func(reason extdiff.Skip) []any { return []any{fmt.Sprintf("of these %s", reason), b.Skipped[reason]} })
}

// inUse leaves out stores that are no longer in use: each pass looks at the seals of the stores in use.
func inUse(stores []extdiff.StoreState) (used []extdiff.StoreState) {
	for _, s := range stores {
		if s.SealedAt != nil && stores[0].SealedAt.Sub(*s.SealedAt) < 24*time.Hour {
			used = append(used, s)
		}
	}
	return used
}

// printSweep prints the last look through each store that is in use for objects that no row refers to.
func printSweep(w io.Writer, stores []extdiff.StoreState) {
	swept := slices.DeleteFunc(inUse(stores), func(s extdiff.StoreState) bool { return s.SweepBeganAt == nil })
	words.List(w, "", "\nLAST SWEEP OF\tBEGAN\tENDED\tOBJECTS\tREMOVED\tFOREIGN\tHELD BACK", swept, func(s extdiff.StoreState) []any {
		ended := "under way"
		if s.SweepEndedAt != nil {
			ended = words.Moment(s.SweepEndedAt)
		}
		return []any{s.Store, s.SweepBeganAt, ended, s.Listed, s.Swept.Swept, s.Foreign, s.HeldBack}
	})
}
