package loosefk

import (
	"context"
	"fmt"

	"sexton/internal/database"
)

// Fingerprint returns a text that changes if the parents' tables in one database change,
// or the columns that their tombstones record. What Resolve found may then be wrong. It
// is much cheaper than Resolve: a table's row in pg_class gets a new xmin with nearly
// every change of its definition, but not with new statistics, which are written in
// place. A renamed column and an index do not change that row, so the fingerprint also
// has the columns and indexes. Attached and detached partitions change the tree of
// tables. Another recorded key changes the function that records it.
func Fingerprint(ctx context.Context, db database.Sender, name string, parents []*Parent) (string, error) {
	var fingerprint string
	row := database.Behind(ctx, db, "SELECT "+database.GenericPlan, nil, []any{new(string)}, statement("fingerprint"), tablesIn(name, parents))
	if err := row.Scan(&fingerprint); err != nil {
		return "", fmt.Errorf("take fingerprint of tables: %w", err)
	}
	return fingerprint, nil
}

// tablesIn returns the tables of parents and children that are in one database.
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
