package components

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivertype"

	"sexton/internal/blobstore"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/doctor"
	"sexton/internal/extdiff"
	"sexton/internal/installation"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

func externalDiffs() *Component {
	return &Component{
		Key: migrate.ExternalDiffs, Units: map[string]string{extdiff.Table: "diff", extdiff.RemovalTable: "object"},
		Backlog: readDiffs, Failures: diffFailures(), Checks: diffChecks(),
		Plan: map[string]Planner{riverjobs.ScheduleExternalDiffs: planDiffs},
		Measure: func(o *metrics.Options) {
			for _, reason := range extdiff.Skips() {
				o.DiffSkips = append(o.DiffSkips, string(reason))
			}
		},
	}
}

// readDiffs reads the backlogs of diffs to move and of objects to remove. Its counts have
// limits. The age of pending diffs is unknown.
func readDiffs(ctx context.Context, _ Source, db database.Database) ([]Backlog, error) {
	backlog, err := extdiff.ReadBacklog(ctx, db.Pool, db.Names)
	if err != nil {
		return nil, err
	}
	diffs := Backlog{
		Table: extdiff.Table, Database: db.Name, Pending: backlog.Pending, Capped: backlog.Capped,
		Details: waitingDiffs{&backlog},
	}
	removals, err := ReadBacklog(ctx, db, extdiff.RemovalTable)
	return []Backlog{diffs, removals}, err
}

// planDiffs counts the diffs for which a pass would insert jobs, and the objects that the
// pass would remove.
func planDiffs(ctx context.Context, on dbsqlc.DBTX, c *config.Config,
	db database.Database,
) (planned Planned, err error) {
	planned.PerRun = c.ExternalDiffs.Limit
	sql := extdiff.Rule(c.ExternalDiffs.When).CountDueSQL()
	if err := on.QueryRow(ctx, db.Names.Render(sql)).Scan(&planned.Due, &planned.Capped); err != nil {
		return planned, fmt.Errorf("count due rows: %w", err)
	}
	planned.Capped = planned.Capped || planned.Due > PendingCap
	planned.Due = min(planned.Due, PendingCap)
	err = planned.CountRemovals(ctx, on, db, extdiff.CountRemovalsSQL+", "+extdiff.NextRemovalSQL)
	return planned, err
}

// diffFailures lists the due diffs that cannot be moved, or whose move has failed.
func diffFailures() *Failures {
	read := func(ctx context.Context, all *installation.Connections, limit int) ([]extdiff.Failure, error) {
		return extdiff.ReadFailed(ctx, all.Jobs().Pool, all.Jobs().Names, limit)
	}
	id := func(diff extdiff.Failure) int64 { return diff.DiffID }
	failures := Rows("diffs", "diff", "due now", "is not in the database", read, id,
		func(all *installation.Connections, diff extdiff.Failure) Failure {
			failure := Failure{Error: diff.Error, Attempts: diff.Attempts}
			if diff.Skip != "" {
				failure.Error = "skipped: " + strings.ReplaceAll(string(diff.Skip), "_", " ")
			}
			if diff.Next != nil {
				failure.Next = *diff.Next
			} else if cron, err := all.Config.ExternalDiffs.Schedule.Parse(); err == nil {
				// A diff without its own retry time is tried by the next scheduled run,
				// which begins with the first diff.
				failure.Next = cron.Next(time.Now().UTC())
			}
			return failure
		},
		func(ctx context.Context, all *installation.Connections, one int64) (int64, error) {
			wanted := []int64{one}
			if one == 0 {
				failed, err := read(ctx, all, FailureWindow)
				if err != nil {
					return 0, err
				}
				wanted = render.Each(failed, id)
			}
			return extdiff.Retry(ctx, all.Jobs().Pool, all.Jobs().Names, wanted)
		})
	failures.Shows = func(context.Context, *installation.Connections) (func(*rivertype.JobRow) bool, error) {
		return func(row *rivertype.JobRow) bool { return row.Kind == riverjobs.MigrateExternalDiff }, nil
	}
	return failures
}

// waitingDiffs holds the pending diffs for the output of status: their total bytes, and
// the number of skipped diffs by reason.
type waitingDiffs struct {
	Diffs *extdiff.Backlog `json:"diffs"`
}

// Print prints the pending bytes, and counts of skipped diffs by reason.
func (d waitingDiffs) Print(w io.Writer) {
	b := d.Diffs
	if b.Pending+b.Removals == 0 {
		return
	}
	more := ""
	if b.BytesCapped {
		more = ", in the first of them"
	}
	render.Table(w, "\nDIFFS IN THE DATABASE\tBYTES"+more+"\tOBJECTS TO BE REMOVED", []any{b},
		func(any) []any { return []any{b.Pending, b.Bytes, b.Removals} })
	render.Table(w, "", slices.Sorted(maps.Keys(b.Skipped)),
		func(reason extdiff.Skip) []any { return []any{fmt.Sprintf("of these %s", reason), b.Skipped[reason]} })
}

