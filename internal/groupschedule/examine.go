package groupschedule

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
	"sexton/internal/problem"
)

var (
	//go:embed queries/examine.sql
	examineSQL string
	//go:embed queries/examine_samples.sql
	samplesSQL string
)

// Examine reports what keeps groups from being deleted, or has them forgotten. Keys name what a finding is about.
func Examine(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) (problem.List, error) {
	var installed, unindexed bool
	var cascades string
	var lacking []string
	if err := db.QueryRow(ctx, names.Render(examineSQL)).Scan(&installed, &cascades, &lacking, &unindexed); err != nil {
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
		add(problem.Error, strings.Join(lacking, ", "), "these columns do not exist, so it cannot be told who may remove a group",
			`add them, or have a rule of your own: CREATE OR REPLACE FUNCTION "sexton".may_remove_group(user_id bigint, group_id bigint)`)
	}
	if cascades != "" {
		add(problem.Warning, "group_deletion_schedules",
			"a deleted user's schedules go with the user ("+cascades+"), and the trigger sexton_group_schedule_lost, which hands their groups over, "+
				"is missing or disabled: the groups keep their marks for ever",
			`DROP TRIGGER IF EXISTS sexton_group_schedule_lost ON "public".group_deletion_schedules; CREATE TRIGGER sexton_group_schedule_lost `+
				`AFTER DELETE ON "public".group_deletion_schedules FOR EACH ROW EXECUTE FUNCTION "sexton".group_schedule_lost()`)
	}
	if unindexed {
		add(problem.Warning, "groups", "marked groups are looked for without an index",
			`CREATE INDEX CONCURRENTLY ON "public".groups (marked_for_deletion_on) WHERE marked_for_deletion_on IS NOT NULL`)
	}
	err := examineState(ctx, db, names, add)
	return found, err
}

// examineState looks at groups rather than tables.
func examineState(
	ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, add func(severity problem.Severity, object, message, fix string),
) error {
	backlog, err := ReadBacklog(ctx, db, names)
	if err != nil {
		return err
	}
	if backlog.Period == 0 {
		add(problem.Error, "application_settings.deletion_adjourned_period", "no period of 1 to 90 days is set, so no group is ever due",
			`UPDATE "public".application_settings SET deletion_adjourned_period = 30; INSERT INTO "public".application_settings `+
				`(deletion_adjourned_period) SELECT 30 WHERE NOT EXISTS (SELECT FROM "public".application_settings)`)
	}
	if backlog.Unscheduled+backlog.Stuck == 0 {
		return nil
	}
	var unscheduled, stuck []int64
	if err := db.QueryRow(ctx, names.Render(samplesSQL), stuckAttempts).Scan(&unscheduled, &stuck); err != nil {
		return fmt.Errorf("look up groups: %w", err)
	}
	if backlog.Unscheduled > 0 {
		add(problem.Warning, "groups",
			fmt.Sprintf("%d marked for their deletion without a schedule, which are never destroyed: %s", backlog.Unscheduled, sample(unscheduled)),
			"sexton group schedule ID --by USER, or sexton group cancel ID --by USER")
	}
	if backlog.Stuck > 0 {
		add(problem.Error, "group_destructions", fmt.Sprintf("%d that do not get on: %s", backlog.Stuck, sample(stuck)), "sexton group list shows why")
	}
	return nil
}

// sample names three groups.
func sample(ids []int64) string {
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		names = append(names, fmt.Sprint(id))
	}
	if len(names) > 3 {
		names[3] = "…"
	}
	return strings.Join(names, ", ")
}
