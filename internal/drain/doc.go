// Package drain deletes or changes the rows that reference deleted parents, in small
// transactions.
//
//	nextChunk ─► drainChunk ─► tryDirect ──────────────────────► tombstones removed
//	                              │ takes too long, or a lock        ▲
//	                              ▼                                  │
//	                         drainPieces ─► finishChunk ─────────────┘
//
//	any other error ─► handleError ─► divide, defer, or record an attempt
//
// # Terms
//
// A Parent is a table whose rows were deleted. A tombstone records the key of one deleted
// row. An Edge is one leaf table of one child of a parent. A chunk is a few tombstones of
// one parent that are cleaned up together. A Pass is one run of a River job. Its sessions
// take chunks in parallel, each over its own connection.
//
// The rows of some parents still exist, for example those of users. Such a parent is
// called living. Its row is deleted after its edges have been drained. Each of its keys
// is a chunk of its own.
//
// # A chunk without obstacles
//
// The direct statements are tried first. One REPEATABLE READ transaction changes the rows
// of all edges and removes the tombstones. All its statements share one snapshot, so a
// tombstone is only removed together with all rows of that snapshot. A parent with many
// edges is the exception: a query before the transaction selects the edges that have
// rows. Rows that are inserted into the other edges after that query are found by the
// recheck.
//
// The direct transaction of a living parent is READ COMMITTED: it locks the row first,
// and Source.Complete deletes it if a snapshot taken after the lock has none of its
// children.
//
// A row cannot be moved to a target that already has an equal row. Such duplicates are
// changed by a statement of their own (Edge.Duplicates, Edge.OnDuplicate) before the
// move.
//
// # Locks
//
// The direct statements wait for a lock for a short time only. Then the rows are changed
// in pieces, by row pointer (ctid), and locked rows are skipped. The direct statements
// run again for the rows that are left. If these are still locked, finishChunk waits for
// them with the full lock timeout. If that expires too, the tombstones are deferred for 1
// to 15 seconds without an attempt. Until then other chunks also skip locked rows of that
// edge (block).
//
// # Timeouts
//
// A chunk whose direct statements take too long is divided. A single key is drained in
// pieces. A piece that takes too long is halved. If a statement on a single row or key
// still exceeds the statement timeout, the key has an attempt. An edge without an index,
// or with several such keys in a row, is held: it is not drained again in this pass.
//
// # Failing rows
//
// An error that a row may cause, for example in a trigger, divides the chunk until the
// failing key is isolated. That key has an attempt and is not tried again in this pass.
// The direct transaction was rolled back, so all other children of that key are kept too.
//
// # Invariants
//
// Every statement checks in its own snapshot that the parent is deleted or still queued.
// Every transaction checks the fence of its lease. A pass can be killed at any point: the
// next one finds the tombstones and the rows that are left.
//
// # Files
//
// Read drain.go from the top: it has the steps of a chunk. direct.go, pieces.go, locks.go
// and remote.go implement them. queue.go has the chunks that wait, and failure.go
// the handling of errors. tree.go is a second engine, without chunks: it deletes rows
// after all rows below them, along native foreign keys. Parent.Tree and Edge.Tree call
// it. Group deletion and retention use only this engine. The statements are in internal/drain/dml.
package drain
