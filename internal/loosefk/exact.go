package loosefk

import (
	"slices"
)

// A direct statement takes every child that it sees, and follows children that others are just changing. So where one
// has gone through, a look at the same table in the same pass finds only children that came after its snapshot:
// those are late ones, for which removed tombstones are remembered in any case. The look itself is dear, as it
// walks over the index entries of all rows that the statement has just deleted: half as long again.
//
// What it may be left out for is narrow, though. The limited forms skip rows, and have to be looked after. So have
// composite keys, whose rows are found by pointers that do not follow a change, and partitions, between which a row
// may move from one that is still to come to one that is done. And a trigger or rule can keep rows from going or put
// them back: no operator would ever be told of it, as second looks would bring the tombstone back again and again.

// took notes that a task's statement has gone through.
func (c *chunk) took(t task, form pass) {
	c.exact = c.exactWith(t, form)
	if t.reference.Updates() {
		c.seen = slices.DeleteFunc(c.seen, func(at place) bool {
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

// marks tells of each of the parent's references whether it is among some of them.
func (p *Parent) marks(some []*Reference) []bool {
	marked := make([]bool, len(p.References))
	for i, reference := range p.References {
		marked[i] = slices.Contains(some, reference)
	}
	return marked
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
