package placeholder

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/pace"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// userType is the user type of placeholders.
const userType = 15

// Outcome is the result for one placeholder.
type Outcome string

const (
	// Gone means that the user does not exist.
	Gone Outcome = "gone"
	// NoPlaceholder means that the user is not a placeholder.
	NoPlaceholder Outcome = "no_placeholder"
	// QueuedBefore means that the user was already queued for deletion.
	QueuedBefore Outcome = "queued_before"
	// Queued means that Remove has queued the user for deletion.
	Queued Outcome = "queued"
	// Blocked means that rows refer to the user, or that the user is the sole owner of a
	// group.
	Blocked Outcome = "blocked"
	// Delayed means that pending tombstones may delete the rows that refer to the user.
	Delayed Outcome = "delayed"
)

// Blocker is a column that refers to a placeholder.
type Blocker struct {
	// Column is table.column. Sample names one of the rows by its primary key, such as
	// "id 17".
	Column string `json:"column"`
	Sample string `json:"sample"`
}

// Verdict is the outcome for a placeholder, with the reason.
type Verdict struct {
	UserID  int64   `json:"user_id"`
	Outcome Outcome `json:"outcome"`
	// Blockers lists all columns that refer to the user, in the order of the
	// configuration.
	Blockers []Blocker `json:"blockers"`
	// Reason is the reason for which the user is blocked, in one line, or empty.
	Reason string `json:"reason,omitempty"`
}

// Remover queues placeholders for deletion.
type Remover struct {
	// DB is a connection or a pool. Watched is the pool that is queried for the session
	// that the transaction waits for.
	DB         database.Beginner
	Watched    *pgxpool.Pool
	Names      pgcatalog.Names
	References *References
	// Limits apply to each statement.
	Limits batch.Limits
	// Current, if set, returns an error if the references are outdated. It is called
	// right before the COMMIT, because its lock blocks sessions that take a lease or
	// install references.
	Current func(ctx context.Context, tx pgx.Tx) error
}

// Remove queues the placeholder for deletion, with itself as the initiator, or records in
// its detail rows the reason for keeping it. Queueing and recording are one transaction
// each. Repeated and concurrent calls are safe. An error of the database is also recorded
// in the detail rows, until the next call succeeds.
//
// Rows that are added while the placeholder is in the queue are moved to the ghost user.
func (r *Remover) Remove(ctx context.Context, userID int64) (Verdict, error) {
	verdict := Verdict{UserID: userID, Blockers: []Blocker{}}
	end := (&pace.Run{Throttle: pace.Throttle{Blocker: func(ctx context.Context, _ string) string {
		// The error is ignored: if the server fails, the transaction of Remove returns an
		// error, too.
		found, _ := batch.Blocker(ctx, r.Watched, r.Names, sessionKey(userID), 0)
		return found
	}}}).Watch(ctx, "")
	err := r.transact(ctx, userID, func(tx pgx.Tx) error {
		if err := r.decide(ctx, tx, &verdict); err != nil || r.Current == nil {
			return err
		}
		return r.Current(ctx, tx)
	})
	blocker := end()
	if err != nil {
		err = batch.AddBlocker(err, blocker)
		err = errors.Join(err, r.recordError(ctx, userID, err))
		return Verdict{}, fmt.Errorf("remove placeholder user %d: %w", userID, err)
	}
	return verdict, nil
}

// sessionKey returns the key that the application_name of the session contains. The query
// for the session's lock holder finds the session by this key.
func sessionKey(userID int64) string { return fmt.Sprintf("%s/%d", DeleteKind, userID) }

// transact runs do in a READ COMMITTED transaction with the limits. The database or the
// role may have set a stricter isolation level. The query of references would then use a
// snapshot from before the lock, and miss rows of transactions for which the lock waited.
func (r *Remover) transact(ctx context.Context, userID int64, do func(pgx.Tx) error) error {
	return database.Write(ctx, r.DB, func(tx pgx.Tx) error {
		longest, wait := r.Limits.Timeouts()
		_, err := tx.Exec(ctx, r.Names.Render(statement("settle")), longest, wait, r.Names.Path, sessionKey(userID))
		if err != nil {
			return fmt.Errorf("set up the session: %w", err)
		}
		return do(tx)
	})
}

