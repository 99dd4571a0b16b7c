package groupschedule

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// stuckAttempts is how often a destruction has to fail to be called stuck.
const stuckAttempts = 5

// Backlog counts the groups to delete. No count goes beyond 10,000.
type Backlog struct {
	// Period is the number of days between mark and end; 0 where none is set, and nothing
	// is ever due.
	Period int64 `json:"period_days"`
	// Due counts groups whose period is over and which are not destroyed yet; Capped
	// reports that there are more.
	Due    int64 `json:"due"`
	Capped bool  `json:"capped"`
	// Adjourned counts groups whose period is not over.
	Adjourned int64 `json:"adjourned"`
	// Failed counts groups that are put off, as nothing could be decided or their
	// destruction could not begin; FailedCapped reports that there are more.
	Failed       int64 `json:"failed"`
	FailedCapped bool  `json:"failed_capped"`
	// Destroying counts groups whose destruction has begun, Stuck groups that have failed
	// 5 times or more, there or before.
	Destroying int64 `json:"destroying"`
	Stuck      int64 `json:"stuck"`
	// Unscheduled counts groups with a mark but without a requester: they are never
	// destroyed.
	Unscheduled int64 `json:"unscheduled"`
}

// ReadBacklog counts what there is to delete.
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) (Backlog, error) {
	rows, _ := db.Query(ctx, names.Render(statement("backlog")), stuckAttempts)
	b, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Backlog])
	return b, problem.Doing(err, "count groups to be deleted")
}

// Group is one group that is marked, scheduled or being destroyed, or has failed.
type Group struct {
	GroupID dml.ID `json:"group_id"`
	// Path is empty where only the destruction is left.
	Path     string  `json:"path"`
	ParentID *dml.ID `json:"parent_id"`
	// UserID is the user who scheduled the deletion; nil for a mark without a requester.
	UserID *dml.ID `json:"user_id"`
	// MarkedOn and DueOn are dates (UTC): due is a group from the beginning of that day
	// on.
	MarkedOn *string `json:"marked_for_deletion_on"`
	DueOn    *string `json:"due_on"`
	// State is adjourned, due, put_off, enqueued, destroying, stuck or unscheduled.
	State string `json:"state"`
	// DestroyAt is when the destruction is to begin or to be tried again, for an enqueued
	// group.
	DestroyAt *time.Time `json:"destroy_at"`
	BegunAt   *time.Time `json:"begun_at"`
	// Step names the rows being removed, of which Done rows are gone; Total is an
	// estimate.
	Step  string `json:"step,omitempty"`
	Done  int64  `json:"done"`
	Total *int64 `json:"total"`
	// ETASeconds is how long the rest takes at the pace since the beginning; nil where
	// there is nothing to go by.
	ETASeconds *float64 `json:"eta_seconds"`
	Attempts   int64    `json:"attempts"`
	// LastError is why the destruction failed last, or could not begin, or why nothing
	// could be decided.
	LastError string `json:"last_error,omitempty"`
	// JobID is the job that waits to destroy the group or is at it; 0 where there is
	// none.
	JobID int64 `json:"-"`
	// RetryAt is when a pass decides again about a group that was put off; nil where the
	// next one does.
	RetryAt *time.Time `json:"-"`
}

// ReadGroups lists the first groups: the ones that are being destroyed, then the others
// as they fall due.
func ReadGroups(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, limit int) ([]Group, error) {
	return read(ctx, db, names, limit, nil, false)
}

// ReadGroup returns one of them, or nil where the group is none.
func ReadGroup(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, id string) (*Group, error) {
	return first(read(ctx, db, names, 1, &id, false))
}

// ReadFailed returns groups whose destruction has failed, or about which nothing could be
// decided. Groups with the most attempts come first.
func ReadFailed(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, limit int) ([]Group, error) {
	return read(ctx, db, names, limit, nil, true)
}

func read(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, limit int, id *string,
	failed bool,
) ([]Group, error) {
	rows, _ := db.Query(ctx, names.Render(statement("backlog_groups")), limit, stuckAttempts, id, failed)
	groups, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Group])
	return groups, problem.Doing(err, "list groups to be deleted")
}

func first(groups []Group, err error) (*Group, error) {
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	return &groups[0], nil
}

