package dbtest

import (
	"fmt"
	"strings"
)

// Keys maps each type that the key of a configured table may have to the format of its
// nth value.
//
//nolint:gochecknoglobals // constant
var Keys = map[string]string{
	"bigint": "%d", "integer": "%d", "uuid": "00000000-0000-0000-0000-%012d", "text": "Zoë/%d's <&>",
}

// Key returns the nth value of a key type as text.
func Key(kind string, n int) string { return fmt.Sprintf(Keys[kind], n) }

// KeySQL returns an SQL expression for the nth key of a type, in which n is itself an SQL
// expression.
func KeySQL(kind, n string) string {
	if kind == "uuid" {
		n = "lpad((" + n + ")::text, 12, '0')"
	}
	return "format('" + strings.NewReplacer("%d", "%s", "%012d", "%s", "'", "''").Replace(Keys[kind]) + "', " + n +
		")::" + kind
}
