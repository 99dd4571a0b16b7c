package riverjobs

import (
	"context"

	"sexton/internal/blobstore"
	"sexton/internal/database"
	"sexton/internal/extdiff"
	"sexton/internal/lease"
)

// sweepExternalDiffs looks whose the store's objects are and, once in a while, removes objects without a row. As with
// removals, a store that is not available is no fault of the pass.
func sweepExternalDiffs(ctx context.Context, deps Deps, db database.Database, granted *lease.Lease, stats *scheduleStats) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The next pass does it.
	}
	log := deps.Logger.With("kind", ScheduleExternalDiffs, "database", db.Name)
	sweep := deps.Config.ExternalDiffs.Sweep
	sweeper := extdiff.Sweeper{
		Fence: granted, Every: sweep.Every, Grace: sweep.Grace,
		Gone: func(object blobstore.Info) {
			log.InfoContext(ctx, "object_swept", "key", object.Key, "bytes", object.Size, "written_at", object.ModTime.UTC())
		},
	}
	if !sweep.Enabled {
		sweeper.Every = 0
	}
	err := deps.useDiffs(ctx, func(engine *extdiff.Engine) error {
		return engine.Each(ctx, func(at *extdiff.Engine) error {
			sweeper.Engine = at
			swept, err := sweeper.Run(ctx)
			stats.Swept = stats.Swept.Plus(swept)
			return err
		})
	})
	if stats.HeldBack > 0 {
		log.WarnContext(ctx, "objects_held_back", "objects", stats.HeldBack)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Its place is kept.
	}
	if outage, ok := asOutage(err); ok {
		stats.WaitingFor = outage.Error()
		log.WarnContext(ctx, "store_unavailable", "error", outage.Error())
		return nil
	}
	return err
}
