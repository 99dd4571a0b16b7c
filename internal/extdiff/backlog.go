package extdiff

import (
	"context"
	"fmt"

	"sexton/internal/dbsqlc"
	"sexton/internal/dbsqlc/diffsqlc"
	"sexton/internal/pgschema"
)

const (
	// backlogCap is where diffs are no longer counted, bytesCap how many of them have their bytes counted.
	backlogCap = 10_000
	bytesCap   = 200
)

// Backlog counts the diffs still in the database, and the objects that the store still has to lose.
type Backlog struct {
	// Pending counts diffs in the database, due or not. Capped tells that there are more.
	Pending int64 `json:"pending"`
	Capped  bool  `json:"capped"`
	// Bytes are those of the first diffs among them; BytesCapped tells that there are more diffs than were measured.
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
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) (Backlog, error) {
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
	if b.Uploads, err = ReadUnfinished(ctx, db, names); err != nil {
		return b, err
	}
	b.Stores, err = ReadStores(ctx, db, names)
	return b, err
}

// ReadSkipped counts diffs that stay in the database although they are due, by reason. It counts 10,000 of them at most.
func ReadSkipped(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) (map[Skip]int64, error) {
	rows, err := diffsqlc.New(names.On(db)).Skipped(ctx, backlogCap)
	if err != nil {
		return nil, fmt.Errorf("count diffs that cannot be moved: %w", err)
	}
	skipped := map[Skip]int64{}
	for _, row := range rows {
		skipped[Skip(row.Reason)] = row.Count
	}
	return skipped, nil
}
