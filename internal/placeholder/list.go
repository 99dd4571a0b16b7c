package placeholder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// State is the state of an ownerless placeholder.
type State string

const (
	// Due means that the placeholder can be offered now.
	Due State = "due"
	// Scheduled means that the placeholder's job is waiting or running.
	Scheduled State = "scheduled"
	// Deferred means that the placeholder is deferred after an attempt.
	Deferred State = "deferred"
	// InQueue means that the placeholder is in the queue of users to be deleted.
	InQueue State = "queued"
	// GivenUp means that the placeholder has no attempts left.
	GivenUp State = "given_up"
	// Obsolete means that the user does not exist or is not a placeholder.
	Obsolete State = "obsolete"
)

// Placeholder is one detail row of an ownerless placeholder.
type Placeholder struct {
	DetailID      int64      `json:"detail_id"`
	UserID        int64      `json:"user_id"`
	State         State      `json:"state"`
	Attempts      int64      `json:"attempts"`
	LastAttemptAt *time.Time `json:"last_attempt_at"`
	// NextAttemptAt is the earliest time of the next attempt of a deferred placeholder.
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	// LastError is the reason for which the last attempt did not delete the placeholder.
	// BlockedBy lists the columns that referred to the placeholder, as table.column.
	LastError string   `json:"last_error,omitempty"`
	BlockedBy []string `json:"blocked_by,omitempty"`
}

// ReadKept returns placeholders whose last attempt failed, with the most attempts first.
func ReadKept(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, rules Rules,
	limit int,
) ([]Placeholder, error) {
	const from = `(
    SELECT worst.* FROM (
        SELECT detail.* FROM {detail}
        WHERE detail.namespace_id IS NULL
        ORDER BY detail.deletion_attempts DESC, detail.last_deletion_attempt_at DESC, detail.id DESC
        LIMIT 10000
    ) AS worst WHERE worst.last_error IS NOT NULL LIMIT $3
)`
	const order = "\nORDER BY tried.deletion_attempts DESC, tried.id"
	return read[Placeholder](ctx, db, names, statement("list", "from", from)+order, rules, limit)
}

func read[T any](ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, sql string, rules Rules,
	args ...any,
) ([]T, error) {
	rows, _ := db.Query(ctx, names.Render(sql), append(rules.args(), args...)...)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	return found, problem.Doing(err, "read placeholder users")
}

// RetryAll sets the attempts of at most 10,000 deferred or given up placeholders to 0. It
// skips placeholders whose job is waiting or running. It returns the number of rows.
func RetryAll(ctx context.Context, tx pgx.Tx, names pgcatalog.Names) (int64, error) {
	if err := batch.UsePath(ctx, tx, names); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, names.Render(statement("retry_all")))
	return tag.RowsAffected(), problem.Doing(err, "reset the attempts of placeholder users")
}

// These errors are the reasons for which a placeholder cannot be retried.
var (
	ErrUnknown  = errors.New("there is no placeholder user with this id")
	ErrOwned    = errors.New("the group of its import still exists")
	ErrQueued   = errors.New("the user is already queued for deletion")
	ErrObsolete = errors.New("the user does not exist or is not a placeholder")
)

// Retry sets the attempts of a placeholder to 0, so that it is Due. If the placeholder's
// job is waiting, Retry starts the job now and counts it as the first attempt, so that
// the placeholder is Scheduled. The last error is kept until the attempt.
func Retry(ctx context.Context, tx pgx.Tx, names pgcatalog.Names, userID int64) (State, error) {
	var rows, ownerless, free int64
	var placeholder, waits bool
	if err := tx.QueryRow(ctx, names.Render(statement("retry_state")), userID).Scan(&rows, &ownerless, &free,
		&placeholder, &waits); err != nil {
		return "", fmt.Errorf("read placeholder user %d: %w", userID, err)
	}
	switch {
	case rows == 0:
		return "", ErrUnknown
	case ownerless == 0:
		return "", ErrOwned
	case free == 0:
		return "", ErrQueued
	case !placeholder:
		return "", ErrObsolete
	}
	if err := batch.UsePath(ctx, tx, names); err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, names.Render(statement("retry")), userID, waits); err != nil {
		return "", fmt.Errorf("reset the attempts of placeholder user %d: %w", userID, err)
	}
	if !waits {
		return Due, nil
	}
	const pull = `SELECT "sexton".enqueue('` + DeleteKind + `', pg_catalog.jsonb_build_object('user_id', $1::bigint))`
	_, err := tx.Exec(ctx, names.Render(pull), userID)
	return Scheduled, problem.Doing(err, "start the job of placeholder user %d", userID)
}

