package pgcatalog

import "strings"

// TextClauses holds the SET clauses of functions that convert values to text or back.
// They make the conversion independent of the session. The application's triggers would
// run with these settings, so the settings apply only in Sexton's functions, and in
// transactions in which no such trigger fires.
const TextClauses = `SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres'
SET TimeZone = 'UTC'
SET extra_float_digits = '1'
SET bytea_output = 'hex'
SET array_nulls = 'on'
SET standard_conforming_strings = 'on'`

// TextClausesHere is the line of a function's file that is replaced by TextClauses.
const TextClausesHere = "-- text settings"

// SetTexts returns the statements that apply TextClauses to a transaction.
func SetTexts() string {
	return strings.ReplaceAll(strings.ReplaceAll(TextClauses, "\n", ";\n"), "SET ", "SET LOCAL ") + ";\n"
}

// Pinned returns the SET LOCAL statements of [Settled].
func Pinned() string {
	return "SET LOCAL search_path = pg_catalog, pg_temp;\nSET LOCAL quote_all_identifiers = off;\n" + SetTexts()
}
