package triggers

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// OtherKey says how what a trigger records differs from a parent's key.
type OtherKey struct {
	// Table is the one with the trigger: the parent, or one of its partitions.
	Table string
	// TypeOnly tells that it is the parent's columns, whose type has become another since.
	TypeOnly bool
}

// OtherKeys returns, by the place of the parent, a table whose trigger records other columns than the parent's key: that
// of an earlier definition, or of a later one. Read as the parent's key, its tombstones would lead to the children of
// rows that live. A column that has only been renamed is the same one. Tables without a trigger record nothing and are passed over.
func OtherKeys(ctx context.Context, conn *pgx.Conn, cfg Config, parents []Parent) (map[int]OtherKey, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	var other map[int]OtherKey
	err = inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		other, err = cfg.otherKeys(ctx, tx, parents)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up recorded keys: %w", err)
	}
	return other, nil
}

func (c Config) otherKeys(ctx context.Context, tx pgx.Tx, parents []Parent) (map[int]OtherKey, error) {
	places := []int{}
	for place, parent := range parents {
		for range parent.KeyColumns {
			places = append(places, place)
		}
	}
	schemas, tables, columns := columnsOf(parents)
	rows, _ := tx.Query(ctx, sqlText("queries/track_functions"), places, schemas, tables, columns, c.JobsSchema)
	other := map[int]OtherKey{}
	var place int
	var table, function string
	var same *bool
	var otherType bool
	_, err := pgx.ForEachRow(rows, []any{&place, &table, &function, &same, &otherType}, func() error {
		sameColumns := records(function, parents[place].KeyColumns)
		if same != nil {
			sameColumns = *same
		}
		if known, is := other[place]; (!is || known.TypeOnly) && (!sameColumns || otherType) {
			other[place] = OtherKey{Table: table, TypeOnly: sameColumns}
		}
		return nil
	})
	return other, err
}

// rekey brings the waiting tombstones of a key whose type has changed to the form that the function now writes. It comes before
// the trigger is renewed, by which the change is known: killed in between, the next run does the rest.
func (c Config) rekey(ctx context.Context, conn *pgx.Conn, parent *resolved) error {
	change := "primary_key_text = primary_key_value::pg_catalog.text, primary_key_value = NULL WHERE primary_key_value IS NOT NULL"
	if parent.class == bigintKey {
		// What is no integer stays, and fails with its reason.
		change = "primary_key_value = primary_key_text::pg_catalog.int8, primary_key_text = NULL WHERE primary_key_text ~ '^-?[0-9]{1,18}$'"
	}
	set, where, _ := strings.Cut(change, " WHERE ")
	sql := fmt.Sprintf(`UPDATE %[1]s SET %[2]s WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM %[1]s WHERE fully_qualified_table_name = $1 AND status = 1 AND %[3]s LIMIT 5000 FOR UPDATE))`, c.tombstones(), set, where)
	for {
		var changed int64
		err := inTx(ctx, conn, pgx.ReadWrite, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, sql, parent.recorded)
			changed = tag.RowsAffected()
			return err
		})
		if err != nil {
			return fmt.Errorf("convert the tombstones of %s to the new type of its key: %w", parent.recorded, err)
		}
		if changed == 0 {
			return nil
		}
	}
}

// records reports whether a function is one that records these columns, whatever their types are.
func records(function string, keyColumns []string) bool {
	for _, class := range []keyClass{bigintKey, textKey, compositeKey} {
		if function == trackName(keyColumns, class) {
			return true
		}
	}
	return false
}