// probeTimeout limits doctor's test of the store.
const probeTimeout = 30 * time.Second

func diffChecks() []Check {
	anyway := func(*Exam) bool { return true }
	return []Check{
		{Name: "external_diffs", When: Binding, Needs: anyway, Look: probeDiffStore},
		{Name: "diffs_trigger", When: Work, Look: diffsTrigger},
		{Name: "diffs_texts", When: Work, Look: diffsTexts},
		{Name: "skipped_diffs", When: Work, Look: skippedDiffs},
	}
}

// manySkipped is the number of skipped diffs at which the finding becomes a warning,
// because that number of diffs probably has one cause.
const manySkipped = 100

// skippedDiffs reports due diffs that are skipped until their rows change.
func skippedDiffs(ctx context.Context, x *Exam) ([]doctor.Finding, error) {
	skipped, err := extdiff.ReadSkipped(ctx, x.DB.Pool, x.DB.Names)
	if err != nil {
		return nil, err
	}
	var total int64
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		total += skipped[reason]
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, skipped[reason]))
	}
	if total == 0 {
		return nil, nil
	}
	severity := problem.Info
	if total >= manySkipped {
		severity = problem.Warning
	}
	return doctor.One(severity, extdiff.Table,
		fmt.Sprintf("%s cannot be moved and stay in the database: %s", render.Counted(total, "diff"),
			strings.Join(reasons, ", ")),
		x.DB.Names.Render(`look at SELECT diff_id, skip_reason FROM "sexton".external_diffs WHERE skip_reason IS NOT NULL`)), nil
}

// diffsTexts reports a column diff of a type other than text. In a bytea column, base64
// cannot be recognized, because the encoding of the text is unknown.
func diffsTexts(ctx context.Context, x *Exam) ([]doctor.Finding, error) {
	var kind string
	err := x.DB.Pool.QueryRow(ctx, x.DB.Names.Render(`
		SELECT pg_catalog.format_type(attribute.atttypid, attribute.atttypmod)
		FROM pg_catalog.pg_attribute AS attribute
		JOIN pg_catalog.pg_type AS type ON type.oid = attribute.atttypid
		WHERE attribute.attrelid = pg_catalog.to_regclass('"public".merge_request_diff_files')::pg_catalog.oid
		  AND attribute.attname = 'diff' AND NOT attribute.attisdropped AND type.typcategory <> 'S'`)).Scan(&kind)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up the type of diffs: %w", err)
	}
	return doctor.One(problem.Error, "merge_request_diff_files.diff",
		fmt.Sprintf("the column is of type %s, but only texts can be moved: change the type, or disable external_diffs", kind),
		x.DB.Names.Render(`ALTER TABLE "public".merge_request_diff_files ALTER diff TYPE text USING pg_catalog.convert_from(diff, 'UTF8')`)), nil
}

// diffsTrigger reports a missing or disabled trigger for deleted diffs. An application
// that replaces its table, or restores it from a dump, loses triggers without an error.
func diffsTrigger(ctx context.Context, x *Exam) ([]doctor.Finding, error) {
	state, fix, err := extdiff.LostTrigger(ctx, x.DB.Pool, x.DB.Names)
	if err != nil || state == "" {
		return nil, err
	}
	return doctor.One(problem.Warning, extdiff.Table,
		fmt.Sprintf("the trigger %s is %s: the objects of deleted diffs are not removed", extdiff.TriggerName, state),
		x.DB.Names.Render(fix)), nil
}

// probeDiffStore writes an object to the store, reads it and deletes it. It then checks
// the owner of the objects.
func probeDiffStore(ctx context.Context, x *Exam) ([]doctor.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	engine, err := riverjobs.OpenDiffs(ctx, x.Config, x.DB, installation.Holder())
	if err == nil {
		err = engine.Store.Probe(ctx, installation.Holder())
	}
	if err == nil && x.DB.Pool != nil {
		err = installed(engine.Owner.Check(ctx))
	}
	if err == nil {
		return nil, nil
	}
	found := x.Config.Problem("external_diffs.bucket", err.Error(),
		"check that the store is running and that this machine can reach it")
	if refused, ok := errors.AsType[*blobstore.AccessError](err); ok {
		found = x.Config.Problem(refused.Key, refused.Store+": "+refused.Reason, refused.Fix)
	}
	return doctor.Findings(problem.List{found}), nil
}

// These SQLSTATEs mean that external_diffs is not completely installed.
const (
	undefinedTable    = "42P01"
	undefinedFunction = "42883"
)

// installed returns nil if the error means that external_diffs is not completely
// installed, which the check of the schema reports. It returns other errors unchanged.
func installed(err error) error {
	if state := pgcatalog.SQLState(err); state == undefinedTable || state == undefinedFunction {
		return nil
	}
	return err
}
