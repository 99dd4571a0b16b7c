package extdiff

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
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
	rows, err := db.Query(ctx, names.Render(`
		SELECT store.store, store.sealed_at, store.sweep_began_at, store.sweep_ended_at, store.listed, store.swept, store.foreign_objects, store.held_back
		FROM "sexton".external_diff_stores AS store
		ORDER BY store.sealed_at DESC NULLS LAST, store.store
		LIMIT $1`), mostStores)
	if err != nil {
		return nil, fmt.Errorf("read stores of diffs: %w", err)
	}
	stores := []StoreState{}
	var s StoreState
	_, err = pgx.ForEachRow(rows, []any{
		&s.Store, &s.SealedAt, &s.SweepBeganAt, &s.SweepEndedAt, &s.Listed, &s.Swept.Swept, &s.Foreign, &s.HeldBack,
	}, func() error {
		stores = append(stores, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read stores of diffs: %w", err)
	}
	return stores, nil
}
