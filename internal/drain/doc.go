// Package drain deletes or changes the rows that refer to deleted parents, in small
// transactions. It has two engines.
//
// A Pass drains the children of parents whose rows were deleted, for loose foreign keys
// and users. A tombstone records the key of one deleted row. A chunk is a few tombstones
// of one parent (Parent) that are drained together. An Edge is one leaf table of one
// child. A direct statement changes all rows of a chunk in one edge. If that takes too
// long or rows are locked, several statements change the rows in pieces. A living parent,
// such as users, has rows that are deleted after their children. The entry point is
// Pass.Run, and session.drainChunk has the steps of a chunk.
//
// A Tree deletes rows after all rows below them, along native foreign keys, without
// tombstones. Its entry point is Tree.DeleteWindow. Group deletion and retention use only
// a Tree, and Edge.Tree and Parent.Tree use one within a Pass.
//
// Invariant: each statement checks in its own snapshot that the parent is deleted or
// still queued, and each transaction verifies the fence of its lease.
package drain
