package loosefk

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/definitions"
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

// keeps is true for definitions whose children stay while their parent lives.
func (r *Reference) keeps() bool { return r.Definition.OnReuse != definitions.ReuseDelete }

// targetKeys are the tombstones' keys, for a statement on the children of one reference: without the keys whose parents live, where
// children stay then. In another database there are no parents to look at.
func (p *Parent) targetKeys(r *Reference, tombstones []tombstone, anyway bool) drain.Keys {
	return drain.Keys{Of: &p.Key, Values: keysOf(p, tombstones), Gone: r.keeps() && !anyway && !r.Remote, Keep: r.keeping(tombstones)}
}

// targetKeys are the chunk's keys.
func (c *chunk) targetKeys(r *Reference) drain.Keys {
	return c.parent.targetKeys(r, c.tombstones, c.anyway)
}

// reviveStatement ends those of the tombstones whose parents live, and returns their ids. Definitions that do not
// keep children come first: where verify marks them, none of theirs may be left.
func (p *Parent) reviveStatement(names pgcatalog.Names, tombstones []tombstone, verify []bool) (string, []any) {
	args := &drain.Args{}
	ids, times := positions(tombstones)
	nameAt, idsAt, timesAt, keysAt := args.Add(p.Recorded), args.Add(ids), args.Add(times), args.Add(keysOf(p, tombstones))
	keys := p.Parameter(keysAt)
	table := names.Render(`"public".loose_foreign_keys_deleted_records`)
	key := []string{"waiting.key"}
	if p.Composite() {
		key = p.Parts("waiting.key")
	}
	where, verifyAt := p.Lives("waiting.key", keys), args.Once(verify)
	for i, reference := range p.References {
		if reference.keeps() || reference.Remote || !reference.Usable() {
			continue
		}
		where += fmt.Sprintf("\nAND (NOT ($%d::pg_catalog.bool[])[%d] OR NOT %s)", verifyAt(), i+1, reference.Exists(key, args))
	}
	return fmt.Sprintf(`UPDATE %[1]s AS tombstone
SET status = 3, settled_at = pg_catalog.clock_timestamp(), consume_after = 'infinity', last_error = NULL
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
WHERE %[6]s
))
RETURNING tombstone.id`, table, idsAt, timesAt, keys, nameAt, where), args.Values
}

// settled are the ids of the tombstones that a transaction ended.
type settled struct{ gone, revived []int64 }

// settlement ends tombstones of the chunk: those among revivable whose parents live, and then the finished ones of the
// others, without a look at the children of the exact references. With loaded, a tombstone that was written again since stays.
func (r *run) settlement(
	c *chunk, revivable, finished []tombstone, loaded bool, exact []*Reference, ended *settled,
) (statements []batch.Statement) {
	if len(revivable) > 0 && !c.anyway && slices.ContainsFunc(c.parent.References, (*Reference).keeps) {
		sql, args := c.parent.reviveStatement(r.engine.Session.Names, revivable, c.verify)
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
	// Only children that do not stay have to be gone before.
	going := slices.Clone(c.verify)
	for i, reference := range c.parent.References {
		going[i] = going[i] && !reference.keeps()
	}
	revivable, err := r.finished(ctx, c, going)
	if err != nil {
		return err
	}
	// A tombstone that was written again since it was loaded is looked up in the waiting pass.
	if statements := r.settlement(c, revivable, finished, c.passes == 0, c.exact, ended); len(statements) > 0 {
		_, err = r.engine.Session.Run(ctx, statements...)
	}
	return err
}

// Revived tombstones are kept for operators who ask why children stay: so many days, and so many of them.
const (
	revivedDays = 7
	mostRevived = 10_000
)

// expired is the statement that removes old ones. A run's first look has it now and then: without it the look writes nothing.
func (r *run) expired() batch.Statement {
	return batch.Statement{SQL: r.engine.statement("expire"), Args: []any{revivedDays, pageSize}}
}

// prune removes what a run has revived beyond what is kept.
func (r *run) prune(ctx context.Context) error {
	if r.stats.Revived == 0 {
		return nil
	}
	surplus := batch.Statement{SQL: r.engine.statement("prune"), Args: []any{mostRevived, pageSize}}
	for removed := int64(pageSize); removed == pageSize && r.stop.Err() == nil; {
		affected, err := r.engine.Session.Run(ctx, surplus)
		if err != nil {
			return fmt.Errorf("remove revived tombstones: %w", err)
		}
		removed = affected[0]
	}
	return nil
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
