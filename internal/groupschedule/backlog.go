package groupschedule

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

// stuckAttempts is how often a destruction has to fail to be called stuck.
const stuckAttempts = 5

// backlogCap is where ReadBacklog stops to count.
const backlogCap = 10_001

// Backlog counts the groups to delete. No count goes beyond 10,000.
type Backlog struct {
	// Period is the number of days between mark and end; 0 where none is set, and nothing is ever due.
	Period int64 `json:"period_days"`
	// Due counts groups whose period is over and which are not destroyed yet; Capped tells that there are more.
	Due    int64 `json:"due"`
	Capped bool  `json:"capped"`
	// OldestAge is for how long the first of them has been due.
	OldestAge time.Duration `json:"-"`
	// Adjourned counts groups whose period is not over.
	Adjourned int64 `json:"adjourned"`
	// Failed counts groups that are put off, as nothing could be decided or their destruction could not begin.
	Failed int64 `json:"failed"`
	// Destroying counts groups whose destruction has begun, Stuck groups that have failed 5 times or more, there or before.
	Destroying int64 `json:"destroying"`
	Stuck      int64 `json:"stuck"`
	// Unscheduled counts groups with a mark but without a requester: they are never destroyed.
	Unscheduled int64 `json:"unscheduled"`
}

// attemptsSQL are the groups that have failed: their destruction, or what comes before it.
const attemptsSQL = `
SELECT destruction.group_id, destruction.attempts FROM "sexton".group_destructions AS destruction
UNION ALL
SELECT failure.group_id, failure.attempts FROM "sexton".group_deletion_failures AS failure`

// The days are counted from the cutoff: today less the period. What is due the database defines, for "sexton".backlog as well.
const backlogSQL = `
SELECT
    coalesce(today.day - today.cutoff, 0)::bigint,
    due.pending,
    due.capped,
    due.oldest_age_seconds,
    (SELECT pg_catalog.count(*) FROM (
        SELECT FROM "public".group_deletion_schedules AS schedule JOIN "public".groups ON groups.id = schedule.group_id
        WHERE groups.marked_for_deletion_on >= coalesce(today.cutoff, '-infinity')
        LIMIT $1
    ) AS counted),
    due.deferred,
    (SELECT pg_catalog.count(*) FROM (SELECT FROM "sexton".group_destructions LIMIT $1) AS counted),
    (SELECT pg_catalog.count(*) FROM (SELECT FROM (` + attemptsSQL + `) AS failed WHERE failed.attempts >= $2 LIMIT $1) AS counted),
    (SELECT pg_catalog.count(*) FROM (
        SELECT FROM "public".groups
        WHERE groups.marked_for_deletion_on IS NOT NULL
          AND NOT EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = groups.id)
        LIMIT $1
    ) AS counted)
FROM (SELECT (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date, "sexton".group_deletion_cutoff()) AS today (day, cutoff)
CROSS JOIN "sexton".backlog_of_adjourned_groups() AS due`

// ReadBacklog counts what there is to delete.
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) (Backlog, error) {
	var b Backlog
	var age float64
	err := db.QueryRow(ctx, names.Render(backlogSQL), backlogCap, stuckAttempts).
		Scan(&b.Period, &b.Due, &b.Capped, &age, &b.Adjourned, &b.Failed, &b.Destroying, &b.Stuck, &b.Unscheduled)
	if err != nil {
		return Backlog{}, fmt.Errorf("count groups to be deleted: %w", err)
	}
	b.OldestAge = time.Duration(age * float64(time.Second))
	for _, count := range []*int64{&b.Adjourned, &b.Destroying, &b.Stuck, &b.Unscheduled} {
		*count = min(*count, backlogCap-1)
	}
	return b, nil
}

// Group is one group that is marked, scheduled or being destroyed.
type Group struct {
	GroupID int64 `json:"group_id"`
	// Path is empty where only the destruction is left.
	Path     string `json:"path"`
	ParentID *int64 `json:"parent_id"`
	// UserID is who scheduled the deletion; nil for a mark without a requester.
	UserID *int64 `json:"user_id"`
	// MarkedOn and DueOn are dates (UTC): due is a group from the beginning of that day on.
	MarkedOn *string `json:"marked_for_deletion_on"`
	DueOn    *string `json:"due_on"`
	// State is adjourned, due, put_off, enqueued, destroying, stuck or unscheduled.
	State string `json:"state"`
	// DestroyAt is when the destruction is to begin or to be tried again, for an enqueued group.
	DestroyAt *time.Time `json:"destroy_at"`
	BegunAt   *time.Time `json:"begun_at"`
	// Step names the rows being removed, of which Done rows are gone; Total is an estimate.
	Step  string `json:"step,omitempty"`
	Done  int64  `json:"done"`
	Total *int64 `json:"total"`
	// ETASeconds is how long the rest takes at the pace since the beginning; nil where there is nothing to go by.
	ETASeconds *float64 `json:"eta_seconds"`
	Attempts   int64    `json:"attempts"`
	// LastError is why the destruction failed last, or could not begin, or why nothing could be decided.
	LastError string `json:"last_error,omitempty"`
}

