// Package extdiff moves the texts of merge request diffs from the database to a store of
// objects, and restores them.
//
// A diff has one row, and one row per file. When it is moved, the texts of its files are
// concatenated in the order of the tree into the object merge_request_diffs/mr-<merge
// request>/diff-<diff>. The row of each file then has the offset and size in bytes
// instead of the text. Applications that read GitLab's tables can read them; see
// external_diff_layout in the migrations.
//
// # No text is lost
//
// The texts are deleted in one transaction, which is the last step. Before it, the object
// is written, read back, and compared by size and SHA-256. The transaction locks the diff
// and its files, compares their row versions with the ones that were read for the object,
// and changes them. A crash at any point leaves either the old rows, and at most one
// object that the next attempt replaces, or the new rows with a verified object.
//
// # Two workers on one diff
//
// An object has one key, and no store has transactions, so a late write of one worker
// could replace the object of another worker that has committed. Three things prevent
// this.
//
//   - Each diff has a lease, its row in "sexton".external_diffs. A worker claims the diff
//     for a minute at a time, and stops before the claim ends. The diff of a killed
//     worker waits for the end of the claim, because late requests may still reach a
//     store without conditional writes. A lock during the upload would need a transaction
//     or a session: the one delays vacuum, the other is not possible through a
//     transaction pooler and ends with the connection while the upload continues.
//   - The transaction that changes the rows compares the claim's token under a row lock.
//     A worker whose claim has passed to another worker commits nothing.
//   - Each write names the version of the object that it replaces. The store refuses a
//     request that arrives late, because the version has changed. Stores without
//     conditional writes ignore the version; there the first two hold for all requests
//     that take less time than a claim lasts.
//
// Objects are deleted under the same claim, for a quarter of an hour, after a check that
// no row refers to them. The claim ends when the store has answered. While it is unknown
// whether a deletion arrived, no new object can be written where a late deletion would
// meet it.
package extdiff