// Retry lets the next pass decide about a failed group at once, and returns how it
// stands; nil where it has not failed, or not any more. A job that waits is the caller's
// to pull forward, and where there is none for a destruction that has begun, to insert.
func Retry(ctx context.Context, tx pgx.Tx, names pgcatalog.Names, id string) (*Group, error) {
	if _, err := tx.Exec(ctx, names.Render(statement("retry")), id); err != nil {
		return nil, fmt.Errorf("retry group %s: %w", id, err)
	}
	return first(read(ctx, tx, names, 1, &id, true))
}

// Examine reports what keeps groups from being deleted, or has them forgotten. Keys name
// what a finding is about.
func Examine(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) (problem.List, error) {
	var installed bool
	var cascades string
	var unindexed uint32
	var lacking []string
	if err := db.QueryRow(ctx, names.Render(statement("examine"))).Scan(&installed, &cascades, &lacking,
		&unindexed); err != nil {
		return nil, fmt.Errorf("look up tables of groups: %w", err)
	}
	if !installed {
		return nil, nil // The check of the schema says so.
	}
	var found problem.List
	add := func(severity problem.Severity, object, message, fix string) {
		found.Add(problem.Problem{Severity: severity, Key: object, Message: message, Fix: names.Render(fix)})
	}
	if len(lacking) > 0 {
		add(problem.Error, strings.Join(lacking, ", "),
			"these columns do not exist, so it cannot be told who may remove a group",
			`add them, or have a rule of your own: CREATE OR REPLACE FUNCTION "sexton".may_remove_group(user_id bigint, group_id bigint)`)
	}
	if cascades != "" {
		add(problem.Warning, Table,
			"a deleted user's schedules go with the user ("+cascades+
				"), and the trigger sexton_group_schedule_lost, which hands their groups over, "+
				"is missing or disabled: the groups keep their marks for ever",
			`DROP TRIGGER IF EXISTS sexton_group_schedule_lost ON "public".group_deletion_schedules; CREATE TRIGGER sexton_group_schedule_lost `+
				`AFTER DELETE ON "public".group_deletion_schedules FOR EACH ROW EXECUTE FUNCTION "sexton".group_schedule_lost()`)
	}
	if unindexed != 0 {
		read, err := pgcatalog.Read(ctx, db, []uint32{unindexed})
		if err != nil {
			return nil, err
		}
		if groups := read[unindexed]; groups != nil {
			if fix := groups.Unindexed("marked_for_deletion_on"); fix != "" {
				add(problem.Warning, "groups", "marked groups are looked for without an index", fix)
			}
		}
	}
	err := examineState(ctx, db, names, add)
	return found, err
}

// examineState looks at groups rather than tables.
func examineState(
	ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names,
	add func(severity problem.Severity, object, message, fix string),
) error {
	backlog, err := ReadBacklog(ctx, db, names)
	if err != nil {
		return err
	}
	if backlog.Period == 0 {
		add(problem.Error, "application_settings.deletion_adjourned_period",
			"no period of 1 to 90 days is set, so no group is ever due",
			`UPDATE "public".application_settings SET deletion_adjourned_period = 30; INSERT INTO "public".application_settings `+
				`(deletion_adjourned_period) SELECT 30 WHERE NOT EXISTS (SELECT FROM "public".application_settings)`)
	}
	if backlog.Unscheduled+backlog.Stuck == 0 {
		return nil
	}
	var unscheduled, stuck []string
	if err := db.QueryRow(ctx, names.Render(statement("examine_samples")), stuckAttempts).Scan(&unscheduled,
		&stuck); err != nil {
		return fmt.Errorf("look up groups: %w", err)
	}
	if backlog.Unscheduled > 0 {
		add(problem.Warning, "groups",
			fmt.Sprintf("%d marked for their deletion without a schedule, which are never destroyed: %s",
				backlog.Unscheduled, sample(unscheduled)),
			"sexton group schedule ID --by USER, or sexton group cancel ID --by USER")
	}
	if backlog.Stuck > 0 {
		add(problem.Error, "group_destructions", fmt.Sprintf("%d that do not get on: %s", backlog.Stuck, sample(stuck)),
			"sexton group list shows why")
	}
	return nil
}

// sample names three groups.
func sample(names []string) string {
	if len(names) > 3 {
		names[3] = "…"
	}
	return strings.Join(names, ", ")
}