// recordError records an error in the placeholder's rows, so that it can be read while
// the job is being retried. It ignores errors of the connection or the server.
func (r *Remover) recordError(ctx context.Context, userID int64, cause error) error {
	if f := batch.Judge(cause); f.SQLState == "" || f.Verdict == batch.Fatal {
		return nil
	}
	err := r.transact(ctx, userID, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, r.Names.Render(statement("record")), userID, cause.Error(), []string{})
		return err
	})
	return problem.Doing(err, "record the error")
}

// decide queues the placeholder or records the reason for keeping it.
func (r *Remover) decide(ctx context.Context, tx pgx.Tx, verdict *Verdict) error {
	found, err := r.inspect(ctx, tx, verdict.UserID)
	if err != nil {
		return err
	}
	switch {
	case found.userType == nil:
		verdict.Outcome = Gone
		return nil
	case *found.userType != userType:
		verdict.Outcome = NoPlaceholder
		return nil
	case found.queued:
		verdict.Outcome = QueuedBefore
	default:
		verdict.Outcome, verdict.Reason = Queued, ""
		if verdict.Blockers = found.blockers; len(found.blockers) > 0 {
			verdict.Outcome, verdict.Reason = Blocked, reason(found.blockers)
		} else if err := r.queue(ctx, tx, verdict); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, r.Names.Render(statement("record")), verdict.UserID, verdict.Reason,
		columns(verdict.Blockers))
	return problem.Doing(err, "record the reason for keeping the user")
}

// state holds the state of a placeholder, as read under a lock on it.
type state struct {
	userType *int32
	queued   bool
	blockers []Blocker
}

// inspect locks the placeholder and reads its state in one round trip. The caller has set
// the timeouts in an earlier round trip, because preparing these statements may already
// wait for locks of other sessions.
func (r *Remover) inspect(ctx context.Context, tx pgx.Tx, userID int64) (state, error) {
	found := state{}
	var samples []*string
	trip := &pgx.Batch{}
	trip.Queue(r.Names.Render(statement("lock")), userID).Query(func(rows pgx.Rows) (err error) {
		_, err = pgx.ForEachRow(rows, []any{&found.userType}, func() error { return nil })
		return err
	})
	trip.Queue(r.Names.Render(statement("queued")),
		userID).QueryRow(func(row pgx.Row) error { return row.Scan(&found.queued) })
	// This statement must not be rendered, because a table of the application may be in a
	// schema called public.
	trip.Queue(r.References.querySQL(), userID).QueryRow(func(row pgx.Row) error { return row.Scan(&samples) })
	if err := tx.SendBatch(ctx, trip).Close(); err != nil {
		return found, fmt.Errorf("find rows that refer to the user: %w", err)
	}
	found.blockers = r.References.blockers(samples)
	return found, nil
}

// queue calls "sexton".delete_user. If that function refuses the user with an SX01x
// error, the verdict is Blocked.
func (r *Remover) queue(ctx context.Context, tx pgx.Tx, verdict *Verdict) error {
	err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
		_, err := savepoint.Exec(ctx, r.Names.Render(`SELECT "sexton".delete_user($1, $1, false)`), verdict.UserID)
		return err
	})
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(pgErr.Code, "SX01") {
		verdict.Outcome, verdict.Reason = Blocked, pgErr.Message
		return nil
	}
	return problem.Doing(err, "queue the user")
}

// columns returns the columns of blockers.
func columns(blockers []Blocker) []string {
	return render.Each(blockers, func(b Blocker) string { return b.Column })
}

// reason returns a text with all columns that refer to a placeholder.
func reason(blockers []Blocker) string {
	texts := render.Each(blockers, func(b Blocker) string { return fmt.Sprintf("%s (%s)", b.Column, b.Sample) })
	return "still referenced by " + strings.Join(texts, ", ")
}
