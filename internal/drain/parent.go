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

// Parent is a table whose rows were deleted, with the edges to its children.
type Parent struct {
	*dml.Key

	// Name is the name that tombstones record.
	Name  string
	Edges []*Edge
	// Tree, if set, deletes the rows that refer to the key's own row by foreign keys that
	// are not edges. It runs after the pieces of all edges.
	Tree func(ctx context.Context, in *TreeSession, t Tombstone) error

	// The fields below are guarded by Pass.mu.
	//
	// loaded are tombstones that are not in a chunk yet. returned are chunks that were
	// returned to the queue.
	loaded   []Tombstone
	returned []*chunk
	// loadedTo is the position of the last loaded tombstone. moreDue reports that the
	// last load was full.
	loadedTo Position
	moreDue  bool
	// servedAt is when a session last took a chunk, and resumedAt when it last took a
	// returned one. newFirst is set if the next chunk must be a new one even if some were
	// returned.
	servedAt, resumedAt time.Time
	newFirst            bool
	// held is the reason why this pass can finish no tombstone of the parent, or nil.
	held *batch.Fault
}

// lives reports whether the parent's rows still exist. Source.Complete deletes such a row
// after its edges have been drained. Each key is then a chunk of its own, and an error
// defers only that key.
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
	// Keep, if set, describes how deleted rows are kept for undo. UseReturning is set if
	// rows are too large or too special for Kept.ReadLeaf.
	Keep         *dml.Keep
	UseReturning *bool
	// Limit is the maximum number of rows of one statement. If it is 0, the engine
	// chooses.
	Limit int
	// Refusal is the reason why keys that have rows in this edge cannot be deleted. Such
	// an edge has the action Forbid.
	Refusal string
	// OnDuplicate changes a row that cannot be moved because the target has an equal row.
	// Duplicates does the same for all rows that a unique index identifies as such.
	OnDuplicate, Duplicates *Edge
	// Tree, if set, deletes rows and all rows that refer to them. It is used if the
	// direct statement takes too long. If only is not nil, it deletes only those rows.
	Tree func(ctx context.Context, in *TreeSession, t Tombstone, only []pgtype.TID) error
	// MayKeep reports that a trigger, rule or policy of the leaf may keep rows or write
	// other rows.
	MayKeep bool

	// held is the reason why this pass does not drain the edge, or nil. blocked is set
	// while other sessions hold locks on its table or rows.
	held    *batch.Fault
	blocked *block
	// timeouts counts consecutive single keys whose statements timed out.
	timeouts int
	// duplicatesFirst is set after a move met a duplicate. Duplicates then runs before
	// each further move.
	duplicatesFirst bool
}

// TreeSession has the session and the limits that a Tree function uses.
type TreeSession struct {
	On   *batch.Session
	Pace *pace.Run
	Send func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error
	// Yields reports whether Tree should return ErrYield.
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

// Tombstone records a deleted row.
type Tombstone struct {
	Position

	// Integer is the key if Parent.Integer is set. Otherwise Text is.
	Integer int64
	Text    string
	// Made is the time when the tombstone was written, by the clock of this process.
	Made time.Time
	// Origin is the set in which the deleted row is kept. It is nil if the row is not
	// kept.
	Origin *int64
	// Recheck marks a tombstone that was removed before and is rechecked.
	Recheck bool
}

// Key returns the key as text.
func (t Tombstone) Key(p *Parent) string {
	if p.Integer {
		return strconv.FormatInt(t.Integer, 10)
	}
	return t.Text
}

// Source loads tombstones and records their results.
type Source interface {
	// Load returns due tombstones of each parent after its position, in order, at most
	// limit per parent. If recheck is set, it returns tombstones marked for a recheck
	// instead.
	Load(ctx context.Context, on *batch.Session, from []LoadPosition, limit int,
		recheck bool) (map[*Parent][]Tombstone, error)
	// Complete returns the statement that removes the tombstones whose rows are deleted
	// or whose parent has a row. It runs in the transaction of the direct statements.
	// check is set if the direct statements may have left rows, for example because of a
	// trigger. The statement then queries for them.
	Complete(p *Parent, tombstones []Tombstone, check bool, done *Removed) batch.Statement
	// Fail records an attempt for each tombstone. If after is positive, it defers them
	// without an attempt instead. It returns how many of the tombstones still exist.
	Fail(ctx context.Context, on *batch.Session, p *Parent, tombstones []Tombstone, f batch.Fault,
		after time.Duration) (int64, error)
	// Recheck marks removed tombstones for a recheck, which makes them due again. It
	// returns their number.
	Recheck(ctx context.Context, on *batch.Session) (int64, error)
	// Lacking returns which privilege on an edge's table the role lacks, with the SQL
	// that grants it, or "".
	Lacking(ctx context.Context, on *batch.Session, e *Edge) string
	// Unreadable returns why the role cannot read the parent, or "".
	Unreadable(ctx context.Context, on *batch.Session, p *Parent) (string, error)
}

// LoadPosition is the position from which tombstones of a parent are loaded.
type LoadPosition struct {
	Parent *Parent
	After  Position
}

// Removed is the result of Source.Complete: the removed tombstones, by ID. The value is
// true if the parent has a row.
type Removed map[int64]bool

// Report receives the progress of a pass. Its functions are never called concurrently.
type Report struct {
	// Changed is called with the number of rows that a committed statement deleted or
	// changed for the tombstones.
	Changed func(e *Edge, tombstones []Tombstone, rows int64)
	// Removed is called with removed tombstones. lives reports that their parents have a
	// row.
	Removed func(p *Parent, tombstones []Tombstone, lives bool)
	// Late is called with the number of rows that a recheck found.
	Late func(rows int64)
	// Failed is called with each error that is not a lock.
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
	// inPieces is set after a direct statement took too long. The next try begins with
	// pieces. begun is set if the chunk has a single key and was drained in pieces.
	inPieces, begun bool
	// tries counts direct transactions that left rows, and errors that a retry may avoid.
	// ownConflicts counts lock conflicts with sessions of the same pass. lostConns counts
	// connections that were lost in its statements.
	tries, ownConflicts, lostConns int
	// foundRows reports that a recheck changed rows.
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

// origins returns the distinct sets in which the parents are kept. All of them have one.
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
