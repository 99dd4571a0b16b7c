package loosefk

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgschema"
)

var (
	schemas = pgschema.Names{Jobs: "sexton_jobs", Tracked: `App "one"`}
	leaf    = Table{Schema: "public", Name: `chil"dren`}
	plain   = pgcatalog.Comparison{Operator: "OPERATOR(pg_catalog.=)", After: "OPERATOR(pg_catalog.>)"}
)

func example(d definitions.Definition) (*Parent, *Reference) {
	reference := &Reference{
		Definition: d, Database: "main", Child: leaf, Leaves: []Table{leaf}, PrimaryKey: []string{"id", "part"},
		Conditions: []typedColumn{{Column: "kind", Type: "pg_catalog.text", compare: plain, Value: "A"}},
		Target:     typedColumn{Column: "state", Type: "pg_catalog.int2", compare: plain, Value: "3"},
		compare:    []pgcatalog.Comparison{plain, plain}, own: []pgcatalog.Comparison{plain, plain}, bases: []string{"pg_catalog.int4", "pg_catalog.uuid"},
	}
	parent := &Parent{Table: Table{Schema: "public", Name: "parents"}, Database: "main", Recorded: "public.parents", KeyColumns: []string{"id"}, KeyTypes: []string{"pg_catalog.int8"}, Integer: true, References: []*Reference{reference}}
	parent.compare = reference.compare
	return parent, reference
}

func squeeze(sql string) string { return strings.Join(strings.Fields(sql), " ") }

// The texts are pinned: their shape decides plans, locks and speed.
func TestCleanStatement(t *testing.T) {
	t.Parallel()

	picked := `SELECT picked.ctid FROM ONLY "public"."chil""dren" AS picked WHERE picked."p id" OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND picked."kind" OPERATOR(pg_catalog.=) $3::pg_catalog.text::pg_catalog.text`
	for name, test := range map[string]struct {
		definition definitions.Definition
		want       string
		args       []any
	}{
		"delete": {
			definitions.Definition{Columns: []string{"p id"}, OnDelete: definitions.Delete},
			`DELETE FROM ONLY "public"."chil""dren" AS child WHERE child.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(` + picked + ` LIMIT $2 FOR UPDATE SKIP LOCKED))
			 AND (child."p id" OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND child."kind" OPERATOR(pg_catalog.=) $4::pg_catalog.text::pg_catalog.text) IS TRUE`,
			[]any{[]int64{1, 2}, 10, "A", "A"},
		},
		"nullify": {
			definitions.Definition{Columns: []string{"p id"}, OnDelete: definitions.Nullify},
			`UPDATE ONLY "public"."chil""dren" AS child SET "p id" = NULL WHERE child.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(` + picked + ` LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED))
			 AND (child."p id" OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND child."kind" OPERATOR(pg_catalog.=) $4::pg_catalog.text::pg_catalog.text) IS TRUE`,
			[]any{[]int64{1, 2}, 10, "A", "A"},
		},
		"update": {
			definitions.Definition{Columns: []string{"p id"}, OnDelete: definitions.UpdateColumn},
			`UPDATE ONLY "public"."chil""dren" AS child SET "state" = $7::pg_catalog.text::pg_catalog.int2 WHERE child.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(` + picked + `
			 AND (picked."state" OPERATOR(pg_catalog.=) $4::pg_catalog.text::pg_catalog.int2) IS NOT TRUE LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED))
			 AND (child."p id" OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND child."kind" OPERATOR(pg_catalog.=) $5::pg_catalog.text::pg_catalog.text AND (child."state" OPERATOR(pg_catalog.=) $6::pg_catalog.text::pg_catalog.int2) IS NOT TRUE) IS TRUE`,
			[]any{[]int64{1, 2}, 10, "A", "3", "A", "3", "3"},
		},
		"files": {
			definitions.Definition{Columns: []string{"p id"}, OnDelete: definitions.Delete, CleanerClass: definitions.ArtifactsCleaner},
			`WITH gone AS (DELETE FROM ONLY "public"."chil""dren" AS child WHERE child.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(` + picked + ` LIMIT $2 FOR UPDATE SKIP LOCKED))
			 AND (child."p id" OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND child."kind" OPERATOR(pg_catalog.=) $4::pg_catalog.text::pg_catalog.text) IS TRUE
			 RETURNING (SELECT pg_catalog.to_jsonb(keyed) FROM (SELECT child."id", child."part") AS keyed) AS key),
			 event AS (INSERT INTO "sexton_jobs".events (kind, payload) SELECT 'files_orphaned', pg_catalog.jsonb_build_object('table',
			 pg_catalog.convert_from(pg_catalog.decode('6368696c226472656e', 'hex'), 'UTF8'), 'keys', pg_catalog.jsonb_agg(gone.key)) FROM gone HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0)
			 SELECT pg_catalog.count(*) FROM gone`,
			[]any{[]int64{1, 2}, 10, "A", "A"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent, reference := example(test.definition)
			sql, args := parent.cleanStatement(schemas, reference, leaf, doomed{[]int64{1, 2}, true}, 10)
			require.Equal(t, squeeze(test.want), squeeze(sql))
			require.Equal(t, test.args, args)
		})
	}
}

