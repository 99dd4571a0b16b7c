package extdiff

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

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
}

// ReadFailed lists the first of the diffs that stay in the database although they are due: those of which an attempt has failed
// before skipped ones.
func ReadFailed(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, limit int) ([]Failure, error) {
	rows, _ := db.Query(ctx, names.Render(statement("failed")), limit, failedWindow, MoveKind)
	failed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Failure])
	if err != nil {
		return nil, fmt.Errorf("list diffs that stay in the database: %w", err)
	}
	return failed, nil
}

// Retry has diffs tried again at once, and returns how many of them are in the database still.
func Retry(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, ids []int64) (int64, error) {
	var retried int64
	if err := db.QueryRow(ctx, names.Render(statement("retry")), ids, MoveKind).Scan(&retried); err != nil {
		return 0, fmt.Errorf("retry diffs: %w", err)
	}
	return retried, nil
}
