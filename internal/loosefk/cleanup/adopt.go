package cleanup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/loosefk"
)

// adopt takes over the removed tombstones of a database that had another name in the configuration when they were removed.
// No pass would take the second look at them otherwise. Two databases of the configuration may be one, with a schema each, so
// only those of the pass's own parents are taken, and none that bears a name in use.
func adopt(ctx context.Context, w *Work, db database.Database, conn *pgxpool.Conn, parents []*loosefk.Parent) error {
	adopted, err := db.Names.Queries(conn).SweptAdopt(ctx, dbsqlc.SweptAdoptParams{
		Database: db.Name, Configured: w.names(), Parents: Recorded(parents),
	})
	if err != nil {
		return fmt.Errorf("take over removed tombstones of database %s: %w", db.Name, err)
	}
	if adopted > 0 {
		w.Logger.InfoContext(ctx, "removed tombstones taken over from an earlier name of the database",
			"kind", Kind, "database", db.Name, "batches", adopted)
	}
	return nil
}