func TestWaitStatement(t *testing.T) {
	t.Parallel()

	parent, reference := example(definitions.Definition{Columns: []string{"p id"}, OnDelete: definitions.Nullify})
	sql, args := parent.waitStatement(reference, leaf, doomed{[]int64{1, 2}, true}, 10)
	require.Equal(t, squeeze(`SELECT FROM ONLY "public"."chil""dren" AS picked WHERE picked."p id" OPERATOR(pg_catalog.=) ANY ($1::bigint[])
		AND picked."kind" OPERATOR(pg_catalog.=) $3::pg_catalog.text::pg_catalog.text LIMIT $2 FOR NO KEY UPDATE`), squeeze(sql))
	require.Equal(t, []any{[]int64{1, 2}, 10, "A"}, args)
}

func TestStatementsWithoutALimit(t *testing.T) {
	t.Parallel()

	parent, reference := example(definitions.Definition{Columns: []string{"p id"}, OnDelete: definitions.Delete})
	sql, args := parent.directStatement(schemas, reference, leaf, doomed{[]int64{1, 2}, true})
	require.Equal(t, squeeze(`DELETE FROM ONLY "public"."chil""dren" AS child WHERE child."p id" OPERATOR(pg_catalog.=) ANY ($1::bigint[])
		AND child."kind" OPERATOR(pg_catalog.=) $2::pg_catalog.text::pg_catalog.text`), squeeze(sql))
	require.Equal(t, []any{[]int64{1, 2}, "A"}, args)

	sql, args = parent.windowStatement(reference, leaf, doomed{[]int64{1}, true}, 10)
	require.Equal(t, squeeze(`SELECT picked.ctid FROM ONLY "public"."chil""dren" AS picked WHERE picked."p id" OPERATOR(pg_catalog.=) ANY ($1::bigint[])
		AND picked."kind" OPERATOR(pg_catalog.=) $3::pg_catalog.text::pg_catalog.text LIMIT $2`), squeeze(sql))
	require.Equal(t, []any{[]int64{1}, 10, "A"}, args)

	pointers := []pgtype.TID{{BlockNumber: 3, OffsetNumber: 4, Valid: true}}
	sql, args = parent.pieceStatement(schemas, reference, leaf, doomed{[]int64{1}, true}, pointers, false)
	require.Equal(t, squeeze(`DELETE FROM ONLY "public"."chil""dren" AS child WHERE child.ctid OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.tid[])
		AND (child."p id" OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND child."kind" OPERATOR(pg_catalog.=) $3::pg_catalog.text::pg_catalog.text) IS TRUE`), squeeze(sql))
	require.Equal(t, []any{[]int64{1}, pointers, "A"}, args)
}

