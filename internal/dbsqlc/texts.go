package dbsqlc

// TombstoneParentsSQL is the text of TombstoneParents, for batches.
const TombstoneParentsSQL = tombstoneParents
