package undo_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const threeParents = `
CREATE TABLE p (id bigint PRIMARY KEY); CREATE TABLE q (id bigint PRIMARY KEY); CREATE TABLE r (id bigint PRIMARY KEY);
CREATE TABLE c (id bigint PRIMARY KEY, p bigint, q bigint, r bigint, state int);
CREATE INDEX ON c (p); CREATE INDEX ON c (q); CREATE INDEX ON c (r);
INSERT INTO p VALUES (1), (2), (3); INSERT INTO q VALUES (1), (2), (3), (5); INSERT INTO r VALUES (1), (2), (3);
INSERT INTO c VALUES (1, 1, 1, 1, 7), (2, 1, 2, 1, 8), (3, 2, 1, 1, NULL), (4, 1, 1, 2, 4), (5, 1, 5, 3, 5), (6, 2, 2, 1, 1);`

func setsTo(parent, target string, value int) string {
	return fmt.Sprintf("{table: %s, column: %[1]s, on_delete: update_column_to, target_column: %s, target_value: %d}",
		parent, target, value)
}

// After a restore, workers do not delete a child only because another definition has no
// parent for it. They do not change rows again that the application has changed.
func TestRestoreCausesNoCleanUp(t *testing.T) {
	t.Parallel()
	b := setup(t, threeParents,
		"c: [{table: p, column: p, on_delete: async_nullify}, {table: q, column: p, on_delete: async_delete}]", "p",
		"q")
	b.Exec("INSERT INTO p VALUES (50); INSERT INTO c VALUES (50, 50)")
	before := b.all("p", "q", "c")
	b.delete(t, "p WHERE id = 50")
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
	b.drain(t, 0)
	require.Equal(t, before, b.all("p", "q", "c"))

	b = setup(t, threeParents, fmt.Sprintf("c: [%s, %s]", setsTo("p", "state", 4), setsTo("r", "state", 6)), "p", "r")
	b.delete(t, "p WHERE id = 1")
	b.Exec("UPDATE c SET state = 9 WHERE p = 1")
	before = b.all("p", "r", "c")
	b.delete(t, "r WHERE id = 1")
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
	b.drain(t, 0)
	require.Equal(t, before, b.all("p", "r", "c"))
}
