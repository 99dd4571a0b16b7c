package undo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// settings decide which text a value has, and which value a text has. The functions undo_text and undo_value have them in their SET clauses. Triggers of
// the application would see them, so that a transaction has them only while none fires. Values of definitions are read without them, as workers do.
var settings = [][2]string{ //nolint:gochecknoglobals // A list that nothing changes.
	{"DateStyle", "ISO, YMD"},
	{"IntervalStyle", "postgres"},
	{"TimeZone", "UTC"},
	{"extra_float_digits", "1"},
	{"bytea_output", "hex"},
	{"lc_monetary", "C"},
	{"xmloption", "content"},
	{"array_nulls", "on"},
	{"standard_conforming_strings", "on"},
}

// settle gives a transaction these settings.
func settle(ctx context.Context, tx pgx.Tx) error {
	names, values := []string{"search_path", "quote_all_identifiers"}, []string{"pg_catalog, pg_temp", "off"}
	for _, one := range settings {
		names, values = append(names, one[0]), append(values, one[1])
	}
	if _, err := tx.Exec(ctx, `SELECT pg_catalog.set_config(given.name, given.value, true)
FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])) AS given (name, value)`, names, values); err != nil {
		return fmt.Errorf("set how values are written: %w", err)
	}
	return nil
}
