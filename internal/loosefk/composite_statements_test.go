package loosefk

import (
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
)

func compositeExample(action definitions.Action, indexed bool) (*Parent, *Reference) {
	parent, reference := example(definitions.Definition{Columns: []string{"p id", "part"}, OnDelete: action})
	parent.KeyColumns, parent.KeyTypes, parent.Integer = []string{"id", "p"}, []string{"pg_catalog.int4", "pg_catalog.uuid"}, false
	reference.Index, reference.indexed, reference.stepped, reference.order = indexed, map[uint32]bool{leaf.OID: indexed}, indexed, []int{1, 0}
	return parent, reference
}

// The texts are pinned, as those for keys of one column are.
func TestCompositeStatements(t *testing.T) {
	t.Parallel()

	const (
		among = `EXISTS (SELECT FROM pg_catalog.unnest($1::pg_catalog.text[]) AS wanted (key) WHERE child."p id" OPERATOR(pg_catalog.=) (wanted.key::pg_catalog.text[])[1]::pg_catalog.int8` +
			` AND child."part" OPERATOR(pg_catalog.=) (wanted.key::pg_catalog.text[])[2]::pg_catalog.uuid) IS TRUE`
		lookUp  = ` FROM ONLY "public"."chil""dren" AS picked WHERE picked."p id" OPERATOR(pg_catalog.=) (wanted.key::pg_catalog.text[])[1]::pg_catalog.int8 AND picked."part" OPERATOR(pg_catalog.=) (wanted.key::pg_catalog.text[])[2]::pg_catalog.uuid`
		pointer = `SELECT picked.ctid FROM pg_catalog.unnest($1::pg_catalog.text[]) AS wanted (key) CROSS JOIN LATERAL (SELECT picked.ctid` + lookUp
	)
	keys := []string{`{1,a}`}

	parent, reference := compositeExample(definitions.Delete, true)
	sql, args := parent.directStatement(schemas, reference, leaf, doomed{keys, true})
	require.Equal(t, `DELETE FROM ONLY "public"."chil""dren" AS child WHERE child.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(`+pointer+
		` AND picked."kind" OPERATOR(pg_catalog.=) $2::pg_catalog.text::pg_catalog.text OFFSET 0) AS picked WHERE true)) AND (`+among+` AND child."kind" OPERATOR(pg_catalog.=) $3::pg_catalog.text::pg_catalog.text) IS TRUE`, sql)
	require.Equal(t, []any{keys, "A", "A"}, args)

	sql, args = parent.waitStatement(reference, leaf, doomed{keys, true}, 10)
	require.Equal(t, `SELECT  FROM pg_catalog.unnest($1::pg_catalog.text[]) AS wanted (key) CROSS JOIN LATERAL (SELECT `+lookUp+
		` AND picked."kind" OPERATOR(pg_catalog.=) $3::pg_catalog.text::pg_catalog.text OFFSET 0 FOR UPDATE) AS picked WHERE true LIMIT $2`, sql)
	require.Equal(t, []any{keys, 10, "A"}, args)

	pointers := []pgtype.TID{{BlockNumber: 3, OffsetNumber: 4, Valid: true}}
	sql, args = parent.pieceStatement(schemas, reference, leaf, doomed{keys, true}, pointers, false)
	require.Equal(t, `DELETE FROM ONLY "public"."chil""dren" AS child WHERE child.ctid OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.tid[]) AND (`+among+` AND child."kind" OPERATOR(pg_catalog.=) $3::pg_catalog.text::pg_catalog.text) IS TRUE`, sql)
	require.Equal(t, []any{keys, pointers, "A"}, args)

	sql, _ = parent.probeStatement("main", keys)
	require.Equal(t, `SELECT ARRAY[EXISTS (SELECT  FROM pg_catalog.unnest($1::pg_catalog.text[]) AS wanted (key) CROSS JOIN LATERAL (SELECT FROM ONLY "public"."chil""dren" AS child`+
		` WHERE child."p id" OPERATOR(pg_catalog.=) (wanted.key::pg_catalog.text[])[1]::pg_catalog.int8 AND child."part" OPERATOR(pg_catalog.=) (wanted.key::pg_catalog.text[])[2]::pg_catalog.uuid`+
		` AND child."kind" OPERATOR(pg_catalog.=) $2::pg_catalog.text::pg_catalog.text OFFSET 0) AS picked WHERE true OFFSET 0)]`, sql)

	sql, _ = parent.removeStatement(schemas, "main", nil, []bool{true}, []bool{false})
	require.Contains(t, sql, `NOT EXISTS (SELECT FROM ONLY "public"."chil""dren" AS child WHERE child."p id" OPERATOR(pg_catalog.=) (tombstone.primary_key_text::pg_catalog.text[])[1]::pg_catalog.int8`+
		` AND child."part" OPERATOR(pg_catalog.=) (tombstone.primary_key_text::pg_catalog.text[])[2]::pg_catalog.uuid`)

	parent, reference = compositeExample(definitions.Nullify, true)
	sql, _ = parent.cleanStatement(schemas, reference, leaf, doomed{keys, true}, 10)
	require.Equal(t, `UPDATE ONLY "public"."chil""dren" AS child SET "p id" = NULL, "part" = NULL WHERE child.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(`+pointer+
		` AND picked."kind" OPERATOR(pg_catalog.=) $3::pg_catalog.text::pg_catalog.text OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED) AS picked WHERE true LIMIT $2)) AND (`+
		among+` AND child."kind" OPERATOR(pg_catalog.=) $4::pg_catalog.text::pg_catalog.text) IS TRUE`, sql)

	// Without an index the table is read once for all keys.
	parent, reference = compositeExample(definitions.Delete, false)
	sql, _ = parent.directStatement(schemas, reference, leaf, doomed{keys, true})
	require.Equal(t, `DELETE FROM ONLY "public"."chil""dren" AS child WHERE `+among+` AND child."kind" OPERATOR(pg_catalog.=) $2::pg_catalog.text::pg_catalog.text`, sql)
	sql, _ = parent.probeStatement("main", keys)
	require.Equal(t, `SELECT ARRAY[EXISTS (SELECT FROM ONLY "public"."chil""dren" AS child WHERE `+among+` AND child."kind" OPERATOR(pg_catalog.=) $2::pg_catalog.text::pg_catalog.text OFFSET 0)]`, sql)

	// Partitions are watched for being detached, once per statement.
	parent, reference = compositeExample(definitions.Delete, true)
	reference.Leaves = append(reference.Leaves, Table{OID: 1})
	sql, _ = parent.windowStatement(reference, leaf, doomed{keys, true}, 10)
	require.Contains(t, sql, `OFFSET 0) AS picked WHERE true AND pg_catalog.pg_partition_root($4::pg_catalog.oid)::pg_catalog.oid OPERATOR(pg_catalog.=) $5::pg_catalog.oid LIMIT $2`)
}
