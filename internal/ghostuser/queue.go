package ghostuser

import (
	"context"
	"embed"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/dbsqlc"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

//go:embed queries
var queries embed.FS

// statement returns the SQL of a file in the folder queries. The caller must render it
// for the configured schemas.
func statement(name string, more ...string) string {
	return pgcatalog.Texts{Files: queries}.Statement(name, more...)
}

// statement returns the SQL of a file in the folder queries, rendered for the run's
// schemas.
func (r *run) statement(name string) string { return r.Session.Names.Render(statement(name)) }

// DueSQL returns the condition that any user is due. The caller must render it for the
// configured schemas.
func DueSQL() string { return "EXISTS (SELECT " + statement("due") + ")" }

// CountDueSQL returns an expression for the number of due users, at most 10,001. The
// caller must render it for the configured schemas.
func CountDueSQL() string {
	return "(SELECT pg_catalog.count(*) FROM (SELECT " + statement("due") + " LIMIT 10001) AS counted)"
}

// NextDueSQL returns an expression for the seconds (float8) until the next deferred user
// is due, or 0 if no user is deferred. The caller must render it for the configured
// schemas. The expression ignores users that are deferred to infinity, which Postgres
// cannot subtract.
func NextDueSQL() string { return statement("next_due") }

// Backlog holds the counts of users in the queue.
type Backlog struct {
	// Pending counts users, including deferred ones, up to 10,000. Capped reports that
	// there are more.
	Pending int64
	Capped  bool
	// OldestAgeSeconds is the time since the first user was queued.
	OldestAgeSeconds float64
	// Deferred counts users that are deferred after an error, up to 10,000.
	Deferred int64
}

// ReadBacklog reads the backlog with the SQL function that the view "sexton".backlog also
// uses.
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) (Backlog, error) {
	rows, _ := db.Query(ctx,
		names.Render(`SELECT pending, capped, oldest_age_seconds, deferred FROM "sexton".backlog_of_ghost_users()`))
	b, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Backlog])
	return b, problem.Doing(err, "count users to be deleted")
}

// Waiting is a user in the queue.
type Waiting struct {
	UserID     dml.ID    `json:"user_id"`
	HardDelete bool      `json:"hard_delete"`
	CreatedAt  time.Time `json:"created_at"`
	// ConsumeAfter is the time at which the user becomes due. It may be infinite.
	ConsumeAfter pgtype.Timestamptz `json:"consume_after"`
	Attempts     int64              `json:"attempts"`
	LastError    string             `json:"last_error,omitempty"`
	Moved        int64              `json:"moved"`
	Deleted      int64              `json:"deleted"`
	Nullified    int64              `json:"nullified"`
	// Remaining is an estimate of at most remainingCap (10,000) rows. It is nil until a
	// run has estimated the rows.
	Remaining *int64 `json:"remaining,omitempty"`
}

// ReadWaiting returns the first users of the queue.
func ReadWaiting(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, limit int) ([]Waiting, error) {
	return list(ctx, db, names, `"public".`+QueueTable+" AS job", limit)
}

// failedWindow limits the users that ReadFailed reads and the failed users that Retry
// makes due. Both begin at the end of the queue, because a failed user is moved there.
const failedWindow = 1_000

// ReadFailed returns users that failed, in the order in which they are retried. It reads
// only the last failedWindow users of the queue.
func ReadFailed(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, limit int) ([]Waiting, error) {
	return list(ctx, db, names, "{failed}", limit, failedWindow)
}

func list(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, from string, args ...any) ([]Waiting, error) {
	rows, _ := db.Query(ctx, names.Render(statement("waiting", "rows", from)), args...)
	waiting, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Waiting])
	return waiting, problem.Doing(err, "read users to be deleted")
}

// Retry makes a failed user due and sets its attempts to 0. If user is empty, it retries
// at most failedWindow failed users, beginning at the end of the queue. The last error is
// kept until the next attempt. Retry returns the number of users it made due. It skips
// users that a worker is processing.
func Retry(ctx context.Context, tx pgx.Tx, names pgcatalog.Names, user dml.ID) (int64, error) {
	if err := batch.UsePath(ctx, tx, names); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, names.Render(statement("retry")), user.Text, failedWindow)
	return tag.RowsAffected(), problem.Doing(err, "retry users")
}
