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
	// Tree, if set, deletes what refers to a key's own row by other keys than the edges, if that takes long.
	Tree func(ctx context.Context, in *TreeSession, t Tombstone) error

	// All of these are guarded by Pass.mu. loaded are tombstones that no chunk has yet, waiting are chunks that were given back.
	loaded  []Tombstone
	waiting []*chunk
	// after is the position of the last tombstone that was loaded. more reports that the last load was full.
	after Position
	more  bool
	// served is when a session last took a chunk, resumed when it was one that had been given back. fresh makes the next one a new
	// chunk even if others wait.
	served, resumed time.Time
	fresh           bool
	// held is why none of the parent's tombstones can be finished in this pass.
	held *batch.Fault
}

// lives reports whether the parent's rows are there until their edges are drained and the completion deletes them. Each is then
// in a chunk of its own, and what goes wrong concerns only that one.
func (p *Parent) lives() bool { return p.Queued != "" }

// Edge is one leaf table of a child.
type Edge struct {
	*dml.Edge

	Leaf pgcatalog.Table
	// Database is the one that the child is in, if it is not the parent's.
	Database string
	// Broken is why the edge cannot be drained at all, such as a definition that does not fit its table.
	Broken string
	// Keep, if set, says how deleted rows are kept.
	Keep *dml.Keep
	// Limit bounds the rows of one statement; 0 leaves it to the engine.
	Limit int
	// Refusal is why keys with rows of the edge cannot be deleted. Such an edge has the action Forbid.
	Refusal string
	// Otherwise changes rows that cannot be moved because the target has an equal row. Double does the same for those that
	// a unique index shows to be equal.
	Otherwise, Double *Edge
	// Tree, if set, deletes rows with all that hangs below them, if a direct statement takes too long; with only, just those.
	Tree func(ctx context.Context, in *TreeSession, t Tombstone, only []pgtype.TID) error
	// MayKeep reports that a trigger, rule or policy of the leaf may keep rows or write others.
	MayKeep bool

	// held is why the edge is left alone in this pass, blocked until when others have locked its table or rows.
	held    *batch.Fault
	blocked *block
	// misses counts single keys in a row whose statements timed out.
	misses int
	// doubled reports that a row could not be moved: Double goes before further moves.
	doubled bool
}

// TreeSession is the session that Tree works on.
type TreeSession struct {
	On   *batch.Session
	Pace *pace.Run
	Send func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error
	// Yields reports that Tree should return ErrYield.
	Yields func(ctx context.Context) bool
}

// duplicate reports whether the error means that a row cannot be moved.
func (e *Edge) duplicate(err error) bool {
	return e.Otherwise != nil && batch.DuplicateIn(err, e.Child, e.Leaf)
}

// remote reports whether the child is in another database than the parent.
func (e *Edge) remote() bool { return e.Database != "" }

// keys are the parameter of a statement on the edge. Statements in the parent's database leave out keys that have a row, or
// are queued no more.
func (e *Edge) keys(c *chunk) dml.Keys {
	return dml.Keys{Of: c.parent.Key, Values: c.keys(), Gone: !e.remote(), Keep: e.keep(c)}
}

// keep is how a statement for the chunk keeps its rows. They are kept as their parents are.
func (e *Edge) keep(c *chunk) *dml.Keep {
	if e.Keep == nil || c.tombstones[0].Origin == nil {
		return nil
	}
	k := *e.Keep
	k.Origins = c.origins()
	return &k
}

// indexed reports whether an index leads to the rows of the leaf.
func (e *Edge) indexed() bool { return e.Indexed[e.Leaf.OID] }

// Position is a place in the order in which tombstones are worked off. The time may be infinite.
type Position struct {
	ConsumeAfter pgtype.Timestamptz
	ID           int64
}

// Beginning is before the first tombstone.
func Beginning() Position {
	return Position{ConsumeAfter: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}}
}

// Tombstone records a deleted row.
type Tombstone struct {
	Position

	// Integer or Text is the key, as Parent.Integer says.
	Integer int64
	Text    string
	// Made is when it was written, by this process's clock.
	Made time.Time
	// Origin is the set in which the deleted row is kept, if it is.
	Origin *int64
	// Recheck marks a tombstone that was removed before and is looked at once more.
	Recheck bool
}

// Key is the key's text form.
func (t Tombstone) Key(p *Parent) string {
	if p.Integer {
		return strconv.FormatInt(t.Integer, 10)
	}
	return t.Text
}

// Source is where tombstones come from and what becomes of them.
type Source interface {
	// Load returns due tombstones of each parent after its position, at most limit per parent, in order. With recheck it
	// returns marked ones instead.
	Load(ctx context.Context, on *batch.Session, from []Spot, limit int, recheck bool) (map[*Parent][]Tombstone, error)
	// Complete is the statement that removes those tombstones whose rows are gone, or whose parent has a row. It runs in the
	// transaction of the direct statements. If check is set, something may have kept rows, and it looks for them.
	Complete(p *Parent, tombstones []Tombstone, check bool, done *Done) batch.Statement
	// Fail records an attempt for each tombstone, or postpones them without one if after is positive.
	Fail(ctx context.Context, on *batch.Session, p *Parent, tombstones []Tombstone, f batch.Fault, after time.Duration) error
	// Recheck makes removed tombstones due again, and returns how many.
	Recheck(ctx context.Context, on *batch.Session) (int64, error)
	// Lacking returns which right on an edge's table the role lacks, with the SQL that grants it, or "".
	Lacking(ctx context.Context, on *batch.Session, e *Edge) string
	// Unreadable returns why the role cannot read the parent, or "".
	Unreadable(ctx context.Context, on *batch.Session, p *Parent) (string, error)
}

// Spot is where to load tombstones of a parent from.
type Spot struct {
	Parent *Parent
	After  Position
}

// Done is the result of Source.Complete: the tombstones that were removed, by ID. The value is true if the parent has a row.
type Done map[int64]bool

// Report receives what a pass does. Its functions are called one at a time.
type Report struct {
	// Changed is called with the rows that a committed statement deleted or changed for tombstones.
	Changed func(e *Edge, tombstones []Tombstone, rows int64)
	// Removed is called with removed tombstones; lives reports that their parents have a row.
	Removed func(p *Parent, tombstones []Tombstone, lives bool)
	// Late is called with the rows that were found in a recheck.
	Late func(rows int64)
	// Failed is called with each error that is not only a lock.
	Failed func(f batch.Fault)
	// Progress is called after each batch.
	Progress func(ctx context.Context)
	// Waits is called when what the pass waits for changes.
	Waits func(ctx context.Context, reason string)
	// Lost is called when another database has been lost.
	Lost func(database string, err error)
}

// chunk is a group of tombstones of one parent.
type chunk struct {
	parent     *Parent
	tombstones []Tombstone
	// heavy reports that a direct statement took too long: the next session begins with pieces.
	heavy bool
	// alone reports that pieces of its only key were worked off.
	alone bool
	// tries counts transactions that left rows although they changed some, own those that met a session of the same pass,
	// lost the connections that were lost in statements for it.
	tries, own, lost int
	// found reports that rows of marked tombstones were changed.
	found bool
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

// origins are the sets that the parents are kept in, each once.
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

// recheck reports whether the chunk's tombstones are marked.
func (c *chunk) recheck() bool { return c.tombstones[0].Recheck }
