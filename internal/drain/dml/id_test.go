package dml_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/drain/dml"
)

func TestIDsInJSON(t *testing.T) {
	t.Parallel()
	for text, id := range map[string]dml.ID{
		`7`: dml.IntegerID(7), `"7"`: {Text: "7"}, `"a\"b"`: {Text: `a"b`},
		`-9223372036854775808`:                   dml.IntegerID(-1 << 63),
		`"00000000-0000-0000-0000-000000000001"`: {Text: "00000000-0000-0000-0000-000000000001"},
	} {
		encoded, err := json.Marshal(id)
		require.NoError(t, err)
		require.Equal(t, text, string(encoded))
		var decoded dml.ID
		require.NoError(t, json.Unmarshal([]byte(text), &decoded))
		require.Equal(t, id, decoded)
	}
	require.Error(t, json.Unmarshal([]byte(`1.5`), &dml.ID{}))
	require.Error(t, json.Unmarshal([]byte(`{}`), &dml.ID{}))
}

func TestIDTypes(t *testing.T) {
	t.Parallel()
	for base, stored := range map[string]string{
		"pg_catalog.int4": "bigint", "pg_catalog.int8": "bigint", "pg_catalog.uuid": "pg_catalog.uuid",
		"pg_catalog.text": "pg_catalog.text",
	} {
		found, err := dml.IDType(base)
		require.NoError(t, err)
		require.Equal(t, stored, found)
	}
	_, err := dml.IDType("pg_catalog.\"numeric\"")
	require.EqualError(t, err, "is of type numeric; keys must be of type bigint, integer, uuid or text")
}
