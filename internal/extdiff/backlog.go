package extdiff

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

const (
	// backlogCap is where diffs are no longer counted, bytesCap how many of them have their bytes counted.
	backlogCap = 10_000
	bytesCap   = 200
)

// Backlog counts the diffs still in the database, and the objects that the store still has to lose.
type Backlog struct {
	// Pending counts diffs in the database, due or not. Capped reports that there are more.
	Pending int64 `json:"pending"`
	Capped  bool  `json:"capped"`
	// Bytes are those of the first diffs among them; BytesCapped reports that there are more diffs than were measured.
	Bytes       int64 `json:"bytes"`
	BytesCapped bool  `json:"bytes_capped"`
	// Removals counts objects that are to be removed.
	Removals int64 `json:"removals"`
	// Skipped counts diffs that stay in the database although they are due, by reason, each up to the cap.
	Skipped map[Skip]int64 `json:"skipped"`
	// Uploads are the oldest uploads in parts that have not come to their end.
	Uploads []Unfinished `json:"uploads"`
	// Stores are where diffs were moved to, the one that was used last first.
	Stores []StoreState `json:"stores"`
}

// ReadBacklog counts what is left. It never reads a big table as a whole.
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) (Backlog, error) {
	var b Backlog
	err := db.QueryRow(ctx, names.Render(statement("backlog")), bytesCap).
		Scan(&b.Pending, &b.Capped, &b.Bytes, &b.Removals)
	if err != nil {
		return b, fmt.Errorf("count diffs in the database: %w", err)
	}
	b.BytesCapped = b.Pending > bytesCap
	if b.Skipped, err = ReadSkipped(ctx, db, names); err != nil {
		return b, err
	}
	if b.Uploads, err = read[Unfinished](ctx, db, names, "unfinished", mostUnfinished); err != nil {
		return b, err
	}
	b.Stores, err = ReadStores(ctx, db, names)
	return b, err
}

// ReadSkipped counts diffs that stay in the database although they are due, by reason. It counts 10,000 of them at most.
func ReadSkipped(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) (map[Skip]int64, error) {
	rows, err := names.Queries(db).DiffSkipped(ctx, backlogCap)
	if err != nil {
		return nil, fmt.Errorf("count diffs that cannot be moved: %w", err)
	}
	skipped := map[Skip]int64{}
	for _, row := range rows {
		skipped[Skip(row.Reason)] = row.Count
	}
	return skipped, nil
}

// mostStores bounds what is told of stores that were used once.
const mostStores = 10

// StoreState holds the facts that the database has about a store that it has used.
type StoreState struct {
	Swept

	// Store is its URL, without anything secret.
	Store string `json:"store"`
	// SealedAt is when its marker was last changed or first seen; nil where that has not been yet.
	SealedAt *time.Time `json:"sealed_at"`
	// SweepBeganAt and SweepEndedAt are those of the round in progress, which has no end, or of the last one; nil before the
	// first.
	SweepBeganAt *time.Time `json:"sweep_began_at"`
	SweepEndedAt *time.Time `json:"sweep_ended_at"`
}

// ReadStores returns the stores that were used, the one that was used last first, ten at most.
func ReadStores(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) ([]StoreState, error) {
	return read[StoreState](ctx, db, names, "stores", mostStores)
}

// Unfinished is an upload in parts that has not come to its end.
type Unfinished struct {
	DiffID int64 `json:"diff_id"`
	// Bytes is the size of the object, Sent the part that the store has, by the minute.
	Bytes   int64     `json:"bytes"`
	Sent    int64     `json:"bytes_sent"`
	BeganAt time.Time `json:"began_at"`
	// SeenAt is when a worker was last at it.
	SeenAt time.Time `json:"seen_at"`
	// Failures counts how often no byte has moved for too long, or the store was away. Error is why the last time.
	Failures int64  `json:"failures"`
	Error    string `json:"error,omitempty"`
}

// mostUnfinished bounds how many unfinished uploads are listed.
const mostUnfinished = 20

// Queued are the objects that wait to be removed.
type Queued struct {
	// Objects stops at 10,000; Capped reports that there are more.
	Objects int64
	Capped  bool
	// Oldest is how long the first of them has been waiting.
	Oldest time.Duration
}

// ReadQueued reads how many objects wait to be removed where external diffs are not enabled: their trigger queues objects all the
// same, and the functions of the newest version may be missing. There are none where the component was never installed, or the role
// may not know.
func ReadQueued(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) (Queued, error) {
	var queued Queued
	on := names.Queries(db)
	var found dbsqlc.RemovalsQueuedRow
	readable, err := on.RemovalsReadable(ctx)
	if err == nil && readable {
		found, err = on.RemovalsQueued(ctx, backlogCap+1)
	}
	if err != nil {
		return queued, fmt.Errorf("count objects to be removed: %w", err)
	}
	queued.Objects = found.Count
	queued.Capped = queued.Objects > backlogCap
	queued.Objects = min(queued.Objects, backlogCap)
	queued.Oldest = time.Duration(max(0, found.Seconds) * float64(time.Second))
	return queued, nil
}

// MoveKind is the kind of the jobs that move one diff each, with the argument diff_id. It is frozen.
const MoveKind = "migrate_external_diff"

// failedWindow is how many skipped diffs and how many failed jobs are looked through.
const failedWindow = 500

// Failure is a diff that is due and stays in the database.
type Failure struct {
	DiffID int64
	// Skip is why it cannot be moved; empty where an attempt has failed, with Error, or its upload does not come to its end.
	Skip  Skip
	Error string
	// Attempts counts those of the last job.
	Attempts int64
	// Next is when that job is tried again; nil where the next round over all diffs takes it up.
	Next *time.Time
	// External reports that it is in the object storage.
	External bool
}

// ReadFailed lists the first of the diffs that stay in the database although they are due: those of which an attempt has failed
// before skipped ones. With an id it returns that diff, failed or not.
func ReadFailed(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, limit int, id *int64) ([]Failure, error) {
	return read[Failure](ctx, db, names, "failed", limit, failedWindow, MoveKind, id)
}

// read collects the rows of a statement.
func read[T any](ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, name string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, names.Render(statement(name)), args...)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	return found, problem.Doing(err, "read %s of diffs", name)
}

// Retry has diffs tried again at once, and returns how many of them are in the database still.
func Retry(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, ids []int64) (int64, error) {
	var retried int64
	err := db.QueryRow(ctx, names.Render(statement("retry")), ids, MoveKind).Scan(&retried)
	return retried, problem.Doing(err, "retry diffs")
}

// TriggerName is the trigger on diffs that queues the objects of deleted ones.
const TriggerName = "sexton_external_diffs_removed"

// LostTrigger returns how that trigger does not work, and the SQL that has it work again, to be rendered for the configured schemas; "" where it
// works.
func LostTrigger(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) (state, fix string, _ error) {
	const enable = `ALTER TABLE "public".merge_request_diffs ENABLE ALWAYS TRIGGER ` + TriggerName
	var fires bool
	err := db.QueryRow(ctx, names.Render(statement("trigger")), TriggerName).Scan(&fires)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "missing", `CREATE TRIGGER ` + TriggerName + ` AFTER DELETE ON "public".merge_request_diffs REFERENCING OLD TABLE AS sexton_removed` +
			` FOR EACH STATEMENT EXECUTE FUNCTION "sexton".external_diffs_removed(); ` + enable, nil
	case err != nil:
		return "", "", fmt.Errorf("look at the trigger of deleted diffs: %w", err)
	case !fires:
		return "disabled", enable, nil
	}
	return "", "", nil
}
