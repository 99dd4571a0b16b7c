package dml

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// ID is the value of a key of one column. In JSON it is a number if the key is an
// integer, and otherwise a string.
type ID struct {
	// Text is the text form of the value.
	Text    string `json:"-"`
	Integer bool   `json:"-"`
}

// IntegerID returns the ID of an integer key.
func IntegerID(n int64) ID { return ID{Text: strconv.FormatInt(n, 10), Integer: true} }

// String returns the text form of the value.
func (id ID) String() string { return id.Text }

// Number returns the value of an integer key, and 0 for other keys.
func (id ID) Number() int64 {
	n, _ := strconv.ParseInt(id.Text, 10, 64)
	return n
}

// MarshalJSON implements json.Marshaler.
func (id ID) MarshalJSON() ([]byte, error) {
	if id.Integer {
		return []byte(id.Text), nil
	}
	return json.Marshal(id.Text)
}

// UnmarshalJSON implements json.Unmarshaler.
func (id *ID) UnmarshalJSON(data []byte) error {
	if n, err := strconv.ParseInt(string(data), 10, 64); err == nil {
		*id = IntegerID(n)
		return nil
	}
	*id = ID{}
	return json.Unmarshal(data, &id.Text)
}

// KeysOf returns the IDs as parameters of statements: []int64 or []string.
func KeysOf(integer bool, ids ...ID) any {
	if integer {
		return render.Each(ids, ID.Number)
	}
	return render.Each(ids, ID.String)
}

// IDType returns the type in which Sexton stores keys of a column of type base: bigint,
// uuid or text. base is as in pgcatalog.Column. For other types it returns an error.
func IDType(base string) (string, error) {
	switch {
	case pgcatalog.Integer(base):
		return "bigint", nil
	case slices.Contains([]string{"pg_catalog.uuid", "pg_catalog.text"}, base):
		return base, nil
	}
	return "", fmt.Errorf("is of type %s; keys must be of type bigint, integer, uuid or text",
		pgcatalog.Short(base))
}
