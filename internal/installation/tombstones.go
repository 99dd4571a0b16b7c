package installation

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	riverjobs "sexton/river_jobs"
)

// TombstonesOf is the queue of one database.
func TombstonesOf(all *Connections, db database.Database) loosefk.Tombstones {
	return loosefk.Tombstones{DB: db.Pool, Names: db.Names, Bounds: BoundsOf(all), Wake: WakeLooseForeignKeys}
}

// BoundsOf are the limits of a statement about tombstones.
func BoundsOf(all *Connections) loosefk.Bounds {
	settings := all.Config.Jobs
	return loosefk.Bounds{StatementTimeout: settings.StatementTimeout, LockTimeout: settings.LockTimeout}
}

// WakeLooseForeignKeys sends what the trigger on inserted tombstones sends. An update fires none, and a worker that
// is awake already takes the notification for one more look.
func WakeLooseForeignKeys(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", listen.Channel, riverjobs.LooseForeignKeysCleanupArgs{}.Kind()); err != nil {
		return fmt.Errorf("wake workers: %w", err)
	}
	return nil
}
