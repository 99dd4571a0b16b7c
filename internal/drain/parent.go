package drain

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pace"
	"sexton/internal/pgcatalog"
)

// Parent is a table whose rows were deleted, with the edges to its children. If its rows
// still exist, the parent is living: see lives.
type Parent struct {
	*dml.Key

	// Name is the table's name in tombstones.
	Name  string
	Edges []*Edge
	// Tree, if set, deletes the rows that refer to the key's own row by foreign keys that
	// are not edges. It runs after the pieces of all edges.
	Tree func(ctx context.Context, in *TreeSession, t Tombstone) error

	// Pass.mu guards the fields below.
	//
	// loaded are tombstones that are not in a chunk yet. returned are chunks that were
	// returned to the queue.
	loaded   []Tombstone
	returned []*chunk
	// loadedTo is the position of the last loaded tombstone. moreDue reports that the
	// last load reached its limit, so that further tombstones may be due.
	loadedTo Position
	moreDue  bool
	// servedAt is the time at which a session last took a chunk, and resumedAt the time
	// at which a session last took a returned chunk. newFirst is set if the next chunk
	// must be a new one although chunks were returned.
	servedAt, resumedAt time.Time
	newFirst            bool
	// held is the reason why this pass can finish no tombstone of the parent, or nil.
	held *batch.Fault
}

// lives reports whether the parent is living: its rows still exist, for example those of
// users. Source.Complete deletes such a row after its edges have been drained. Each key
// of a living parent is a chunk of its own, and an error defers only that key.
func (p *Parent) lives() bool { return p.Queued != "" }

// Edge is one leaf table of a child: the child itself or one of its partitions.
type Edge struct {
	*dml.Edge

	Leaf pgcatalog.Table
	// Database is the child's database. It is empty if the child is in the parent's
	// database.
	Database string
	// Broken is the reason why the edge can never be drained, for example that its
	// definition does not fit the table. It is empty for a usable edge.
	Broken string
	// Keep, if set, describes how deleted rows are saved for undo. UseReturning is set
	// after rows did not fit a statement that reads them before it deletes them.
	Keep         *dml.Keep
	UseReturning *bool
	// Limit is the maximum number of rows of one statement. If it is 0, the engine
	// chooses.
	Limit int
	// Refusal is the reason why keys that have rows in this edge cannot be deleted. An
	// edge with a refusal has the action Forbid.
	Refusal string
	// OnDuplicate is an edge that changes a row which cannot be moved because the target
	// already has an equal row. Duplicates does the same for all rows that a unique index
	// identifies as duplicates, in a statement before the move.
	OnDuplicate, Duplicates *Edge
	// Tree, if set, deletes rows and all rows that refer to them. It is used if the
	// direct statement takes too long. If only is not nil, Tree deletes only the rows at
	// these positions.
	Tree func(ctx context.Context, in *TreeSession, t Tombstone, only []pgtype.TID) error
	// MayKeep reports that a trigger, rule or policy of the leaf may keep rows or write
	// other rows.
	MayKeep bool

	// held is the reason why this pass does not drain the edge, or nil. blocked records
	// that other sessions hold locks on the edge's table or rows.
	held    *batch.Fault
	blocked *block
	// timeouts is the number of single keys in a row whose statements timed out.
	timeouts int
	// duplicatesFirst is set after a move met a duplicate. Duplicates then runs before
	// each further move.
	duplicatesFirst bool
}

// TreeSession holds the session, the pace and the functions that Parent.Tree and
// Edge.Tree use.
type TreeSession struct {
	On   *batch.Session
	Pace *pace.Run
	Send func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error
	// Yields reports whether the tree must stop and return ErrYield.
	Yields func(ctx context.Context) bool
}

// remote reports whether the child is in another database than the parent.
func (e *Edge) remote() bool { return e.Database != "" }

// indexed reports whether the leaf has an index on the edge's columns.
func (e *Edge) indexed() bool { return e.Indexed[e.Leaf.OID] }

// Position is a place in the order in which tombstones are processed. ConsumeAfter may be
// infinite.
type Position struct {
	ConsumeAfter pgtype.Timestamptz
	ID           int64
}

// Beginning returns the position before the first tombstone.
func Beginning() Position {
	return Position{ConsumeAfter: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}}
}

// Tombstone records a deleted row, or a row of a living parent that must be deleted.
type Tombstone struct {
	Position

	// Integer is the key if Parent.Integer is set. Otherwise Text is the key.
	Integer int64
	Text    string
	// Made is the time at which the tombstone was written, by the clock of this process.
	Made time.Time
	// Origin is the ID of the undo set in which the deleted row is saved. It is nil if
	// the row is not saved.
	Origin *int64
	// Recheck reports that the tombstone was removed before, and that its children are
	// queried again.
	Recheck bool
}

