package placeholder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

// State is where an ownerless placeholder stands.
type State string

// The states: it can be offered now; its job waits or runs; it was tried and is put off; it is in the queue of the users to be
// deleted; it was tried as often as it may be and will not be offered any more; the user is gone or no placeholder.
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
	// NextAttemptAt is the earliest time of the next attempt that looks at it, where it is put off.
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	// LastError says what kept the placeholder at its last attempt, BlockedBy the columns that referred to it, as table.column.
	LastError string   `json:"last_error,omitempty"`
	BlockedBy []string `json:"blocked_by,omitempty"`
}

// stateSQL is the state of a row.
func stateSQL(attempts, retry int) string {
	return fmt.Sprintf(`CASE
    WHEN NOT %s THEN '%s'
    WHEN %s THEN '%s'
    WHEN NOT EXISTS (
        SELECT FROM "public".users AS placeholder WHERE placeholder.id OPERATOR(pg_catalog.=) detail.placeholder_user_id
            AND placeholder.user_type OPERATOR(pg_catalog.=) %d
    ) THEN '%s'
    WHEN detail.deletion_attempts OPERATOR(pg_catalog.>=) $%d THEN '%s'
    WHEN detail.last_deletion_attempt_at IS NULL OR %s THEN '%s'
    ELSE '%s'
END`, unqueued, InQueue, jobWaits, Scheduled, userType, Obsolete, attempts, GivenUp, triedBefore(retry), Due, PutOff)
}

// selectSQL reads rows of details that are called detail.
func selectSQL(from string) string {
	return fmt.Sprintf(`
SELECT tried.id, tried.placeholder_user_id, tried.state, tried.deletion_attempts,
    CASE WHEN pg_catalog.isfinite(tried.last_deletion_attempt_at) THEN tried.last_deletion_attempt_at END,
    CASE WHEN tried.state OPERATOR(pg_catalog.=) '%s' AND pg_catalog.isfinite(tried.last_deletion_attempt_at) THEN %s END,
    coalesce(tried.last_error, ''), tried.blocked_by
FROM (SELECT detail.*, %s AS state FROM (%s) AS detail) AS tried`, PutOff, nextLookSQL, stateSQL(1, 2), from)
}

// listSQL reads the ownerless rows by their ids, of the state $3 or of all, at most $4.
func listSQL() string {
	// Of placeholders that can be tried again none is given up; their states need not be known.
	from := `SELECT detail.* FROM ` + details + fmt.Sprintf(
		` WHERE detail.namespace_id IS NULL
		AND ($3::pg_catalog.text OPERATOR(pg_catalog.<>) '%s' OR detail.deletion_attempts OPERATOR(pg_catalog.>=) $1)`, GivenUp)
	return selectSQL(from) + " WHERE $3::pg_catalog.text OPERATOR(pg_catalog.=) '' OR tried.state OPERATOR(pg_catalog.=) $3::pg_catalog.text " +
		"ORDER BY tried.id LIMIT $4"
}

// keptWindow is how many rows are looked through for errors.
const keptWindow = 10_000

// keptSQL reads the first $3 of the rows with an error: most often tried first.
func keptSQL() string {
	from := fmt.Sprintf(`SELECT worst.* FROM (
    SELECT detail.* FROM %s
    WHERE detail.namespace_id IS NULL
    ORDER BY detail.deletion_attempts DESC, detail.last_deletion_attempt_at DESC, detail.id DESC
    LIMIT %d
) AS worst WHERE worst.last_error IS NOT NULL LIMIT $3`, details, keptWindow)
	return selectSQL(from) + " ORDER BY tried.deletion_attempts DESC, tried.id"
}

// List returns ownerless placeholders by the ids of their rows: those of one state, or of all where state is empty.
func List(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, rules Rules, state State, limit int) ([]Placeholder, error) {
	return read(ctx, db, names.Render(listSQL()), append(rules.args(), string(state), limit)...)
}

// ReadKept returns the first of the placeholders that something keeps, most often tried first.
func ReadKept(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, rules Rules, limit int) ([]Placeholder, error) {
	return read(ctx, db, names.Render(keptSQL()), append(rules.args(), limit)...)
}

func read(ctx context.Context, db dbsqlc.DBTX, sql string, args ...any) ([]Placeholder, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read placeholder users: %w", err)
	}
	listed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Placeholder])
	if err != nil {
		return nil, fmt.Errorf("read placeholder users: %w", err)
	}
	return listed, nil
}

// Reason says what keeps placeholders that may still be offered or are given up.
type Reason struct {
	// Reason is a column, as table.column, or Refused.
	Reason       string `json:"reason"`
	Placeholders int64  `json:"placeholders"`
	GivenUp      int64  `json:"given_up"`
	// NextAttemptAt is the earliest time of the next attempt of one of them; absent where all are given up or put off for ever.
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
}

// Refused is the reason of placeholders that no reference keeps: the database has refused them, or a rule of the deletion.
const Refused = "refused"

// reasonsSQL groups the first rows with an error, as keptSQL does, by what keeps them. One with several references counts for each.
func reasonsSQL() string {
	return fmt.Sprintf(`
SELECT why.reason, pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE tried.deletion_attempts OPERATOR(pg_catalog.>=) $1),
    pg_catalog.min(%s) FILTER (WHERE tried.deletion_attempts OPERATOR(pg_catalog.<) $1)
FROM (
    SELECT detail.* FROM %s
    WHERE detail.namespace_id IS NULL AND %s
    ORDER BY detail.deletion_attempts DESC, detail.last_deletion_attempt_at DESC, detail.id DESC
    LIMIT %d
) AS tried
CROSS JOIN LATERAL pg_catalog.unnest(coalesce(tried.blocked_by, '{%s}')) AS why (reason)
WHERE tried.last_error IS NOT NULL AND pg_catalog.isfinite(tried.last_deletion_attempt_at)
GROUP BY why.reason
ORDER BY 2 DESC, 1
LIMIT $3`, nextLookSQL, details, unqueued, keptWindow, Refused)
}