// Backlog holds the counts of ownerless placeholders.
type Backlog struct {
	// Pending counts ownerless placeholders that have attempts left, including deferred
	// ones. Capped reports that there are more. Placeholders in the queue of users to be
	// deleted are not included, because the backlog of that queue counts them.
	Pending int64
	Capped  bool
	// OldestAgeSeconds is the time since the first due placeholder became due: since the
	// end of its retry period or, if it was never tried, since its creation.
	OldestAgeSeconds float64
	// Deferred counts placeholders that were tried within the retry period, up to the
	// limit of Pending. It includes placeholders whose last attempt is set to infinity,
	// which defers them forever. DeferredUntil is the time at which the first of them can
	// be offered again, and DeferredReason is the reason of its deferral.
	Deferred       int64
	DeferredUntil  *time.Time
	DeferredReason string
	// GivenUp counts placeholders that still exist after the maximum number of attempts,
	// up to 10,000.
	GivenUp int64
	// DeferredCapped reports that more placeholders are deferred than Deferred counts.
	DeferredCapped bool
}

// ReadBacklog reads the backlog with the SQL function that the view "sexton".backlog also
// uses.
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, rules Rules) (Backlog, error) {
	rows, _ := db.Query(ctx, names.Render(statement("backlog")), rules.args()...)
	b, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Backlog])
	return b, problem.Doing(err, "count placeholder users")
}

// SaveRules stores the rules in the database, because the view "sexton".backlog cannot
// read the configuration. If the same rules are already stored, it writes nothing.
func SaveRules(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, rules Rules) error {
	_, err := db.Exec(ctx, names.Render(statement("save_rules")), rules.args()...)
	return problem.Doing(err, "save the rules of placeholder users")
}

// Stats are the statistics of one run.
type Stats struct {
	// Scheduled counts the placeholders that were offered, each with an attempt and a
	// job.
	Scheduled int64 `json:"scheduled"`
	// FinalAttempts counts the offered placeholders that have no attempts left.
	FinalAttempts int64 `json:"final_attempts"`
	// Waiting counts rows that were skipped because a job for their user is waiting or
	// running. Changed counts rows that were skipped because another session changed or
	// locked them.
	Waiting int64 `json:"waiting"`
	Changed int64 `json:"changed"`
	// Failed counts rows whose update failed. No attempt was counted for them.
	Failed int64 `json:"failed"`
	// LastScheduledAt is the time of the run's last job.
	LastScheduledAt *time.Time `json:"last_scheduled_at,omitempty"`
	// OverLimit reports that rows are left because the runtime has passed, and
	// Interrupted that they are left because the worker was stopped.
	OverLimit   bool                `json:"over_limit"`
	Interrupted bool                `json:"interrupted,omitempty"`
	Errors      []batch.FaultCounts `json:"errors"`
}

// Item is a placeholder that was offered, for the log.
type Item struct {
	UserID int64
	// Attempt counts from 1. Final reports that it is the last one.
	Attempt     int64
	Final       bool
	ScheduledAt time.Time
}

// DeleteKind is the kind of the job that deletes one placeholder, with the argument
// user_id. The name must not change, because stored jobs have it.
const DeleteKind = "import_delete_placeholder_user"

// Rules limit the attempts to delete a placeholder.
type Rules struct {
	// MaxAttempts is the number of attempts. The last one is logged as final.
	MaxAttempts int
	// RetryPeriod is the time between two attempts. The next attempt is due if more than
	// this time has passed.
	RetryPeriod time.Duration
}

// Reference names columns of one table. A placeholder is kept while a row has its id in
// one of them. The name of a table is "table", in the database's own schema, or
// "schema.table".
type Reference struct {
	Table   string
	Columns []string
}
