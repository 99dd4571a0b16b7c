package loosefk

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/drain"
)

// denseBlock is how many children of a parent a block must hold on average for the table to be cleaned in stretches. To
// read a block costs about as much as to take five rows by pointers that were read and sent to and fro before.
const denseBlock = 8

// firstWindow is the size of the first look. It decides, so it is smaller than those which have to serve many
// statements: reading 50,000 pointers takes longer than a statement should.
const firstWindow = drain.LargestBatch / 2

// stretches are the way through a table in which nearly every block has children of one heavy parent: stretches of blocks,
// one after the other, need no pointers. It finds nothing out about what lies behind it, so after every so many rows
// a look at the index tells where to go on, and in the end that nothing is left. Those looks read all the
// entries of what was deleted since the last one, as the looks for pointers do.
type stretches struct {
	// perBlock is the number of children in a block of the last stretch, next the first block of the next one.
	perBlock float64
	next     uint32
	// left are the rows until the next look; 0 is none under way. They begin with every.
	left, every int64
	// over reports that the rest is not worth stretches, or not possible in statements as small as they have to be.
	over bool
}

func (w *stretches) underWay() bool { return w.left > 0 }

// begin goes on from what a look has found: pointers to all children that it was to look for, which the index has in
// the order of the table. It reports whether they are worth stretches with statements of so many rows.
func (w *stretches) begin(window []pgtype.TID, limit int) bool {
	if w.over || len(window) == 0 {
		return false
	}
	first, last := window[0].BlockNumber, window[0].BlockNumber
	for _, pointer := range window {
		first, last = min(first, pointer.BlockNumber), max(last, pointer.BlockNumber)
	}
	if w.perBlock == 0 {
		perBlock := float64(len(window)) / float64(last-first+1)
		if len(window) < firstWindow || perBlock < denseBlock || float64(limit) < perBlock {
			return false
		}
		w.perBlock = perBlock
	}
	w.every = max(w.every, drain.LargestBatch)
	w.next, w.left = first, w.every
	return true
}

// looksFor is how many pointers the next look needs: between stretches the first one says it all.
func (w *stretches) looksFor(first bool) int {
	switch {
	case first:
		return firstWindow
	case w.perBlock > 0 && !w.over:
		return 1
	}
	return drain.LargestBatch
}

// looked keeps the looks from growing with the square of the rows: while an old snapshot keeps deleted entries in the
// index, every look reads all of them.
func (w *stretches) looked(took, target time.Duration) {
	const most = 8 * drain.LargestBatch
	switch {
	case w.every == 0:
	case took > target:
		w.every = min(2*w.every, most)
	case took < target/2:
		w.every = max(w.every/2, drain.LargestBatch)
	}
}

// blocks are those of a stretch with about so many rows. 0 means that a single block has more.
func (w *stretches) blocks(limit int) uint32 { return uint32(float64(limit) / w.perBlock) }

// advance notes what a stretch of so many blocks has cleaned.
func (w *stretches) advance(blocks uint32, rows int64) {
	w.next += blocks
	w.left = max(0, w.left-rows)
	w.perBlock = float64(rows) / float64(blocks)
	if w.perBlock < denseBlock {
		w.left = 0
		w.perBlock = 0 // The next look decides anew.
	}
}

// stop ends the stretches for good.
func (w *stretches) stop() { w.left, w.over = 0, true }
