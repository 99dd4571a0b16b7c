package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/listen"
	"sexton/internal/placeholder"
	riverjobs "sexton/river_jobs"
)

// GiveAllAttemptsBack has all that are put off or given up tried again and wakes the workers.
func GiveAllAttemptsBack(ctx context.Context, db database.Database) (retried int64, err error) {
	err = pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		if retried, err = placeholder.RetryAll(ctx, tx, db.Names); err != nil {
			return err
		}
		return wakePlaceholders(ctx, tx)
	})
	return retried, err
}

// wakePlaceholders wakes the workers: no trigger fires for attempts.
func wakePlaceholders(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", listen.Channel, riverjobs.PlaceholderCleanup); err != nil {
		return fmt.Errorf("wake workers: %w", err)
	}
	return nil
}

// GiveAttemptsBack has one placeholder tried again and wakes the workers.
func GiveAttemptsBack(ctx context.Context, db database.Database, id int64) (state placeholder.State, err error) {
	err = pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		if state, err = placeholder.Retry(ctx, tx, db.Names, id); err != nil {
			return err
		}
		return wakePlaceholders(ctx, tx)
	})
	if Refused(err) {
		return "", fmt.Errorf("placeholder user %d: %w", id, err)
	}
	return state, err
}

// Refused tells that a placeholder cannot be tried again, from what went wrong.
func Refused(err error) bool {
	return slices.ContainsFunc([]error{placeholder.ErrUnknown, placeholder.ErrOwned, placeholder.ErrQueued, placeholder.ErrObsolete},
		func(refusal error) bool { return errors.Is(err, refusal) })
}

// Becomes words what a placeholder becomes that is tried again.
func Becomes(state placeholder.State) string {
	if state == placeholder.Scheduled {
		return "its job starts now"
	}
	return "due now"
}

// SaveRules tells the database what the configuration says, so that its view of the backlog agrees with this program's.
func SaveRules(ctx context.Context, all *Connections) error {
	return placeholder.SaveRules(ctx, all.Jobs().Pool, all.Jobs().Names, riverjobs.PlaceholderRules(all.Config))
}
