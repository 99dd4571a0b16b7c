package loosefk

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/dbsqlc"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// markUnkept records that not all rows of these deletions are saved for undo. A worker
// with undo turned off calls markUnkept before it changes the first row: if that worker
// is killed, a worker with undo turned on may finish the deletion. The mark is on disk
// before rows in other databases change, because they are committed separately.
func markUnkept(ctx context.Context, on *batch.Session, origins []int64) error {
	limits := on.Limits
	limits.Own, limits.Durable = true, true
	_, err := on.RunWithin(ctx, limits, batch.Statement{
		SQL:  on.Names.Render(statement("mark_unkept")),
		Args: []any{origins},
	})
	return err //nolint:wrapcheck // The pass names it.
}

// Keep sets the field Keep of the references to children in one database, so that
// statements save, for undo, the rows that they delete or change. how holds the settings
// of undo.
func Keep(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, database string, parents []*Parent,
	how dml.Keep,
) error {
	// Exclude must not be nil, because pgx passes a nil slice as NULL.
	how.Exclude = append([]string{}, how.Exclude...)
	for _, reference := range UsableIn(database, parents) {
		layout, err := LayoutOf(ctx, db, names, reference.Child.OID, how.Exclude, reference.Updates())
		if err != nil {
			return err
		}
		keep := how
		keep.Layout = layout
		reference.Keep = &keep
	}
	return nil
}

// LayoutOf returns the layout of a table, which lists the columns that undo stores. It
// inserts the layout if it is new. Deleted rows are stored in the layout of the root of
// the partition tree, as triggers do. Changed rows are stored in the layout of the table
// itself.
func LayoutOf(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, table uint32, exclude []string,
	changed bool,
) (*dml.Layout, error) {
	on := names.On(db)
	// A statement cannot read a row that it inserts itself, so the layout is inserted
	// first.
	var id int64
	if err := on.QueryRow(ctx, statement("make_layout"), table, exclude, changed).Scan(&id); err != nil {
		return nil, fmt.Errorf("store the columns to keep: %w", err)
	}
	rows, _ := on.Query(ctx, statement("layout"), id)
	layout, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[dml.Layout])
	return layout, problem.Doing(err, "read the columns to keep")
}
