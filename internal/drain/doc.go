// Package drain deletes or changes the rows that reference deleted parents, in small
// transactions.
//
//	nextChunk ─► drainChunk: try direct statements, or pieces and then direct statements ─► remove, defer or divide
//
// A Parent is a table whose rows were deleted. An Edge is one leaf table of one of its
// children. A chunk is a few tombstones of one parent that are cleaned up together. A
// Pass is one run of a River job. Its sessions take chunks in parallel, each over its own
// connection.
//
// The direct statements are tried first. One REPEATABLE READ transaction changes the rows
// of all edges and removes the tombstones. All its statements share one snapshot, so a
// tombstone is only removed together with all rows of that snapshot. If the transaction
// takes too long or meets a lock, the rows are changed in pieces, by row pointer (ctid).
// Then the direct statements run again for the rows that are left.
//
// Some parents still have their row, for example users. That row is deleted after its
// edges have been drained. Such a tombstone is always the only one in its chunk. The
// direct transaction is READ COMMITTED then: it locks the row first, and Source.Complete
// deletes it if a snapshot taken after the lock has none of its children.
//
// A row cannot be moved to a target that already has an equal row. Such duplicates are
// changed by a statement of their own (Edge.Duplicates, Edge.OnDuplicate) before the move.
//
// Every statement checks in its own snapshot that the parent is deleted or still queued.
// Every transaction checks the fence of its lease. A pass can be killed at any point: the
// next one finds the tombstones and the rows that are left.
//
// Read drain.go from the top: it is the way of a chunk. direct.go, pieces.go, locks.go and
// remote.go have its steps, queue.go has the chunks that wait, failure.go what follows an
// error. The statements are in internal/drain/dml.
package drain
