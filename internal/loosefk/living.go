package loosefk

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/each"
	"sexton/internal/pgcatalog"
)

// A tombstone says that a row was deleted, and not that its key is free: tables are swapped, rows move from a detached
// partition, are loaded anew, or share a key for a moment under a deferrable constraint. So each statement that changes
// children looks for the parents itself, in its own snapshot: a look of its own before it would be too old.
//
// Where a statement waits for a row, whose writer may have inserted the parent, Postgres looks at that row again and at
// nothing else. So a statement either picks its rows FOR UPDATE itself, by pointers that do not follow a change, or
// runs in a REPEATABLE READ transaction, where the change is an error (40001) and the picking form goes on.

// targetKeys are the tombstones' keys, for a statement on the children of one reference: without the keys whose parents live. In another
// database there are no parents to look at.
func (p *Parent) targetKeys(r *Reference, tombstones []tombstone) drain.Keys {
	return drain.Keys{Of: &p.Key, Values: keysOf(p, tombstones), Gone: !r.Remote, Keep: r.keeping(tombstones)}
}

// targetKeys are the chunk's keys.
func (c *chunk) targetKeys(r *Reference) drain.Keys { return c.parent.targetKeys(r, c.tombstones) }

// reviveStatement deletes those of the tombstones whose parents live, and returns their ids.
func (p *Parent) reviveStatement(names pgcatalog.Names, tombstones []tombstone) (string, []any) {
	args := &drain.Args{}
	ids, times := positions(tombstones)
	nameAt, idsAt, timesAt, keysAt := args.Add(p.Recorded), args.Add(ids), args.Add(times), args.Add(keysOf(p, tombstones))
	keys := p.Parameter(keysAt)
	table := names.Render(`"public".loose_foreign_keys_deleted_records`)
	return fmt.Sprintf(`DELETE FROM %[1]s AS tombstone
WHERE tombstone.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
SELECT found.ctid
FROM ROWS FROM (
	pg_catalog.unnest($%[2]d::pg_catalog.int8[]), pg_catalog.unnest($%[3]d::pg_catalog.timestamptz[]), pg_catalog.unnest(%[4]s)
) AS waiting (id, consume_after, key)
CROSS JOIN LATERAL (
	SELECT pending.ctid
	FROM %[1]s AS pending
	WHERE pending.fully_qualified_table_name OPERATOR(pg_catalog.=) $%[5]d
	AND pending.consume_after OPERATOR(pg_catalog.=) waiting.consume_after
	AND pending.id OPERATOR(pg_catalog.=) waiting.id
	AND pending.status OPERATOR(pg_catalog.=) 1
	OFFSET 0
) AS found
WHERE %[6]s%[7]s
))
RETURNING tombstone.id`, table, idsAt, timesAt, keys, nameAt, p.Lives("waiting.key", keys), keeps(tombstones)), args.Values
}

// settled are the ids of the tombstones that a transaction ended.
type settled struct{ gone, revived []int64 }

// settlement ends tombstones of the chunk: those whose parents live, and then the finished ones of the others, without a look at the children of the exact references. With loaded, a tombstone that was written again since stays.
func (r *run) settlement(
	c *chunk, all, finished []tombstone, loaded bool, exact []*Reference, ended *settled,
) (statements []batch.Statement) {
	if len(all) > 0 && len(c.parent.References) > 0 {
		sql, args := c.parent.reviveStatement(r.engine.Session.Names, all)
		statements = append(statements, batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&ended.revived, pgx.RowTo[int64])})
	}
	if len(finished) > 0 {
		sql, args := c.parent.removeStatement(r.engine.Session.Names, r.engine.Database, finished, loaded, c.unseen(), c.parent.flags(exact))
		statements = append(statements, batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&ended.gone, pgx.RowTo[int64])})
	}
	return statements
}

// end is settlement in a transaction of its own.
func (r *run) end(ctx context.Context, c *chunk, ended *settled) error {
	finished, err := r.finished(ctx, c, c.verify)
	if err != nil {
		return err
	}
	// A tombstone that was written again since it was loaded is looked up in the waiting pass.
	if statements := r.settlement(c, c.tombstones, finished, c.passes == 0, c.exact, ended); len(statements) > 0 {
		_, err = r.engine.Session.Run(ctx, statements...)
	}
	return err
}

// A direct statement takes every child that it sees, and follows children that others are just changing. So where one
// has gone through, a look at the same table in the same pass finds only children that came after its snapshot:
// those are late ones, for which removed tombstones are remembered in any case. The look itself is dear, as it
// reads the index entries of all rows that the statement has just deleted: half as long again.
//
// What it may be left out for is narrow, though. The limited forms skip rows, and have to be looked after. So have
// composite keys, whose rows are found by pointers that do not follow a change, and partitions, between which a row
// may move from one that is still to come to one that is done. And a trigger or rule can keep rows from going or put
// them back: no operator would ever be told of it, as second looks would bring the tombstone back again and again.

// took notes that a task's statement has gone through.
func (c *chunk) took(t task, form pass) {
	c.exact = c.exactWith(t, form)
	if t.reference.Updates() {
		c.seen = slices.DeleteFunc(c.seen, func(at leafTarget) bool {
			return at.reference != t.reference && at.reference.Child.OID == t.reference.Child.OID
		})
	}
}

// exactWith are the references whose children are known to be gone once the task's statement has gone through.
func (c *chunk) exactWith(t task, form pass) []*Reference {
	exact := slices.Clone(c.exact)
	if t.reference.Updates() {
		// The rows that it leaves may now be what another definition of the same table is about.
		exact = slices.DeleteFunc(exact, func(other *Reference) bool { return other.Child.OID == t.reference.Child.OID })
	}
	if form == direct && !t.reference.Partitioned() && !c.parent.Composite() && !slices.Contains(exact, t.reference) {
		exact = append(exact, t.reference)
	}
	return exact
}

// flags reports, for each of the parent's references, whether it is among some of them.
func (p *Parent) flags(some []*Reference) []bool {
	return each.Of(p.References, func(reference *Reference) bool { return slices.Contains(some, reference) })
}

// The statements that want all rows of their keys collect them by a bitmap and take them page by page: measured, that
// halves the time of a direct statement, and that of a look at children that are gone. Limited statements would
// build the whole bitmap for a few rows; so the settings hold for the one statement between them, and for its plan,
// which is made when it first runs.
const (
	BitmapOn  = "SELECT pg_catalog.set_config('enable_bitmapscan', 'on', true)"
	bitmapOff = "SELECT pg_catalog.set_config('enable_bitmapscan', 'off', true)"
	// A look is content with its first row, for which the planner would take no bitmap while there is a choice.
	bitmapOnly = "SELECT pg_catalog.set_config('enable_bitmapscan', 'on', true), pg_catalog.set_config('enable_indexscan', 'off', true)"
)

// saw notes that a look through a leaf has found no children.
func (c *chunk) saw(t *task) {
	if at := t.target(); !t.reference.Index && !slices.Contains(c.seen, at) {
		c.seen = append(c.seen, at)
	}
}

// unseen marks the references whose children decide whether a tombstone is done, without those whose leaves were all seen to
// have none.
func (c *chunk) unseen() []bool {
	verify := slices.Clone(c.verify)
	for i, reference := range c.parent.References {
		verify[i] = verify[i] && !c.sawAll(reference)
	}
	return verify
}

func (c *chunk) sawAll(reference *Reference) bool {
	return !slices.ContainsFunc(reference.Leaves, func(leaf Table) bool { return !slices.Contains(c.seen, leafTarget{reference, leaf.OID}) })
}
