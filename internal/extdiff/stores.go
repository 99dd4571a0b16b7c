package extdiff

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/dbsqlc"
	"sexton/internal/dbsqlc/diffsqlc"
	"sexton/internal/pgschema"
)

// mostStores bounds what is told of stores that were used once.
const mostStores = 10

// StoreState holds the facts that the database has about a store that it has used.
type StoreState struct {
	Swept

	// Store is its URL, without anything secret.
	Store string `json:"store"`
	// SealedAt is when its marker was last changed or first seen; nil where that has not been yet.
	SealedAt *time.Time `json:"sealed_at"`
	// SweepBeganAt and SweepEndedAt are those of the round in progress, which has no end, or of the last one; nil before the
	// first.
	SweepBeganAt *time.Time `json:"sweep_began_at"`
	SweepEndedAt *time.Time `json:"sweep_ended_at"`
}

// ReadStores returns the stores that were used, the one that was used last first, ten at most.
func ReadStores(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) ([]StoreState, error) {
	rows, err := diffsqlc.New(names.On(db)).Stores(ctx, mostStores)
	if err != nil {
		return nil, fmt.Errorf("read stores of diffs: %w", err)
	}
	stores := make([]StoreState, 0, len(rows))
	for _, row := range rows {
		stores = append(stores, StoreState{
			Swept: Swept{Listed: row.Listed, Swept: row.Swept, Foreign: row.ForeignObjects, HeldBack: row.HeldBack},
			Store: row.Store, SealedAt: row.SealedAt, SweepBeganAt: row.SweepBeganAt, SweepEndedAt: row.SweepEndedAt,
		})
	}
	return stores, nil
}
