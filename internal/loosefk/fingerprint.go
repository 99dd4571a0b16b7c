package loosefk

import (
	"context"
	"fmt"

	"sexton/internal/database"
)

// A table's row in pg_class gets a new xmin with nearly every change of its definition, and statistics are
// written into it in place; a column's new name and an index do not, so the tables' columns and indexes are looked at, too. Partitions that come
// or go change the tree itself. Another key in the tombstones shows in the
// function that records them.
const fingerprintSQL = `
WITH RECURSIVE tree AS (
    SELECT pg_catalog.unnest($1::pg_catalog.oid[]) AS oid
    UNION
    SELECT inherits.inhrelid
    FROM tree
    JOIN pg_catalog.pg_inherits AS inherits ON inherits.inhparent = tree.oid
)
SELECT coalesce(pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat_ws(' ', class.oid, class.xmin, hook.tgfoid, columns.names, indexes.oids),
    ',' ORDER BY class.oid)), '')
FROM tree
JOIN pg_catalog.pg_class AS class ON class.oid = tree.oid
LEFT JOIN pg_catalog.pg_trigger AS hook ON hook.tgrelid = class.oid AND hook.tgname = 'sexton_track' AND NOT hook.tgisinternal
LEFT JOIN LATERAL (
    SELECT pg_catalog.string_agg(attribute.attname, ',' ORDER BY attribute.attnum) AS names
    FROM pg_catalog.pg_attribute AS attribute
    WHERE attribute.attrelid = class.oid AND attribute.attnum > 0
) AS columns ON class.oid = ANY ($1)
LEFT JOIN LATERAL (
    SELECT pg_catalog.string_agg(index.indexrelid::pg_catalog.text, ',' ORDER BY index.indexrelid) AS oids
    FROM pg_catalog.pg_index AS index
    WHERE index.indrelid = class.oid AND index.indisvalid
) AS indexes ON class.oid = ANY ($1)`

// Fingerprint changes where the tables of the parents that are in one database, or what their tombstones record, are changed, so that what Resolve found may
// hold no longer. It is much cheaper than resolving again.
func Fingerprint(ctx context.Context, db database.Sender, name string, parents []*Parent) (string, error) {
	var oids []uint32
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
	var fingerprint string
	if err := database.Behind(ctx, db, "SELECT "+database.GenericPlan, nil, []any{new(string)}, fingerprintSQL, oids).Scan(&fingerprint); err != nil {
		return "", fmt.Errorf("take fingerprint of tables: %w", err)
	}
	return fingerprint, nil
}
