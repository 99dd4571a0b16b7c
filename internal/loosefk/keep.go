package loosefk

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/dbsqlc"
	"sexton/internal/drain"
	"sexton/internal/each"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// What the function undo_set raises: the table has other columns than the batch knows of, a row is too large to be kept, or rows cannot be read before
// the statement deletes them.
const otherColumns, rowTooLarge, rowsApart = "SX005", "SX006", "SX008"

// Postgres raises notWithRules where a statement that keeps rows changes a table with rules.
const notWithRules = "0A000"

// ruled reports whether rules keep the task's rows from being kept, which the run has not known yet.
func (r *run) ruled(ctx context.Context, t *task) (found bool) {
	if t.reference.Keep == nil || t.reference.Keep.Ruled {
		return false
	}
	_, err := r.session(t.reference).Run(ctx, batch.Statement{
		SQL:  `SELECT EXISTS (SELECT FROM pg_catalog.pg_rewrite AS rule WHERE rule.ev_class OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.oid[]))`,
		Args: []any{[]uint32{t.leaf.OID, t.reference.Child.OID}}, Scan: batch.One(&found),
	})
	return err == nil && found
}

// kept reports whether the deleted parent is kept.
func (t tombstone) kept() bool { return t.origin != nil }

// keeps is a term for statements that remove tombstones. The function undo_unkept marks deletions as incomplete whose tombstones are removed without it.
func keeps(tombstones []tombstone) string {
	if len(tombstones) == 0 || !tombstones[0].kept() {
		return ""
	}
	return " AND pg_catalog.set_config('sexton.keeps', 'on', true) IS NOT NULL"
}

// keeping says how the children of tombstones are kept: as their parents are. Tombstones of one chunk are all kept, or none of them is.
func (r *Reference) keeping(tombstones []tombstone) *drain.Keep {
	if r.Keep == nil || !tombstones[0].kept() {
		return nil
	}
	k := *r.Keep
	k.Origins = each.Of(tombstones, func(t tombstone) int64 { return *t.origin })
	slices.Sort(k.Origins)
	k.Origins = slices.Compact(k.Origins)
	return &k
}

// keepsAhead reports whether a statement reads the rows that it keeps by the snapshot in which it deletes them.
func (r *Reference) keepsAhead(form pass, tombstones []tombstone) bool {
	return form == direct && r.Keep != nil && !r.Keep.Apart && !r.Updates() && !r.Tells && tombstones[0].kept()
}

// Keep has the references to children in one database keep what they take.
func Keep(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, database string, parents []*Parent, how drain.Keep) error {
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
func LayoutOf(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, table uint32, exclude []string, changed bool) (*drain.Layout, error) {
	on := names.On(db)
	var id int64 // First, since the next statement sees no row that it has made itself.
	if err := on.QueryRow(ctx, statement("make_layout"), table, exclude, changed).Scan(&id); err != nil {
		return nil, fmt.Errorf("note the columns to keep: %w", err)
	}
	rows, _ := on.Query(ctx, statement("layout"), id)
	layout, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[drain.Layout])
	return layout, problem.Doing(err, "read the columns to keep")
}

// audit returns the audit entry of a batch on the children of tombstones, if the configuration asks for it.
func (r *run) audit(parent *Parent, reference *Reference, tombstones []tombstone) *batch.Audit {
	if !r.engine.Audited {
		return nil
	}
	keys := each.Of(tombstones, func(t tombstone) string {
		if t.integer != nil {
			return strconv.FormatInt(*t.integer, 10)
		}
		return *t.text
	})
	return &batch.Audit{Parent: parent.Recorded, Keys: keys, Child: reference.Child.Label(), Action: string(reference.Definition.OnDelete)}
}
