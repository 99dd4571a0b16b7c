package loosefk

import (
	"context"
	"fmt"

	"sexton/internal/database"
)

// Fingerprint changes where the tables of the parents that are in one database, or what their tombstones record, are changed, so that what Resolve found may
// hold no longer. It is much cheaper than resolving again: a table's row in pg_class gets a new xmin with nearly every change of its definition, and
// statistics are written into it in place; a column's new name and an index do not, so the tables' columns and indexes are looked at, too. Partitions that
// come or go change the tree itself. Another key in the tombstones shows in the function that records them.
func Fingerprint(ctx context.Context, db database.Sender, name string, parents []*Parent) (string, error) {
	var fingerprint string
	row := database.Behind(ctx, db, "SELECT "+database.GenericPlan, nil, []any{new(string)}, statement("fingerprint"), tablesIn(name, parents))
	if err := row.Scan(&fingerprint); err != nil {
		return "", fmt.Errorf("take fingerprint of tables: %w", err)
	}
	return fingerprint, nil
}

// tablesIn are the tables of parents that are in one database.
func tablesIn(name string, parents []*Parent) (oids []uint32) {
	for _, parent := range parents {
		if parent.Database == name {
			oids = append(oids, parent.OID)
		}
		for _, reference := range parent.References {
			if reference.Database == name {
				oids = append(oids, reference.Child.OID)
			}
		}
	}
	return oids
}
