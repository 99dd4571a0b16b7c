package integration

import (
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// reused is a case in which keys that were deleted are inserted again before the worker comes by: the one difference from
// native foreign keys. Those have removed the old rows' children by then; a worker that comes later cannot tell old children from
// new ones, and keeps all. So the twin's rows have to be among ours, and each surplus row of ours has parents that live.
//
// Afterwards both databases begin anew, as the tables differ.
func (c *scenario) reused() {
	c.fill()
	before := slices.Clone(c.alive)
	c.workload()
	c.flush()
	c.look()
	ours := map[place]bool{}
	for _, r := range c.rows(c.main) {
		ours[r.place] = true
	}
	for _, r := range before {
		t := c.schema.tables[r.table]
		if ours[r.place] || t.keying == keyless || !rapid.Bool().Draw(c.rt, "used again") {
			continue
		}
		made := t.made
		t.made = r.number
		c.both(t.insert(c.drawRow(t, c.living())))
		t.made = made
		c.mix.count("key used again")
		c.look()
	}
	c.fill()
	c.flush()
	x := &interleaving{scenario: c}
	x.finish()
	x.expectNoOrphans()
	c.compareReused()
	stats := c.pass(nil)
	require.False(c.rt, stats.Changed(), "a run without work must change nothing, but: %+v", stats)

	tables := make([]string, len(c.schema.tables))
	for i, t := range c.schema.tables {
		tables[i] = t.sql()
	}
	c.both("TRUNCATE " + strings.Join(tables, ", "))
	c.script.Reset()
	c.exec(c.main, "ours", "SET sexton.truncate = 'ignore'; TRUNCATE "+strings.Join(tables, ", ")+"; RESET sexton.truncate;"+
		"DELETE FROM public.loose_foreign_keys_deleted_records")
	c.look()
}

func (c *scenario) compareReused() {
	pending, unconfirmed := c.left()
	require.Zero(c.rt, pending+unconfirmed, "tombstones are left after the run")
	ours := map[place]bool{}
	for _, r := range c.rows(c.main) {
		ours[r.place] = true
	}
	for _, r := range c.rows(c.native) {
		require.True(c.rt, ours[r.place], "native foreign keys leave %s %s", c.schema.tables[r.table].sql(), r.text)
		delete(ours, r.place)
	}
	c.mix.add("row that lives with a key used again", len(ours))
}
