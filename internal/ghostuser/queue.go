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

// statement is a text of the package's, to be rendered for the configured schemas.
func statement(name string, more ...string) string {
	return pgcatalog.Texts{Files: queries}.Statement(name, more...)
}

// statement is one of them, rendered for the run.
func (r *run) statement(name string) string { return r.Session.Names.Render(statement(name)) }

// DueSQL is a condition, to be rendered for the configured schemas: some user can be
// taken now.
func DueSQL() string { return "EXISTS (SELECT " + statement("due") + ")" }

// CountDueSQL is an expression, to be rendered for the configured schemas: how many can,
// 10,001 where there are more.
func CountDueSQL() string {
	return "(SELECT pg_catalog.count(*) FROM (SELECT " + statement("due") + " LIMIT 10001) AS counted)"
}

// NextDueSQL is an expression, to be rendered for the configured schemas: in how many
// seconds (float8) the next user falls due that is put off, or 0 where none is. A user
// put off for ever (infinity) never does, and Postgres refuses to subtract that.
func NextDueSQL() string { return statement("next_due") }

// Backlog sums up the queue.
type Backlog struct {
	// Pending counts users, users that are put off included, up to 10,000. Capped reports
	// that there are more than it says.
	Pending int64
	Capped  bool
	// OldestAgeSeconds is the time since the first of them came in.
	OldestAgeSeconds float64
	// Deferred counts users that are put off after an error, up to 10,000.
	Deferred int64
}

// ReadBacklog counts what waits. The database has the one definition of it, which
// "sexton".backlog shows as well.
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) (Backlog, error) {
	rows, _ := db.Query(ctx,
		names.Render(`SELECT pending, capped, oldest_age_seconds, deferred FROM "sexton".backlog_of_ghost_users()`))
	b, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Backlog])
	return b, problem.Doing(err, "count users to be deleted")
}

// Waiting is one user in the queue.
type Waiting struct {
	UserID     dml.ID    `json:"user_id"`
	HardDelete bool      `json:"hard_delete"`
	CreatedAt  time.Time `json:"created_at"`
	// ConsumeAfter is the time before which the user is not taken; it may be infinite.
	ConsumeAfter pgtype.Timestamptz `json:"consume_after"`
	Attempts     int64              `json:"attempts"`
	LastError    string             `json:"last_error,omitempty"`
	Moved        int64              `json:"moved"`
	Deleted      int64              `json:"deleted"`
	Nullified    int64              `json:"nullified"`
	// Remaining is an estimate: nil if the user has not taken long, and remainingCap
	// (10,000) if it is that or more.
	Remaining *int64 `json:"remaining,omitempty"`
}

// ReadWaiting returns the first users of the queue, in the order in which they will be
// taken.
func ReadWaiting(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, limit int) ([]Waiting, error) {
	return list(ctx, db, names, `"public".`+QueueTable+" AS job", limit)
}

// failedWindow is how many users are looked at from the end of the queue: failing puts a
// user there.
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

// Retry makes a user that failed due now, as if it had never failed, or the last thousand
// of them if user is empty. The reason of the last failure stays until the next attempt.
// It returns how many there were, those apart that a worker has in hand.
func Retry(ctx context.Context, tx pgx.Tx, names pgcatalog.Names, user dml.ID) (int64, error) {
	if err := batch.UsePath(ctx, tx, names); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, names.Render(statement("retry")), user.Text, failedWindow)
	return tag.RowsAffected(), problem.Doing(err, "retry users")
}
