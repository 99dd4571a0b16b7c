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

// stuckAttempts is the number of failed attempts after which a group counts as stuck.
const stuckAttempts = 5

// Backlog holds the counts of groups to delete. Each count stops at 10,000.
type Backlog struct {
	// Period is the number of days between mark and deletion. It is 0 if no period is
	// set, and then no group is due.
	Period int64 `json:"period_days"`
	// Due counts due groups whose destruction has not begun. Capped reports that there
	// are more.
	Due    int64 `json:"due"`
	Capped bool  `json:"capped"`
	// Adjourned counts groups whose period has not ended.
	Adjourned int64 `json:"adjourned"`
	// Failed counts groups that are deferred because the decision failed or their
	// destruction could not begin. FailedCapped reports that there are more.
	Failed       int64 `json:"failed"`
	FailedCapped bool  `json:"failed_capped"`
	// Destroying counts groups whose destruction has begun. Stuck counts groups that have
	// failed at least stuckAttempts times.
	Destroying int64 `json:"destroying"`
	Stuck      int64 `json:"stuck"`
	// Unscheduled counts marked groups without a schedule, which are never destroyed.
	Unscheduled int64 `json:"unscheduled"`
}

// ReadBacklog counts the groups to delete.
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) (Backlog, error) {
	rows, _ := db.Query(ctx, names.Render(statement("backlog")), stuckAttempts)
	b, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Backlog])
	return b, problem.Doing(err, "count groups to be deleted")
}

// Group is one group that is marked, scheduled or being destroyed, or has failed.
type Group struct {
	GroupID dml.ID `json:"group_id"`
	// Path is empty if the group does not exist.
	Path     string  `json:"path"`
	ParentID *dml.ID `json:"parent_id"`
	// UserID is the user who scheduled the deletion, or nil for a mark without a
	// schedule.
	UserID *dml.ID `json:"user_id"`
	// MarkedOn and DueOn are dates (UTC). A group is due from the beginning of the day.
	MarkedOn *string `json:"marked_for_deletion_on"`
	DueOn    *string `json:"due_on"`
	// State is adjourned, due, deferred, enqueued, destroying, stuck or unscheduled.
	State string `json:"state"`
	// DestroyAt is the time of the next run of the group's job.
	DestroyAt *time.Time `json:"destroy_at"`
	BegunAt   *time.Time `json:"begun_at"`
	// Step is the current step. Done is the number of deleted rows, and Total an estimate
	// of all rows.
	Step  string `json:"step,omitempty"`
	Done  int64  `json:"done"`
	Total *int64 `json:"total"`
	// ETASeconds is the remaining time at the average speed since the beginning, or nil
	// if no row was deleted.
	ETASeconds *float64 `json:"eta_seconds"`
	Attempts   int64    `json:"attempts"`
	// LastError is the error of the last destruction. If the destruction has not begun,
	// it is the reason for which the destruction could not begin or the decision failed.
	LastError string `json:"last_error,omitempty"`
	// JobID is the id of the unfinished job that destroys the group, or 0.
	JobID int64 `json:"-"`
	// RetryAt is the time at which a deferred group is due again, or nil if the next pass
	// decides about the group.
	RetryAt *time.Time `json:"-"`
}

// ReadGroups returns the first groups: groups that are being destroyed, then the other
// groups in the order in which they become due.
func ReadGroups(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, limit int) ([]Group, error) {
	return read(ctx, db, names, limit, nil, false)
}

// ReadGroup returns one group, or nil if it is not marked, scheduled or being destroyed.
func ReadGroup(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, id string) (*Group, error) {
	return first(read(ctx, db, names, 1, &id, false))
}

// ReadFailed returns groups whose destruction or decision has failed, with the most
// attempts first.
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

// Retry makes a failed group due for the next pass and returns the group, or nil if it
// has not failed. The caller starts the job of the group. If the destruction has begun
// and has no job, the caller inserts one.
func Retry(ctx context.Context, tx pgx.Tx, names pgcatalog.Names, id string) (*Group, error) {
	if _, err := tx.Exec(ctx, names.Render(statement("retry")), id); err != nil {
		return nil, fmt.Errorf("retry group %s: %w", id, err)
	}
	return first(read(ctx, tx, names, 1, &id, true))
}

// Examine reports problems that prevent the deletion of groups. The key of a finding is
// the name of the object with the problem.
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
		return nil, nil // The check of the schema reports that the component is not installed.
	}
	var found problem.List
	add := func(severity problem.Severity, object, message, fix string) {
		found.Add(problem.Problem{Severity: severity, Key: object, Message: message, Fix: names.Render(fix)})
	}
	if len(lacking) > 0 {
		add(problem.Error, strings.Join(lacking, ", "),
			"these columns do not exist, so the default rule cannot decide who may remove a group",
			`add them, or create your own rule: CREATE OR REPLACE FUNCTION "sexton".may_remove_group(user_id bigint, group_id bigint)`)
	}
	if cascades != "" {
		add(problem.Warning, Table,
			"schedules are deleted with their user ("+cascades+
				"), and the trigger sexton_group_schedule_lost, which passes them on, "+
				"is missing or disabled: the groups keep their marks forever",
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
				add(problem.Warning, "groups", "no index begins with marked_for_deletion_on, so queries of marked groups read the whole table", fix)
			}
		}
	}
	err := examineState(ctx, db, names, add)
	return found, err
}

// examineState reports problems of the period and of single groups.
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
			fmt.Sprintf("%d marked for deletion without a schedule, which are never destroyed: %s",
				backlog.Unscheduled, sample(unscheduled)),
			"sexton group schedule ID --by USER, or sexton group cancel ID --by USER")
	}
	if backlog.Stuck > 0 {
		add(problem.Error, "group_destructions", fmt.Sprintf("%d stuck: %s", backlog.Stuck, sample(stuck)),
			"see the reasons in `sexton group list`")
	}
	return nil
}

// sample returns the names of at most three groups.
func sample(names []string) string {
	if len(names) > 3 {
		names[3] = "…"
	}
	return strings.Join(names, ", ")
}
