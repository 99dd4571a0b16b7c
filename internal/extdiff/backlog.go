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
	// backlogCap is where diffs are no longer counted, bytesCap how many of them have
	// their bytes counted.
	backlogCap = 10_000
	bytesCap   = 200
)

// Backlog counts the diffs still in the database, and the objects that the store still
// has to lose.
type Backlog struct {
	// Pending counts diffs in the database, due or not. Capped reports that there are
	// more.
	Pending int64 `json:"pending"`
	Capped  bool  `json:"capped"`
	// Bytes are those of the first diffs among them; BytesCapped reports that there are
	// more diffs than were measured.
	Bytes       int64 `json:"bytes"`
	BytesCapped bool  `json:"bytes_capped"`
	// Removals counts objects that are to be removed.
	Removals int64 `json:"removals"`
	// Skipped counts diffs that stay in the database although they are due, by reason,
	// each up to the cap.
	Skipped map[Skip]int64 `json:"skipped"`
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
	b.Skipped, err = ReadSkipped(ctx, db, names)
	return b, err
}

// ReadSkipped counts diffs that stay in the database although they are due, by reason. It
// counts 10,000 of them at most.
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

// MoveKind is the kind of the jobs that move one diff each, with the argument diff_id. It
// is frozen.
const MoveKind = "migrate_external_diff"

// failedWindow is how many skipped diffs and how many failed jobs are looked through.
const failedWindow = 500

// Failure is a diff that is due and stays in the database.
type Failure struct {
	DiffID int64
	// Skip is why it cannot be moved. It is empty if an attempt failed with Error.
	Skip  Skip
	Error string
	// Attempts counts those of the last job.
	Attempts int64
	// Next is when that job is tried again; nil where the next round over all diffs takes
	// it up.
	Next *time.Time
}

// ReadFailed lists the first of the diffs that stay in the database although they are
// due: those of which an attempt has failed before skipped ones.
func ReadFailed(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, limit int) ([]Failure, error) {
	rows, _ := db.Query(ctx, names.Render(statement("failed")), limit, failedWindow, MoveKind)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Failure])
	return found, problem.Doing(err, "read failed diffs")
}

// Retry has diffs tried again at once, and returns how many of them are in the database
// still.
func Retry(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, ids []int64) (int64, error) {
	var retried int64
	err := db.QueryRow(ctx, names.Render(statement("retry")), ids, MoveKind).Scan(&retried)
	return retried, problem.Doing(err, "retry diffs")
}

// TriggerName is the trigger on diffs that queues the objects of deleted ones.
const TriggerName = "sexton_external_diffs_removed"

// LostTrigger returns how that trigger does not work, and the SQL that has it work again,
// to be rendered for the configured schemas; "" where it works.
func LostTrigger(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names) (state, fix string, _ error) {
	const enable = `ALTER TABLE "public".merge_request_diffs ENABLE ALWAYS TRIGGER ` + TriggerName
	var fires bool
	err := db.QueryRow(ctx, names.Render(statement("trigger")), TriggerName).Scan(&fires)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "missing", `CREATE TRIGGER ` + TriggerName +
			` AFTER DELETE ON "public".merge_request_diffs REFERENCING OLD TABLE AS sexton_removed` +
			` FOR EACH STATEMENT EXECUTE FUNCTION "sexton".external_diffs_removed(); ` + enable, nil
	case err != nil:
		return "", "", fmt.Errorf("look at the trigger of deleted diffs: %w", err)
	case !fires:
		return "disabled", enable, nil
	}
	return "", "", nil
}
