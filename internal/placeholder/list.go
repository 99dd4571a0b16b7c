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

// State is where an ownerless placeholder stands.
type State string

// The states: it can be offered now; its job waits or runs; it was tried and is put off;
// it is in the queue of the users to be deleted; it was tried as often as it may be and
// will not be offered any more; the user is gone or no placeholder.
const (
	Due       State = "due"
	Scheduled State = "scheduled"
	PutOff    State = "put_off"
	InQueue   State = "queued"
	GivenUp   State = "given_up"
	Obsolete  State = "obsolete"
)

// Placeholder is one detail row of an ownerless placeholder.
type Placeholder struct {
	DetailID      int64      `json:"detail_id"`
	UserID        int64      `json:"user_id"`
	State         State      `json:"state"`
	Attempts      int64      `json:"attempts"`
	LastAttemptAt *time.Time `json:"last_attempt_at"`
	// NextAttemptAt is the earliest time of the next attempt if it is deferred.
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	// LastError says what kept the placeholder at its last attempt, BlockedBy the columns
	// that referred to it, as table.column.
	LastError string   `json:"last_error,omitempty"`
	BlockedBy []string `json:"blocked_by,omitempty"`
}

// ReadKept returns the first of the placeholders that something keeps, most often tried
// first.
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

// RetryAll gives all placeholders that are put off or given up their attempts back,
// 10,000 at most. Placeholders whose job waits are left to it. It returns how many rows
// it has changed.
func RetryAll(ctx context.Context, tx pgx.Tx, names pgcatalog.Names) (int64, error) {
	if err := batch.UsePath(ctx, tx, names); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, names.Render(statement("retry_all")))
	return tag.RowsAffected(), problem.Doing(err, "give placeholder users their attempts back")
}

// CountNegative returns how many ownerless placeholders have a negative number of
// attempts, 10,000 at most: an application's own table may allow it, and each is offered
// more often than the rules say.
func CountNegative(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) (rows int64, _ error) {
	const sql = `SELECT pg_catalog.count(*) FROM (
		SELECT FROM {detail} WHERE detail.namespace_id IS NULL AND detail.deletion_attempts < 0 LIMIT 10000) AS counted`
	err := db.QueryRow(ctx, names.Render(statements().Fill(sql))).Scan(&rows)
	return rows, problem.Doing(err, "count negative attempts")
}

// Why a placeholder cannot be tried again.
var (
	ErrUnknown  = errors.New("there are no details of a placeholder user with this id")
	ErrOwned    = errors.New("the group of its import is still there")
	ErrQueued   = errors.New("it is queued for deletion already")
	ErrObsolete = errors.New("the user is gone, or no placeholder any more")
)

// Retry gives a placeholder its attempts back, so that it can be offered at once: it is
// Due then. Where its job waits, for its time or as it has failed, that one starts at
// once and counts as the first attempt: it is Scheduled. What kept it stays to be seen
// until then.
func Retry(ctx context.Context, tx pgx.Tx, names pgcatalog.Names, userID int64) (State, error) {
	var rows, ownerless, free int64
	var placeholder, waits bool
	if err := tx.QueryRow(ctx, names.Render(statement("retry_look")), userID).Scan(&rows, &ownerless, &free,
		&placeholder, &waits); err != nil {
		return "", fmt.Errorf("look for placeholder user %d: %w", userID, err)
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
		return "", fmt.Errorf("give placeholder user %d its attempts back: %w", userID, err)
	}
	if !waits {
		return Due, nil
	}
	const pull = `SELECT "sexton".enqueue('` + DeleteKind + `', pg_catalog.jsonb_build_object('user_id', $1::bigint))`
	_, err := tx.Exec(ctx, names.Render(pull), userID)
	return Scheduled, problem.Doing(err, "start the job of placeholder user %d", userID)
}

// Backlog sums up the waiting placeholders.
type Backlog struct {
	// Pending counts the rows of ownerless placeholders that are to be deleted, those
	// tried and put off included. Capped tells that there are more than it says. Those in
	// the queue of the users to be deleted are counted there.
	Pending int64
	Capped  bool
	// OldestAgeSeconds is how long the first of the placeholders that can be offered
	// could be: since its retry period was over or, where it was never tried, since it
	// was created.
	OldestAgeSeconds float64
	// Deferred counts placeholders that were tried within the retry period, or at
	// infinity, which puts one off for ever; no further than Pending. The first of them
	// that can be offered again can be at DeferredUntil; DeferredReason says what kept
	// it.
	Deferred       int64
	DeferredUntil  *time.Time
	DeferredReason string
	// GivenUp counts placeholders that were tried as often as they may be and are there
	// still. It stops at 10,000, too.
	GivenUp int64
	// DeferredCapped reports that there are more deferred ones than Deferred says.
	DeferredCapped bool
}

// ReadBacklog counts what waits. The database has the one definition of it, which
// "sexton".backlog shows as well.
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, rules Rules) (Backlog, error) {
	rows, _ := db.Query(ctx, names.Render(statement("backlog")), rules.args()...)
	b, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Backlog])
	return b, problem.Doing(err, "count placeholder users")
}

// SaveRules tells the database which rules are in force, for "sexton".backlog, which
// knows no configuration. Where they stand there already nothing is written.
func SaveRules(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, rules Rules) error {
	_, err := db.Exec(ctx, names.Render(statement("save_rules")), rules.args()...)
	return problem.Doing(err, "save the rules of placeholder users")
}

// Stats are the statistics of one run.
type Stats struct {
	// Scheduled counts the placeholders that were offered: each an attempt and a job.
	Scheduled int64 `json:"scheduled"`
	// FinalAttempts counts the placeholders among them that will not be offered again.
	FinalAttempts int64 `json:"final_attempts"`
	// Waiting counts rows that were left as they are because a job for their user waits
	// or runs already, Changed rows that another session took, changed or had locked
	// meanwhile.
	Waiting int64 `json:"waiting"`
	Changed int64 `json:"changed"`
	// Failed counts rows that the database refused to touch. No attempt was counted for
	// them.
	Failed int64 `json:"failed"`
	// LastScheduledAt is the time of the run's last job; absent where there is none.
	LastScheduledAt *time.Time `json:"last_scheduled_at,omitempty"`
	// OverLimit reports that rows are left as the time was over, Interrupted that they
	// are left as the run was asked to stop.
	OverLimit   bool                `json:"over_limit"`
	Interrupted bool                `json:"interrupted,omitempty"`
	Errors      []batch.FaultCounts `json:"errors"`
}

// Item is one placeholder that was offered.
type Item struct {
	UserID int64
	// Attempt counts from 1. Final reports that it is the last one.
	Attempt     int64
	Final       bool
	ScheduledAt time.Time
}

// DeleteKind is the kind of the jobs that are inserted, one per placeholder, with the
// argument user_id. It is frozen.
const DeleteKind = "import_delete_placeholder_user"

// Rules say when a placeholder is offered.
type Rules struct {
	// MaxAttempts is how often; the last attempt is announced.
	MaxAttempts int
	// RetryPeriod has to be over, not just reached, since the attempt before.
	RetryPeriod time.Duration
}

// Reference is a column that keeps a placeholder alive while a row has its id there. A
// table is "table", in the database's own schema, or "schema.table".
type Reference struct {
	Table   string
	Columns []string
}
