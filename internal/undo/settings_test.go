package undo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// The SQL functions undo_text and undo_value have the same SET clauses, and
// setValueSettings sets the same values in a transaction.
func TestValueSettingsMatchFunctions(t *testing.T) {
	t.Parallel()
	b := dbtest.TrackedWithUndo(t, "CREATE TABLE p (id bigint PRIMARY KEY)", "p")
	const clauses = "SELECT unnest(proconfig) FROM pg_proc WHERE proname = $1 ORDER BY 1"
	found := b.Rows(clauses, "undo_text")
	require.Equal(t, found, b.Rows(clauses, "undo_value"))
	require.Len(t, found, 10)
	tx := b.Begin(t)
	require.NoError(t, setValueSettings(t.Context(), tx))
	for _, row := range found {
		name, value, _ := strings.Cut(row[0], "=")
		require.Equal(t, value, pgtest.Scalar[string](t, tx, "SELECT current_setting($1)", name))
	}
}
