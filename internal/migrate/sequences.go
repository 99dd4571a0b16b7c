package migrate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Sequence is a sequence whose next value is already in its table. Logical replication
// and restores of rows alone leave such sequences.
type Sequence struct {
	// Name and Table are names in SQL.
	Name, Table string
	Last, Max   int64
}

// raise returns a statement that moves the sequence past its table. Rows that another
// session is adding at the same time are left room for.
func (s Sequence) raise() string {
	const room = 1000
	return fmt.Sprintf("SELECT pg_catalog.setval(%s, %d)", pgcatalog.Literal(s.Name), s.Max+room)
}

// LaggingSequences returns the sequences of Sexton's tables, River's included, that lag,
// as far as the role may read them. It changes nothing.
func LaggingSequences(ctx context.Context, db Database) (found []Sequence, _ error) {
	err := db.reading(ctx, func(on beginner) error {
		return pgx.BeginTxFunc(ctx, on, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
			found, err = db.lagging(ctx, tx, "SELECT")
			return err
		})
	})
	return found, problem.Doing(err, "look at the sequences of database %s", db.Name)
}

// RaiseSequences moves the sequences of Sexton's tables past the greatest ids, as far as
// the role may.
func RaiseSequences(ctx context.Context, db Database) error {
	err := db.reading(ctx, func(on beginner) error {
		return pgx.BeginTxFunc(ctx, on, pgx.TxOptions{}, func(tx pgx.Tx) error { return db.raiseSequences(ctx, tx) })
	})
	return problem.Doing(err, "raise the sequences of database %s", db.Name)
}

func (db Database) raiseSequences(ctx context.Context, tx pgx.Tx) error {
	sequences, err := db.lagging(ctx, tx, "UPDATE")
	for _, sequence := range sequences {
		if err := execAll(ctx, tx, []string{sequence.raise()}); err != nil {
			return err
		}
	}
	return err
}

func (db Database) lagging(ctx context.Context, tx pgx.Tx, privilege string) (lagging []Sequence, _ error) {
	type owned struct{ Name, Table, Column string }
	sequences, err := list(ctx, tx, "sequences", pgx.RowToStructByPos[owned], sqlText("sequences"), db.TrackedSchema,
		trackedTables(), privilege)
	if err != nil {
		return nil, err
	}
	for _, o := range sequences {
		found := Sequence{Name: o.Name, Table: o.Table}
		// A sequence that was never used stands before its first value.
		sql := fmt.Sprintf("SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END, coalesce((SELECT pg_catalog.max(t.%s) FROM %s AS t), 0) "+
			"FROM %s AS s", o.Column, o.Table, o.Name)
		if err := tx.QueryRow(ctx, sql).Scan(&found.Last, &found.Max); err != nil {
			return nil, fmt.Errorf("look at sequence %s: %w", o.Name, err)
		}
		if found.Max > found.Last {
			lagging = append(lagging, found)
		}
	}
	return lagging, nil
}
