// Package extdiff moves the texts of merge request diffs out of the database into a store of objects, and back.
//
// A diff has one row and a row per file. Moved, the texts of its files stand one after the other, in the order of the tree and
// with nothing between them, in the object merge_request_diffs/mr-<merge request>/diff-<diff>; each file's row has offset and
// size in bytes in place of the text. Applications that read GitLab's tables can read them, see external_diff_layout in the
// migrations.
//
// # Nothing is lost
//
// The texts leave the database in one transaction, which comes last: the object is written, then read back and compared by size
// and SHA-256, then the transaction locks the diff and its files, compares them with what was read for the object (every row
// version counts), and changes them. A crash at any point leaves either the old rows, and at most one object that the next
// attempt replaces, or the new ones with an object that is known to be good.
//
// # Several at once
//
// A process moves some diffs at once, and the ones that become ready while a transaction is under way change in the next one together, 16 at
// most. Each is checked as it is alone: claim, rows, fingerprint. One whose rows another session has locked or changed is left out and goes
// alone, and so does each after a transaction that failed: no diff stops another.
//
// # Two workers on one diff
//
// An object has one key, and no store has transactions, so a late write of one worker could replace the object of another who has
// committed: with the same bytes at best, with none at all if it read the rows afterwards. Three things keep them apart.
//
//   - Each diff has a lease, its row in "sexton".external_diffs: who works on an object has claimed it, for a minute at a time,
//     and stops before the claim ends. What a killed worker was moving waits for that: nothing shorter keeps its late requests from a store
//     without conditions. A lock held over the upload would need a transaction or a session for as long: the one
//     holds up vacuum, the other cannot be had through a transaction pooler and is gone the moment the connection is, while the
//     upload goes on.
//   - The transaction that changes the rows looks at the claim's token under a row lock. A worker whose claim has passed on
//     commits nothing.
//   - Each write names the version of the object that it replaces. A request that arrives late, when its worker was stopped, say,
//     or is dead, is refused by the store, as the version is another by then. Stores that know no conditions ignore that; there
//     the first two hold for everything but requests that are under way for longer than a claim lasts.
//
// Objects are deleted under the same claim, which lasts a quarter of an hour here, after a look whether a row refers to them. It
// ends when the store has answered: while it is unknown whether a deletion arrived, be its worker dead or without an answer, no new
// object can come to be where a late one would meet it.
package extdiff