// ReadReasons returns what keeps most placeholders, of the first 10,000.
func ReadReasons(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, rules Rules, limit int) ([]Reason, error) {
	rows, err := db.Query(ctx, names.Render(reasonsSQL()), append(rules.args(), limit)...)
	if err != nil {
		return nil, fmt.Errorf("count what keeps placeholder users: %w", err)
	}
	reasons, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Reason])
	if err != nil {
		return nil, fmt.Errorf("count what keeps placeholder users: %w", err)
	}
	return reasons, nil
}

// retryAllSQL gives attempts back to rows that were tried, the most often tried ones first, $1 at most.
const retryAllSQL = `
UPDATE ` + details + `
SET deletion_attempts = 0, last_deletion_attempt_at = NULL, updated_at = pg_catalog.statement_timestamp()
WHERE detail.namespace_id IS NULL AND detail.id OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT detail.id
    FROM ` + details + `
    WHERE detail.namespace_id IS NULL AND detail.deletion_attempts OPERATOR(pg_catalog.>) 0 AND ` + unqueued + ` AND NOT ` + jobWaits + `
      AND EXISTS (
          SELECT FROM "public".users AS placeholder
          WHERE placeholder.id OPERATOR(pg_catalog.=) detail.placeholder_user_id AND placeholder.user_type OPERATOR(pg_catalog.=) 15
      )
    ORDER BY detail.deletion_attempts DESC, detail.id
    LIMIT $1
    FOR NO KEY UPDATE OF detail SKIP LOCKED
))`

// RetryAll gives all placeholders that are put off or given up their attempts back, 10,000 at most. Placeholders whose job waits
// are left to it. It returns how many rows it has changed.
func RetryAll(ctx context.Context, tx pgx.Tx, names pgschema.Names) (int64, error) {
	if err := batch.UsePath(ctx, tx, names); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, names.Render(retryAllSQL), keptWindow)
	if err != nil {
		return 0, fmt.Errorf("give placeholder users their attempts back: %w", err)
	}
	return tag.RowsAffected(), nil
}

// CountNegative returns how many ownerless placeholders have a negative number of attempts, 10,000 at most: an application's own
// table may allow it, and each is offered more often than the rules say.
func CountNegative(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) (rows int64, _ error) {
	const sql = `SELECT pg_catalog.count(*) FROM (
		SELECT FROM ` + details + ` WHERE detail.namespace_id IS NULL AND detail.deletion_attempts OPERATOR(pg_catalog.<) 0 LIMIT 10000) AS counted`
	if err := db.QueryRow(ctx, names.Render(sql)).Scan(&rows); err != nil {
		return 0, fmt.Errorf("count negative attempts: %w", err)
	}
	return rows, nil
}

// Why a placeholder cannot be tried again.
var (
	ErrUnknown  = errors.New("there are no details of a placeholder user with this id; see sexton placeholders list")
	ErrOwned    = errors.New("the group of its import is still there")
	ErrQueued   = errors.New("it is queued for deletion already")
	ErrObsolete = errors.New("the user is gone, or no placeholder any more")
)

// Retry gives a placeholder its attempts back, so that it can be offered at once: it is Due then. Where its job waits, for its
// time or as it has failed, that one starts at once and counts as the first attempt: it is Scheduled. What kept it stays to
// be seen until then.
func Retry(ctx context.Context, tx pgx.Tx, names pgschema.Names, userID int64) (State, error) {
	look := fmt.Sprintf(`SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE detail.namespace_id IS NULL), pg_catalog.count(*) FILTER (WHERE %s),
			EXISTS (SELECT FROM "public".users AS placeholder
				WHERE placeholder.id OPERATOR(pg_catalog.=) $1 AND placeholder.user_type OPERATOR(pg_catalog.=) %d),
			coalesce(pg_catalog.bool_or(%s), false)
		FROM %s WHERE detail.placeholder_user_id OPERATOR(pg_catalog.=) $1`, unqueued, userType, jobWaits, details)
	var rows, ownerless, free int64
	var placeholder, waits bool
	if err := tx.QueryRow(ctx, names.Render(look), userID).Scan(&rows, &ownerless, &free, &placeholder, &waits); err != nil {
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
	const reset = `UPDATE ` + details + `
		SET deletion_attempts = $2::boolean::integer, last_deletion_attempt_at = CASE WHEN $2::boolean THEN pg_catalog.statement_timestamp() END,
			updated_at = pg_catalog.statement_timestamp()
		WHERE detail.placeholder_user_id OPERATOR(pg_catalog.=) $1 AND detail.namespace_id IS NULL`
	if err := batch.UsePath(ctx, tx, names); err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, names.Render(reset), userID, waits); err != nil {
		return "", fmt.Errorf("give placeholder user %d its attempts back: %w", userID, err)
	}
	if !waits {
		return Due, nil
	}
	const pull = `SELECT "sexton".enqueue('` + DeleteKind + `', pg_catalog.jsonb_build_object('user_id', $1::bigint))`
	if _, err := tx.Exec(ctx, names.Render(pull), userID); err != nil {
		return "", fmt.Errorf("start the job of placeholder user %d: %w", userID, err)
	}
	return Scheduled, nil
}
