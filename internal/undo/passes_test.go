package undo_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A deletion that changed a row twice takes both changes back, once the deletion is undone that has changed the row since.
func TestADeletionThatChangedARowTwice(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TABLE a (id bigint PRIMARY KEY); CREATE TABLE r (id bigint PRIMARY KEY);
CREATE TABLE w (id bigint PRIMARY KEY, a bigint); CREATE TABLE y (id bigint PRIMARY KEY, w bigint);
CREATE TABLE x (id bigint PRIMARY KEY, a bigint, y bigint);
CREATE TABLE c (id bigint PRIMARY KEY, x bigint, y bigint, r bigint, state int);
INSERT INTO a VALUES (1); INSERT INTO r VALUES (1); INSERT INTO w VALUES (1, 1); INSERT INTO y VALUES (1, 1); INSERT INTO x VALUES (1, 1, 1);
INSERT INTO c VALUES (1, 1, 1, 1, 7);`, `
x: [{table: a, column: a, on_delete: async_delete}]
w: [{table: a, column: a, on_delete: async_delete}]
y: [{table: w, column: w, on_delete: async_delete}]
c: [`+setsTo("x", "state", 4)+", "+setsTo("y", "state", 5)+", "+setsTo("r", "state", 6)+"]", "a", "w", "x", "y", "r")
	before := b.all("a", "w", "x", "y")
	b.Exec("DELETE FROM a")
	unit := b.last(t).ID
	for _, table := range []string{"a", "x", "w", "y"} {
		b.cleanUp(t, table, 0)
	}
	b.Exec("DELETE FROM r")
	later := b.last(t).ID
	b.cleanUp(t, "r", 0)
	b.Exec("ALTER TABLE x ADD FOREIGN KEY (y) REFERENCES y") // x waits for y, and what x changed for x.
	for _, left := range b.restore(t, unit).Left {
		require.Equal(t, fmt.Sprintf("undo deletion %d first", later), left.Reason)
	}
	require.Equal(t, before, b.all("a", "w", "x", "y"))
	require.Equal(t, [][]string{{"6"}}, b.Rows("SELECT state::text FROM c"))
	require.Empty(t, b.restore(t, later).Left)
	require.Empty(t, b.restore(t, unit).Left)
	require.Equal(t, [][]string{{"7"}}, b.Rows("SELECT state::text FROM c"))
}
