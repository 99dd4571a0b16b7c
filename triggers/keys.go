package triggers

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
)

//go:embed queries/track_functions.sql
var trackFunctionsSQL string

// OtherKeys returns, by the place of the parent, a table whose trigger records other columns than the parent's key: that
// of an earlier definition, or of a later one. Read as the parent's key, its tombstones would lead to the children of
// rows that live. Tables without a trigger record nothing and are passed over.
func OtherKeys(ctx context.Context, conn *pgx.Conn, cfg Config, parents []Parent) (map[int]string, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	schemas, tables := make([]string, len(parents)), make([]string, len(parents))
	for i, parent := range parents {
		schemas[i], tables[i] = parent.Schema, parent.Table
	}
	other := map[int]string{}
	err = inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, trackFunctionsSQL, schemas, tables, cfg.JobsSchema)
		if err != nil {
			return err
		}
		var place int
		var table, function string
		_, err = pgx.ForEachRow(rows, []any{&place, &table, &function}, func() error {
			if _, known := other[place]; !known && !records(function, parents[place].KeyColumns) {
				other[place] = table
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up recorded keys: %w", err)
	}
	return other, nil
}

// records tells whether a function is one that records these columns, whatever their types are.
func records(function string, keyColumns []string) bool {
	for _, class := range []keyClass{bigintKey, textKey, compositeKey} {
		if function == trackName(keyColumns, class) {
			return true
		}
	}
	return false
}
