// Package dbsqlc has what sqlc generates of sql/queries.
package dbsqlc

// TombstoneParentsSQL is the text of TombstoneParents, for batches.
const TombstoneParentsSQL = tombstoneParents