// Keys whose parents live are left out in the statement's own snapshot.
func TestStatementsLookForParents(t *testing.T) {
	t.Parallel()

	const gone = `ARRAY(SELECT doomed.key FROM pg_catalog.unnest($1::bigint[]) AS doomed (key) WHERE NOT doomed.key OPERATOR(pg_catalog.=) ANY (ARRAY(` +
		`SELECT parent."id"::pg_catalog.int8 FROM "public"."parents" AS parent WHERE parent."id" OPERATOR(pg_catalog.=) ANY ($1::bigint[]))))`
	keys, children := doomed{values: []int64{1}}, `child."p id" OPERATOR(pg_catalog.=) ANY (`+gone+`)`
	parent, reference := example(definitions.Definition{Columns: []string{"p id"}, OnDelete: definitions.Delete})
	direct, _ := parent.directStatement(schemas, reference, leaf, keys)
	piece, _ := parent.pieceStatement(schemas, reference, leaf, keys, nil, false)
	stretch, _ := parent.stretchStatement(schemas, reference, leaf, keys, 5, 3)
	for _, sql := range []string{direct, piece, stretch} {
		require.Contains(t, sql, children)
	}
	clean, _ := parent.cleanStatement(schemas, reference, leaf, keys, 10)
	wait, _ := parent.waitStatement(reference, leaf, keys, 10)
	window, _ := parent.windowStatement(reference, leaf, keys, 10)
	for _, sql := range []string{clean, wait, window} {
		require.Contains(t, sql, `picked."p id" OPERATOR(pg_catalog.=) ANY (`+gone+`)`)
	}

	for name, other := range map[string]*Reference{
		"in another database": {Remote: true},
		"of reused keys":      {Definition: definitions.Definition{OnReuse: definitions.ReuseDelete}},
	} {
		changed := *reference
		changed.Remote, changed.Definition.OnReuse = other.Remote, other.Definition.OnReuse
		direct, _ = parent.directStatement(schemas, &changed, leaf, keys)
		require.Contains(t, direct, `WHERE child."p id" OPERATOR(pg_catalog.=) ANY ($1::bigint[])`, name)
	}
}

