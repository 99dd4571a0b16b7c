package pgcatalog_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgcatalog"
)

func TestRenderReplacesOnlyQualifiers(t *testing.T) {
	t.Parallel()

	names := pgcatalog.Names{Tracked: `App "x"`}
	require.Equal(t,
		`SELECT current_setting('sexton.truncate') FROM "sexton".leases, "App ""x""".users, "sexton", sexton.y`,
		names.Render(`SELECT current_setting('sexton.truncate') FROM "sexton".leases, "public".users, "sexton", sexton.y`))
}

func TestTextsReplaceNamesOfPartsAndFiles(t *testing.T) {
	t.Parallel()
	texts := pgcatalog.Texts{Files: fstest.MapFS{
		"queries/find.sql":  {Data: []byte("SELECT {columns} FROM a\nWHERE {fit} AND b = '{x,y}' AND {unknown}\n")},
		"queries/fit.sql":   {Data: []byte("c = {value}\n")},
		"queries/value.sql": {Data: []byte("a part overrides the file")},
	}, Parts: map[string]string{"value": "1", "columns": "none"}}
	require.Equal(t, "SELECT d, 1 FROM a\nWHERE c = 1 AND b = '{x,y}' AND {unknown}",
		texts.Statement("find", "columns", "d, {value}"))
	require.Equal(t, "none", texts.Fill("{columns}"))
}
