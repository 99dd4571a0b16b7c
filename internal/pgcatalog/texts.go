package pgcatalog

import "strings"

// TextClauses are SET clauses for functions that make or read texts of values: they
// decide which text a value has, and which value a text has. The application's triggers
// see them, so they are set only in functions of ours, and in transactions in which no
// such trigger fires.
const TextClauses = `SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres'
SET TimeZone = 'UTC'
SET extra_float_digits = '1'
SET bytea_output = 'hex'
SET array_nulls = 'on'
SET standard_conforming_strings = 'on'`

// TextClausesHere is the line of a function's file that TextClauses replace.
const TextClausesHere = "-- text settings"

// SetTexts returns the statements that apply TextClauses to a transaction.
func SetTexts() string {
	return strings.ReplaceAll(strings.ReplaceAll(TextClauses, "\n", ";\n"), "SET ", "SET LOCAL ") + ";\n"
}

// Pinned returns the statements of [Settled].
func Pinned() string {
	return "SET LOCAL search_path = pg_catalog, pg_temp;\nSET LOCAL quote_all_identifiers = off;\n" + SetTexts()
}
