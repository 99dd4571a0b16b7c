package dbsqlc

// The texts of statements that batches send, under the names that they have in sql/queries.
const (
	TombstoneParentsSQL = tombstoneParents
	TombstonesDueSQL    = tombstonesDue
	TombstonesBlameSQL  = tombstonesBlame
	RevivedExpireSQL    = revivedExpire
	RevivedPruneSQL     = revivedPrune
)
