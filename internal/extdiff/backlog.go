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
	// backlogCap limits the number of diffs that are counted. bytesCap limits the number
	// of diffs whose bytes are counted.
	backlogCap = 10_000
	bytesCap   = 200
)

// Backlog counts the diffs in the database, and the objects that are queued for removal.
type Backlog struct {
	// Pending counts diffs in the database, whether they are due or not. Capped reports
	// that there are more diffs than Pending.
	Pending int64 `json:"pending"`
	Capped  bool  `json:"capped"`
	// Bytes is the size of the texts of the first bytesCap diffs. BytesCapped reports
	// that there are more than bytesCap diffs.
	Bytes       int64 `json:"bytes"`
	BytesCapped bool  `json:"bytes_capped"`
	// Removals counts objects that are queued for removal.
	Removals int64 `json:"removals"`
	// Skipped holds the number of due diffs that cannot be moved, by reason.
	Skipped map[Skip]int64 `json:"skipped"`
}

// ReadBacklog counts the backlog. It reads a limited number of rows.
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

// ReadSkipped returns the number of due diffs that cannot be moved, by reason. It counts
// at most 10,000 diffs.
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

// MoveKind is the kind of the jobs that move one diff each. The argument of a job is
// diff_id. Pending jobs are stored with this kind, so MoveKind must not change.
const MoveKind = "migrate_external_diff"

// failedWindow limits how many skipped diffs and how many failed jobs ReadFailed reads.
const failedWindow = 500

// Failure is a due diff that was not moved.
type Failure struct {
	DiffID int64
	// Skip is the reason for which the diff cannot be moved. It is empty if an attempt
	// failed with Error.
	Skip  Skip
	Error string
	// Attempts is the number of attempts of the last job.
	Attempts int64
	// Next is the time of the next attempt of the last job. It is nil if no attempt is
	// scheduled. The next round over all diffs then inserts a new job.
	Next *time.Time
}

// ReadFailed returns up to limit due diffs that were not moved. Diffs with a failed
// attempt come before skipped ones.
func ReadFailed(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, limit int) ([]Failure, error) {
	rows, _ := db.Query(ctx, names.Render(statement("failed")), limit, failedWindow, MoveKind)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Failure])
	return found, problem.Doing(err, "read failed diffs")
}

// Retry makes the jobs of diffs due immediately. It returns the number of the diffs that
// are still in the database.
func Retry(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, ids []int64) (int64, error) {
	var retried int64
	err := db.QueryRow(ctx, names.Render(statement("retry")), ids, MoveKind).Scan(&retried)
	return retried, problem.Doing(err, "retry diffs")
}

// TriggerName is the trigger on diffs that queues the objects of deleted diffs.
const TriggerName = "sexton_external_diffs_removed"

// LostTrigger returns "missing" or "disabled" if the trigger does not fire, and the SQL
// that repairs it, to be rendered for the configured schemas. It returns "" if the
// trigger fires.
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
		return "", "", fmt.Errorf("query the trigger of deleted diffs: %w", err)
	case !fires:
		return "disabled", enable, nil
	}
	return "", "", nil
}
