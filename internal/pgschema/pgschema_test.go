package pgschema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgschema"
)

func TestRenderReplacesQualifiersAlone(t *testing.T) {
	t.Parallel()

	names := pgschema.Names{Jobs: "sexton_two", Tracked: `App "x"`}
	require.Equal(t,
		`SELECT current_setting('sexton.truncate') FROM "sexton_two".leases, "App ""x""".users, "sexton", sexton.y`,
		names.Render(`SELECT current_setting('sexton.truncate') FROM "sexton".leases, "public".users, "sexton", sexton.y`))
}

func TestRenderDoesNotRenderItsOwnOutput(t *testing.T) {
	t.Parallel()

	names := pgschema.Names{Jobs: "public", Tracked: "sexton"}
	require.Equal(t, `"public".a "sexton".b`, names.Render(`"sexton".a "public".b`))
}
