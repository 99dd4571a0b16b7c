package doctor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/problem"
)

func TestTombstonesThatNobodyWorksOff(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Exec(tombstone + "('public.parents', 1, now()), ('public.\"it''s\"', 2, now())")
	f := p.one("tombstones")
	require.Equal(t, problem.Warning, f.Severity)
	require.Equal(t, `public."it's"`, f.Object)
	require.Equal(t, `restore the definition, or give them up: DELETE FROM "public"."loose_foreign_keys_deleted_records"`+
		` WHERE fully_qualified_table_name = 'public."it''s"'`, f.Fix)
}

func TestTombstonesThatAreOverdue(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Exec(tombstone + "('public.parents', 1, now() - interval '50 minutes'), ('public.parents', 2, now() + interval '1 hour')")
	require.Empty(t, p.findings("tombstones"))
	p.Exec(tombstone + "('public.parents', 3, '2026-01-02T03:04:05Z')")
	f := p.one("tombstones")
	require.Equal(t, problem.Warning, f.Severity)
	require.Equal(t, "a tombstone of public.parents has been due since 2026-01-02T03:04:05Z", f.Message)
}
