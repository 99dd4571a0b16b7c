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

// The outcomes: there is no such user; it is no placeholder (any more); it was in the
// queue before; it is now; something refers to it, or it alone owns something, so it
// stays; what refers to it may go with tombstones that wait.
const (
	Gone          Outcome = "gone"
	NoPlaceholder Outcome = "no_placeholder"
	QueuedBefore  Outcome = "queued_before"
	Queued        Outcome = "queued"
	Blocked       Outcome = "blocked"
	Delayed       Outcome = "delayed"
)

// Blocker is a column that refers to a placeholder.
type Blocker struct {
	// Column is table.column, Sample names one of the rows by its primary key, such as
	// "id 17".
	Column string `json:"column"`
	Sample string `json:"sample"`
}

// Verdict is the outcome for a placeholder, with the reason.
type Verdict struct {
	UserID  int64   `json:"user_id"`
	Outcome Outcome `json:"outcome"`
	// Blockers are all columns that refer to it, in the order of the configuration.
	Blockers []Blocker `json:"blockers"`
	// Reason is why it stays, in one line; empty unless it is blocked.
	Reason string `json:"reason,omitempty"`
}

// Remover hands placeholders over to the jobs that delete users.
type Remover struct {
	// DB is a connection or a pool; Watched is the pool that is asked which session the
	// transaction waits for.
	DB         database.Beginner
	Watched    *pgxpool.Pool
	Names      pgcatalog.Names
	References *References
	// Limits bound each statement.
	Limits batch.Limits
	// Current, if set, refuses in the transaction where it must not be done with these
	// references. It comes right before the COMMIT: the lock that it takes holds up those
	// who take a lease or install references.
	Current func(ctx context.Context, tx pgx.Tx) error
}

// Remove queues the placeholder for deletion, with itself as the initiator, or records in
// its rows what keeps it. It does either in one transaction, changes nothing where it is
// called again, and may be called by several workers at once. What the database refuses
// is recorded in the rows, too, until the next call succeeds.
//
// A row that comes to refer to the placeholder later, while it is in the queue, passes to
// the ghost user.
func (r *Remover) Remove(ctx context.Context, userID int64) (Verdict, error) {
	verdict := Verdict{UserID: userID, Blockers: []Blocker{}}
	end := (&pace.Run{Throttle: pace.Throttle{Blocker: func(ctx context.Context, _ string) string {
		// The transaction says itself what is wrong with the server.
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
		err = errors.Join(err, r.recordRefusal(ctx, userID, err))
		return Verdict{}, fmt.Errorf("remove placeholder user %d: %w", userID, err)
	}
	return verdict, nil
}

// sessionKey gives the session its name.
func sessionKey(userID int64) string { return fmt.Sprintf("%s/%d", DeleteKind, userID) }

// transact bounds the transaction's statements. At a stricter isolation level, which the
// database or the role may have set, the look would use a snapshot from before the lock:
// rows that were waited for would not be seen.
func (r *Remover) transact(ctx context.Context, userID int64, do func(pgx.Tx) error) error {
	return database.Write(ctx, r.DB, func(tx pgx.Tx) error {
		longest, wait := r.Limits.Timeouts()
		_, err := tx.Exec(ctx, r.Names.Render(statement("settle")), longest, wait, r.Names.Path, sessionKey(userID))
		if err != nil {
			return fmt.Errorf("settle session: %w", err)
		}
		return do(tx)
	})
}

// recordRefusal has the rows say why the placeholder stays while its job is tried again
// and again. An error of connection or server says nothing about it.
func (r *Remover) recordRefusal(ctx context.Context, userID int64, refusal error) error {
	if f := batch.Judge(refusal); f.SQLState == "" || f.Verdict == batch.Fatal {
		return nil
	}
	err := r.transact(ctx, userID, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, r.Names.Render(statement("record")), userID, refusal.Error(), []string{})
		return err
	})
	return problem.Doing(err, "record the error")
}

func (r *Remover) decide(ctx context.Context, tx pgx.Tx, verdict *Verdict) error {
	found, err := r.look(ctx, tx, verdict.UserID)
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
	return problem.Doing(err, "record what keeps it")
}

// look is how a placeholder stands.
type look struct {
	userType *int32
	queued   bool
	blockers []Blocker
}

// look asks everything in one round trip. What bounds it came before: the first of its
// statements on a connection are prepared, and that waits for the locks of other sessions
// as well.
func (r *Remover) look(ctx context.Context, tx pgx.Tx, userID int64) (look, error) {
	found := look{}
	var samples []*string
	trip := &pgx.Batch{}
	trip.Queue(r.Names.Render(statement("lock")), userID).Query(func(rows pgx.Rows) (err error) {
		_, err = pgx.ForEachRow(rows, []any{&found.userType}, func() error { return nil })
		return err
	})
	trip.Queue(r.Names.Render(statement("queued")),
		userID).QueryRow(func(row pgx.Row) error { return row.Scan(&found.queued) })
	// Names of the application's tables are not to be rendered: one of their schemas may
	// be called public.
	trip.Queue(r.References.lookSQL(), userID).QueryRow(func(row pgx.Row) error { return row.Scan(&samples) })
	if err := tx.SendBatch(ctx, trip).Close(); err != nil {
		return found, fmt.Errorf("look for what refers to it: %w", err)
	}
	found.blockers = r.References.blockers(samples)
	return found, nil
}

// queue has the user deleted by the door that everybody uses. What that refuses concerns
// the user, and keeps it.
func (r *Remover) queue(ctx context.Context, tx pgx.Tx, verdict *Verdict) error {
	err := pgx.BeginFunc(ctx, tx, func(door pgx.Tx) error {
		_, err := door.Exec(ctx, r.Names.Render(`SELECT "sexton".delete_user($1, $1, false)`), verdict.UserID)
		return err
	})
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(pgErr.Code, "SX01") {
		verdict.Outcome, verdict.Reason = Blocked, pgErr.Message
		return nil
	}
	return problem.Doing(err, "queue it")
}

// columns returns the columns of blockers.
func columns(blockers []Blocker) []string {
	return render.Each(blockers, func(b Blocker) string { return b.Column })
}

// reason names everything that refers to a placeholder.
func reason(blockers []Blocker) string {
	texts := render.Each(blockers, func(b Blocker) string { return fmt.Sprintf("%s (%s)", b.Column, b.Sample) })
	return "still referenced by " + strings.Join(texts, ", ")
}
