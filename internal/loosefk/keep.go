package loosefk

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// keeps is a term for statements that remove tombstones. The function undo_unkept marks deletions as incomplete whose tombstones
// are removed without it.
func keeps(tombstones []drain.Tombstone) string {
	if len(tombstones) == 0 || tombstones[0].Origin == nil {
		return ""
	}
	return " AND pg_catalog.set_config('sexton.keeps', 'on', true) IS NOT NULL"
}

// Keep has the references to children in one database keep what they take.
func Keep(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, database string, parents []*Parent, how dml.Keep) error {
	how.Exclude = append([]string{}, how.Exclude...) // Never NULL.
	for _, reference := range UsableIn(database, parents) {
		layout, err := LayoutOf(ctx, db, names, reference.Child.OID, how.Exclude, reference.Updates())
		if err != nil {
			return err
		}
		keep := how
		keep.Layout, keep.Apart = layout, reference.Keep != nil && reference.Keep.Apart
		reference.Keep = &keep
	}
	return nil
}

// LayoutOf reads how rows of a table are kept: deleted ones as those of its root, as triggers keep them, and changed ones by its own key.
func LayoutOf(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, table uint32, exclude []string, changed bool) (*dml.Layout, error) {
	on := names.On(db)
	var id int64 // First, since the next statement sees no row that it has made itself.
	if err := on.QueryRow(ctx, statement("make_layout"), table, exclude, changed).Scan(&id); err != nil {
		return nil, fmt.Errorf("note the columns to keep: %w", err)
	}
	rows, _ := on.Query(ctx, statement("layout"), id)
	layout, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[dml.Layout])
	return layout, problem.Doing(err, "read the columns to keep")
}