func TestProbeAndRemoveStatements(t *testing.T) {
	t.Parallel()

	parent, reference := example(definitions.Definition{Columns: []string{"p id"}, OnDelete: definitions.Delete})
	sql, args := parent.probeStatement("main", []int64{1})
	require.Equal(t, `SELECT ARRAY[EXISTS (SELECT FROM ONLY "public"."chil""dren" AS child WHERE child."p id" OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND child."kind" OPERATOR(pg_catalog.=) $2::pg_catalog.text::pg_catalog.text OFFSET 0)]`, sql)
	require.Equal(t, []any{[]int64{1}, "A"}, args)

	// The child's own schema is called public here and must not be taken for the placeholder.
	at := pgtype.Timestamptz{Time: time.Unix(1, 0), Valid: true}
	tombstones := []tombstone{{position: position{id: 7, consumeAfter: at}}}
	sql, args = parent.removeStatement(schemas, "main", tombstones, []bool{true}, []bool{false})
	require.Equal(t, squeeze(`WITH removed AS (
		DELETE FROM "App ""one""".loose_foreign_keys_deleted_records AS gone
		WHERE gone.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
		SELECT tombstone.ctid
		FROM unnest($2::bigint[], $3::pg_catalog.timestamptz[]) AS finished (id, consume_after)
		CROSS JOIN LATERAL (
		SELECT pending.ctid, pending.primary_key_value, pending.primary_key_text
		FROM "App ""one""".loose_foreign_keys_deleted_records AS pending
		WHERE pending.fully_qualified_table_name OPERATOR(pg_catalog.=) $1
		AND pending.consume_after OPERATOR(pg_catalog.=) finished.consume_after
		AND pending.id OPERATOR(pg_catalog.=) finished.id
		AND pending.status OPERATOR(pg_catalog.=) 1
		OFFSET 0
		) AS tombstone
		WHERE true
		AND (NOT ($4::boolean[])[1] OR ($5::boolean[])[1] AND NOT EXISTS (
		SELECT FROM pg_catalog.pg_trigger AS hook
		WHERE hook.tgrelid OPERATOR(pg_catalog.=) $6::pg_catalog.oid AND NOT hook.tgisinternal AND hook.tgenabled OPERATOR(pg_catalog.<>) 'D' AND hook.tgtype OPERATOR(pg_catalog.&) 8::pg_catalog.int2 OPERATOR(pg_catalog.<>) 0
		AND hook.tgname OPERATOR(pg_catalog.<>) 'sexton_track'
		) AND NOT EXISTS (SELECT FROM pg_catalog.pg_rewrite AS rule WHERE rule.ev_class OPERATOR(pg_catalog.=) $6::pg_catalog.oid)
		OR NOT EXISTS (SELECT FROM ONLY "public"."chil""dren" AS child
		WHERE child."p id" OPERATOR(pg_catalog.=) tombstone.primary_key_value AND child."kind" OPERATOR(pg_catalog.=) $7::pg_catalog.text::pg_catalog.text OFFSET 0))
		))
		RETURNING gone.id, gone.primary_key_value, gone.primary_key_text
		), remembered AS (
		INSERT INTO "sexton_jobs".swept (database, parent, integer_keys, text_keys)
		SELECT $8::pg_catalog.text, $1::pg_catalog.text, pg_catalog.array_agg(removed.primary_key_value) FILTER (WHERE removed.primary_key_value IS NOT NULL),
		pg_catalog.array_agg(removed.primary_key_text) FILTER (WHERE removed.primary_key_text IS NOT NULL)
		FROM removed
		HAVING "sexton_jobs".count_rows('processed', $9::pg_catalog.text, pg_catalog.count(*)) OPERATOR(pg_catalog.>) 0
		)
		SELECT removed.id FROM removed`), squeeze(sql))
	require.Equal(t, []any{"public.parents", []int64{7}, []pgtype.Timestamptz{at}, []bool{true}, []bool{false}, uint32(0), "A", "main", "parents"}, args)

	parent.Integer, parent.KeyTypes = false, []string{"pg_catalog.uuid"}
	reference.Leaves = append(reference.Leaves, Table{OID: 1})
	sql, _ = parent.probeStatement("main", []string{"x"})
	require.Contains(t, sql, `FROM "public"."chil""dren" AS child WHERE child."p id" OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.text[]::pg_catalog.uuid[])`, "partitions are looked through")
	sql, _ = parent.removeStatement(schemas, "main", tombstones, []bool{true}, []bool{false})
	require.Contains(t, sql, `OPERATOR(pg_catalog.=) tombstone.primary_key_text::pg_catalog.uuid`)
}

func TestChunkSizeFollowsTheHeaviestLiveReference(t *testing.T) {
	t.Parallel()

	parent, light := example(definitions.Definition{OnDelete: definitions.Delete})
	heavy := &Reference{Definition: definitions.Definition{OnDelete: definitions.Delete, DeleteLimit: 100}}
	parent.References = append(parent.References, heavy)
	require.Equal(t, 9, parent.chunkSize([]bool{true, false}, (*Reference).limit), "100 rows per parent are assumed at first")
	light.learn(10, 20, false)
	require.Equal(t, 450, parent.chunkSize([]bool{true, false}, (*Reference).limit))
	heavy.learn(1, 1000, true)
	require.Equal(t, 1, parent.chunkSize([]bool{true, true}, (*Reference).limit), "at least one")
	require.Equal(t, 450, parent.chunkSize([]bool{true, false}, (*Reference).limit), "references without children do not count")
	require.Equal(t, loadSize, parent.chunkSize([]bool{false, false}, (*Reference).limit))
}

func TestLearnIsNotPulledDownByCutOffSamples(t *testing.T) {
	t.Parallel()

	var r Reference
	r.learn(1, 1000, true)
	r.learn(10, 1000, true)
	require.InDelta(t, 1000, r.rowsPerParent, 0.1, "a full statement says: at least this many")
	r.learn(10, 100, false)
	require.InDelta(t, 703, r.rowsPerParent, 0.1)
}
