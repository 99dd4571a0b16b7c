package dbtest

import (
	"fmt"
	"strings"
)

// Keys has the types of keys that configured tables may have, each with the text form of
// key number n.
//
//nolint:gochecknoglobals // constant
var Keys = map[string]string{
	"bigint": "%d", "integer": "%d", "uuid": "00000000-0000-0000-0000-%012d", "text": "Zoë/%d's <&>",
}

// Key returns the text form of key number n.
func Key(kind string, n int) string { return fmt.Sprintf(Keys[kind], n) }

// KeySQL returns an expression for the key whose number is the expression n.
func KeySQL(kind, n string) string {
	if kind == "uuid" {
		n = "lpad((" + n + ")::text, 12, '0')"
	}
	return "format('" + strings.NewReplacer("%d", "%s", "%012d", "%s", "'", "''").Replace(Keys[kind]) + "', " + n +
		")::" + kind
}
