package cleanup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/database"
	"sexton/triggers"
)

// checkKeys breaks the references of parents whose triggers record another key than the definitions name. Tombstones do not
// say what their key is: read as the wrong one they would cost the children of parents that live.
func (b *binding) checkKeys(ctx context.Context, w *Work, db database.Database, conn *pgxpool.Conn) error {
	cfg, tracked := w.Track(db, b.parents)
	other, err := triggers.OtherKeys(ctx, conn.Conn(), cfg, tracked)
	if err != nil {
		return err
	}
	for place, found := range other {
		b.partial = true
		reason := fmt.Sprintf("the trigger on %s records another key: name that key in the definitions (parent_column) until its tombstones are worked off, "+
			"then run `sexton triggers install`; where both keys have the same values, run `sexton triggers install --same-key` now", found.Table)
		if found.TypeOnly {
			reason = fmt.Sprintf("the key of %s has another type now: run `sexton triggers install`, which converts the tombstones that wait", found.Table)
		}
		if b.news(w, db, reason) {
			w.Logger.ErrorContext(ctx, "definitions and triggers differ: tombstones of the parent wait",
				"kind", Kind, "database", db.Name, "parent", b.parents[place].Recorded, "error", reason)
		}
		for _, reference := range b.parents[place].References {
			if reference.Broken == "" {
				reference.Broken = reason
			}
		}
	}
	return nil
}