// Key returns the key as text.
func (t Tombstone) Key(p *Parent) string {
	if p.Integer {
		return strconv.FormatInt(t.Integer, 10)
	}
	return t.Text
}

// Source is the queue of a pass. It loads tombstones and records their results.
type Source interface {
	// Load returns due tombstones of each parent after its position, in order, at most
	// limit per parent. If recheck is set, it returns tombstones marked for a recheck
	// instead.
	Load(ctx context.Context, on *batch.Session, from []LoadPosition, limit int,
		recheck bool) (map[*Parent][]Tombstone, error)
	// Complete returns the statement that removes the tombstones whose children are all
	// drained, or whose parent has a row. It runs in the transaction of the direct
	// statements. check is set if the direct statements may have left rows, for example
	// because of a trigger. The statement then queries for such rows.
	Complete(p *Parent, tombstones []Tombstone, check bool, done *Removed) batch.Statement
	// Fail records an attempt for each tombstone. If after is positive, it defers them
	// without an attempt instead. It returns how many of the tombstones still exist.
	Fail(ctx context.Context, on *batch.Session, p *Parent, tombstones []Tombstone, f batch.Fault,
		after time.Duration) (int64, error)
	// Recheck marks removed tombstones for a recheck, which makes them due again. It
	// returns their number.
	Recheck(ctx context.Context, on *batch.Session) (int64, error)
	// Lacking returns the privilege on an edge's table that the role lacks, with the SQL
	// that grants it, or "".
	Lacking(ctx context.Context, on *batch.Session, e *Edge) string
	// Unreadable returns the reason why the role cannot read the parent, or "".
	Unreadable(ctx context.Context, on *batch.Session, p *Parent) (string, error)
}

// LoadPosition is the position from which tombstones of a parent are loaded.
type LoadPosition struct {
	Parent *Parent
	After  Position
}

// Removed is the result of Source.Complete: the removed tombstones, by ID. The value
// reports whether the parent has a row.
type Removed map[int64]bool

// Report holds the functions that a pass calls to report its progress. It never calls two
// of them concurrently.
type Report struct {
	// Changed is called with the number of rows that a committed statement deleted or
	// changed for the tombstones.
	Changed func(e *Edge, tombstones []Tombstone, rows int64)
	// Removed is called with removed tombstones. lives reports that their parents have a
	// row.
	Removed func(p *Parent, tombstones []Tombstone, lives bool)
	// Late is called with the number of rows that a recheck deleted or changed.
	Late func(rows int64)
	// Failed is called with each fault that is not a lock conflict.
	Failed func(f batch.Fault)
	// Progress is called after each batch.
	Progress func(ctx context.Context)
	// Lost is called when another database becomes unreachable.
	Lost func(database string, err error)
}

// chunk is a group of tombstones of one parent that are cleaned up together.
type chunk struct {
	parent     *Parent
	tombstones []Tombstone
	// inPieces makes the next try begin with pieces, for example after a direct statement
	// took too long. begun is set if the chunk has a single key and was drained in
	// pieces.
	inPieces, begun bool
	// tries counts direct transactions that left rows, and errors that a retry may avoid.
	// ownConflicts counts lock conflicts with other sessions of the same pass. lostConns
	// counts connections that were lost in the chunk's statements.
	tries, ownConflicts, lostConns int
	// foundRows reports that the chunk is being rechecked and that the recheck has
	// changed rows.
	foundRows bool
}

func (c *chunk) keys() any {
	if c.parent.Integer {
		keys := make([]int64, len(c.tombstones))
		for i, t := range c.tombstones {
			keys[i] = t.Integer
		}
		return keys
	}
	keys := make([]string, len(c.tombstones))
	for i, t := range c.tombstones {
		keys[i] = t.Text
	}
	return keys
}

// origins returns the distinct IDs of the undo sets in which the chunk's parents are
// saved. All of its parents must be saved.
func (c *chunk) origins() (ids []int64) {
	known := map[int64]bool{}
	for _, t := range c.tombstones {
		if !known[*t.Origin] {
			known[*t.Origin] = true
			ids = append(ids, *t.Origin)
		}
	}
	return ids
}

// recheck reports whether the chunk's tombstones are marked for a recheck.
func (c *chunk) recheck() bool { return c.tombstones[0].Recheck }