const listSQL = `
WITH today (day, cutoff) AS (
    SELECT (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date, "sexton".group_deletion_cutoff()
), listed (id) AS (
    SELECT groups.id FROM "public".groups WHERE groups.marked_for_deletion_on IS NOT NULL
    UNION
    SELECT schedule.group_id FROM "public".group_deletion_schedules AS schedule
    UNION
    SELECT destruction.group_id FROM "sexton".group_destructions AS destruction
), jobs AS (
    SELECT DISTINCT ON (1) (job.args OPERATOR(pg_catalog.->>) 'group_id')::bigint AS group_id, job.scheduled_at
    FROM "sexton".river_job AS job
    WHERE job.kind = 'group_destroy' AND job.state IN ('available', 'pending', 'running', 'retryable', 'scheduled')
    ORDER BY 1, job.scheduled_at
)
SELECT
    listed.id, coalesce(groups.path, ''), groups.parent_id, coalesce(schedule.user_id, destruction.user_id),
    groups.marked_for_deletion_on::pg_catalog.text,
    CASE WHEN schedule.group_id IS NOT NULL THEN (groups.marked_for_deletion_on + (today.day - today.cutoff) + 1)::pg_catalog.text END,
    CASE
        WHEN greatest(destruction.attempts, failure.attempts) >= $2 THEN 'stuck'
        WHEN destruction.group_id IS NOT NULL THEN 'destroying'
        WHEN schedule.group_id IS NULL OR groups.marked_for_deletion_on IS NULL THEN 'unscheduled'
        WHEN jobs.group_id IS NOT NULL THEN 'enqueued'
        WHEN failure.retry_at > pg_catalog.statement_timestamp() THEN 'put_off'
        WHEN groups.marked_for_deletion_on < today.cutoff THEN 'due'
        ELSE 'adjourned'
    END,
    jobs.scheduled_at, destruction.begun_at, coalesce(destruction.step, ''), coalesce(destruction.done, 0), destruction.total,
    CASE WHEN destruction.done > 0 AND destruction.total >= destruction.done
        THEN extract(epoch FROM destruction.updated_at - destruction.begun_at) * (destruction.total - destruction.done) / destruction.done
    END::pg_catalog.float8,
    coalesce(destruction.attempts, failure.attempts, 0)::bigint, coalesce(destruction.last_error, failure.last_error, '')
FROM listed
CROSS JOIN today
LEFT JOIN "public".groups ON groups.id = listed.id
LEFT JOIN "public".group_deletion_schedules AS schedule ON schedule.group_id = listed.id
LEFT JOIN "sexton".group_destructions AS destruction ON destruction.group_id = listed.id
LEFT JOIN "sexton".group_deletion_failures AS failure ON failure.group_id = listed.id
LEFT JOIN jobs ON jobs.group_id = listed.id
WHERE $3::bigint IS NULL OR listed.id = $3
ORDER BY destruction.begun_at NULLS LAST, groups.marked_for_deletion_on, listed.id
LIMIT $1`

// ReadGroups lists the first groups: the ones that are being destroyed, then the others as they fall due.
func ReadGroups(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, limit int) ([]Group, error) {
	return readGroups(ctx, db, names, limit, nil)
}

// ReadGroup returns one of them, or nil where the group is none.
func ReadGroup(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, id int64) (*Group, error) {
	groups, err := readGroups(ctx, db, names, 1, &id)
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	return &groups[0], nil
}

func readGroups(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, limit int, id *int64) ([]Group, error) {
	rows, err := db.Query(ctx, names.Render(listSQL), limit, stuckAttempts, id)
	if err != nil {
		return nil, fmt.Errorf("list groups to be deleted: %w", err)
	}
	groups, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Group])
	if err != nil {
		return nil, fmt.Errorf("list groups to be deleted: %w", err)
	}
	return groups, nil
}
