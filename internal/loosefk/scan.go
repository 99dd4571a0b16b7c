package loosefk

import (
	"context"
	"time"

	"sexton/internal/batch"
	"sexton/internal/pace"
)

// Where no index leads to the children, a look reads the whole leaf. So it looks for the children of many parents at once,
// and its finding nothing is all that the removal of their tombstones has to know: the removal would read the leaf once
// for each of them. A row that others insert or move behind the look is a late child, which the second look finds.
//
// A leaf that takes longer than a statement may is read by ranges of blocks.

const (
	// firstBlocks are those of the first range, mostBlocks the most of one.
	firstBlocks = 1024
	mostBlocks  = 1 << 20
	// slowWindow is how many statements on slow rows one look serves.
	slowWindow = 50
)

// blockScan is a way through the blocks of a leaf.
type blockScan struct {
	// next is the next block, end the number of them when the scan began; 0 is no scan under way.
	next, end uint32
	// found reports that there was a child, so that another scan has to follow.
	found bool
}

func (s *blockScan) underWay() bool { return s.end > 0 }

// lookOn reads on until there are children, the end, or the time of a turn is over.
func (r *run) lookOn(ctx context.Context, c *chunk, t *task) error {
	if !t.scan.underWay() {
		const sql = `SELECT pg_catalog.pg_relation_size($1::pg_catalog.oid) OPERATOR(pg_catalog./) pg_catalog.current_setting('block_size')::bigint`
		var blocks int64
		_, err := r.in(ctx, t.reference.Database, r.engine.Session.Limits, batch.Statement{SQL: sql, Args: []any{t.leaf.OID}, Scan: batch.One(&blocks)})
		if err != nil {
			return err
		}
		t.scan = blockScan{end: uint32(max(blocks, 1))}
	}
	target := max(r.engine.Adaptive.Target, time.Millisecond)
	steer := pace.Steer{Target: target, Smallest: 1, Largest: mostBlocks}
	limits := r.engine.Session.Limits
	limits.StatementTimeout = min(limits.StatementTimeout, beside)
	for ends := time.Now().Add(round / 2); t.scan.underWay() && !r.ended() && time.Now().Before(ends); {
		blocks := uint32(t.reference.blocks)
		sql, args := t.reference.RangeStatement(t.leaf, c.targetKeys(t.reference), t.scan.next, blocks)
		err := r.readWindow(ctx, t, limits, sql, args)
		took := r.session(t.reference).Took()
		switch {
		case err != nil && batch.Judge(err).Verdict == batch.Timeout && blocks > 1:
			t.reference.blocks = steer.TimedOut(t.reference.blocks)
			continue
		case err != nil:
			return err
		}
		t.reference.blocks = steer.Learn(t.reference.blocks, int64(blocks), 0, took)
		t.scan.next += blocks
		if t.scan.next >= t.scan.end {
			if !t.scan.found && len(t.window) == 0 {
				c.saw(t)
			}
			t.scan.end = 0
		}
		r.pace.Breathe(ctx, took, 1)
		if len(t.window) > 0 {
			t.scan.found = true
			return nil
		}
	}
	return nil
}

// locksOnTheWay goes on beside locked rows of a leaf without an index, in pieces: every statement of another form reads the
// whole leaf. The next pieces leave locked rows out. Once a scan has found nothing else, the chunk waits, and scans anew.
func (r *run) locksOnTheWay(ctx context.Context, c *chunk, t *task, f batch.Fault) {
	if t.skips || t.lockedOnly {
		r.inTheWay(ctx, c, *t, f)
		t.window, t.scan, t.looked = nil, blockScan{}, false
	}
	t.skips, t.lockedOnly = true, false
}
