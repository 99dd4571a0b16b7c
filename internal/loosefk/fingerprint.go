package loosefk

import (
	"context"
	"fmt"

	"sexton/internal/dbsqlc"
)

// A table's row in pg_class gets a new xmin with nearly every change of its definition, and statistics are
// written into it in place. Partitions that come or go change the tree itself. Another key in the tombstones shows in the
// function that records them.
const fingerprintSQL = `
WITH RECURSIVE tree AS (
    SELECT unnest($1::oid[]) AS oid
    UNION
    SELECT inherits.inhrelid
    FROM tree
    JOIN pg_catalog.pg_inherits AS inherits ON inherits.inhparent = tree.oid
)
SELECT coalesce(md5(string_agg(concat_ws(' ', class.oid, class.xmin, hook.tgfoid), ',' ORDER BY class.oid)), '')
FROM tree
JOIN pg_catalog.pg_class AS class ON class.oid = tree.oid
LEFT JOIN pg_catalog.pg_trigger AS hook ON hook.tgrelid = class.oid AND hook.tgname = 'sexton_track' AND NOT hook.tgisinternal`

// Fingerprint changes where the tables of the parents that are in one database, or what their tombstones record, are changed, so that what Resolve found may
// hold no longer. It is much cheaper than resolving again.
func Fingerprint(ctx context.Context, db dbsqlc.DBTX, database string, parents []*Parent) (string, error) {
	var oids []uint32
	for _, parent := range parents {
		if parent.Database == database {
			oids = append(oids, parent.OID)
		}
		for _, reference := range parent.References {
			if reference.Database == database {
				oids = append(oids, reference.Child.OID)
			}
		}
	}
	var fingerprint string
	if err := db.QueryRow(ctx, fingerprintSQL, oids).Scan(&fingerprint); err != nil {
		return "", fmt.Errorf("take fingerprint of tables: %w", err)
	}
	return fingerprint, nil
}
