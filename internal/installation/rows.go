package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	"sexton/internal/placeholder"
	riverjobs "sexton/river_jobs"
)

// Waking makes a change that is work for a kind, and wakes its workers: only triggers on inserted rows do so.
func Waking(ctx context.Context, db database.Database, kind string, change func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := change(tx); err != nil {
			return err
		}
		return Wake(ctx, tx, kind)
	})
}

// Wake sends what the triggers on inserted rows send. A worker that is awake already takes it for one more look.
func Wake(ctx context.Context, on dbsqlc.DBTX, kind string) error {
	if _, err := on.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", listen.Channel, kind); err != nil {
		return fmt.Errorf("wake workers: %w", err)
	}
	return nil
}

// GiveAllAttemptsBack has all that are put off or given up tried again and wakes the workers.
func GiveAllAttemptsBack(ctx context.Context, db database.Database) (retried int64, err error) {
	err = Waking(ctx, db, riverjobs.PlaceholderCleanup, func(tx pgx.Tx) (err error) {
		retried, err = placeholder.RetryAll(ctx, tx, db.Names)
		return err
	})
	return retried, err
}

// GiveAttemptsBack has one placeholder tried again and wakes the workers.
func GiveAttemptsBack(ctx context.Context, db database.Database, id int64) (state placeholder.State, err error) {
	err = Waking(ctx, db, riverjobs.PlaceholderCleanup, func(tx pgx.Tx) (err error) {
		state, err = placeholder.Retry(ctx, tx, db.Names, id)
		return err
	})
	if Refused(err) {
		return "", fmt.Errorf("placeholder user %d: %w", id, err)
	}
	return state, err
}

// Refused reports whether a placeholder cannot be tried again.
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

// TombstonesOf is the queue of one database.
func TombstonesOf(all *Connections, db database.Database) loosefk.Tombstones {
	return loosefk.Tombstones{DB: db.Pool, Names: db.Names, Bounds: BoundsOf(all), Wake: WakeLooseForeignKeys}
}

// BoundsOf are the limits of a statement about tombstones.
func BoundsOf(all *Connections) loosefk.Bounds {
	settings := all.Config.Jobs
	return loosefk.Bounds{StatementTimeout: settings.StatementTimeout, LockTimeout: settings.LockTimeout}
}

// WakeLooseForeignKeys wakes the workers of the loose foreign keys.
func WakeLooseForeignKeys(ctx context.Context, tx pgx.Tx) error {
	return Wake(ctx, tx, riverjobs.LooseForeignKeys)
}
