package pgcatalog

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

// Action is the effect of a foreign key when the row that it refers to is deleted: pg_constraint.confdeltype.
type Action string

// The actions.
const (
	NoAction   Action = "a"
	Restrict   Action = "r"
	Cascade    Action = "c"
	SetNull    Action = "n"
	SetDefault Action = "d"
)

// ForeignKey is a foreign key of one table to another, or to itself.
type ForeignKey struct {
	Name string
	// Table has the key, Target is the table that it refers to.
	Table, Target uint32
	OnDelete      Action
	// Columns are the table's, TargetColumns those of the target beside them, Set the ones that ON DELETE SET changes.
	Columns, TargetColumns, Set []string
	// Period tells that the last columns are ranges: rows that share a part of theirs refer to each other.
	Period bool
}

//go:embed queries/foreign_keys.sql
var foreignKeysSQL string

// ForeignKeys returns the foreign keys of the database, by the referring table's name and the place of its
// columns. Keys that partitions have inherited are left out, as are keys that stand for the partitions of a target.
func ForeignKeys(ctx context.Context, db dbsqlc.DBTX) ([]ForeignKey, error) {
	rows, _ := db.Query(ctx, foreignKeysSQL)
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (key ForeignKey, err error) {
		return key, row.Scan(&key.Name, &key.Table, &key.Target, &key.OnDelete, &key.Columns, &key.TargetColumns, &key.Set, &key.Period)
	})
	return keys, problem.Doing(err, "read foreign keys")
}
