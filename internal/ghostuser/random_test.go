package ghostuser_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/definitions"
	"sexton/internal/ghostuser"
)

// freshUsers creates the users of a random case. The users 1, 3, 4 and 5 may be deleted,
// 2 is the default of columns, and 9 is the ghost user.
const freshUsers = `
DROP SCHEMA IF EXISTS drawn CASCADE;
CREATE SCHEMA drawn;
DELETE FROM users;
DELETE FROM sexton.events;
INSERT INTO users (id, username, email, name, user_type)
SELECT id, 'user' || id, id || '@example.com', 'User', CASE id WHEN 9 THEN 5 ELSE 0 END FROM unnest('{1,2,3,4,5,9}'::bigint[]) AS id;`

const (
	ghostID   = 9
	defaultID = 2
)

// drawnColumn is a random column that refers to users.
type drawnColumn struct {
	// key is the action of the foreign key, or "" if there is none. moves is the entry in
	// the list move: "", "move", "some" (with a condition) or "always".
	key, moves string
	// unmoved is the list with the action for rows that are not moved: "", "delete" or
	// "nullify".
	unmoved string
	notNull bool
}

func drawColumn(rt *rapid.T) drawnColumn {
	c := drawnColumn{
		key: rapid.SampledFrom([]string{"", "CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT", "NO ACTION"}).Draw(rt,
			"key"),
		moves:   rapid.SampledFrom([]string{"", "move", "some", "always"}).Draw(rt, "moves"),
		unmoved: rapid.SampledFrom([]string{"", "delete", "nullify"}).Draw(rt, "unmoved"),
		notNull: rapid.Bool().Draw(rt, "not null"),
	}
	if c.moves == "always" {
		c.unmoved = ""
	} else if c.unmoved == "" && (c.key == "RESTRICT" || c.key == "NO ACTION") {
		c.unmoved = "delete"
	}
	if c.unmoved == "nullify" || c.key == "SET NULL" {
		c.notNull = false
	}
	return c
}

func (c drawnColumn) definition(name string) string {
	text := fmt.Sprintf("%s bigint DEFAULT %d", name, defaultID)
	if c.notNull {
		text += " NOT NULL"
	}
	if c.key != "" {
		text += " REFERENCES users ON DELETE " + c.key
	}
	return text
}

// addTo adds the column to the lists.
func (c drawnColumn) addTo(lists *ghostuser.Lists, table, name string) {
	switch c.moves {
	case "move", "always":
		lists.Move = append(lists.Move, ghostuser.Move{
			Table: table, Columns: []string{name},
			Always: c.moves == "always",
		})
	case "some":
		lists.Move = append(lists.Move, ghostuser.Move{
			Table: table, Columns: []string{name},
			Conditions: []definitions.Condition{{Column: "meant", Value: "true"}},
		})
	}
	switch c.unmoved {
	case "delete":
		lists.Delete = append(lists.Delete, ghostuser.Columns{Table: table, Columns: []string{name}})
	case "nullify":
		lists.Nullify = append(lists.Nullify, ghostuser.Columns{Table: table, Columns: []string{name}})
	}
}

// valueAfter returns the expected value of the column after the deletion of its user (0
// for NULL), or reports that the row is deleted.
func (c drawnColumn) valueAfter(user int, meant, hard bool) (value int, deleted bool) {
	moved := c.moves == "always" || !hard && (c.moves == "move" || c.moves == "some" && meant)
	switch {
	case moved:
		return ghostID, false
	case c.unmoved == "delete", c.unmoved == "" && c.key == "CASCADE":
		return 0, true
	case c.unmoved == "nullify", c.unmoved == "" && c.key == "SET NULL":
		return 0, false
	case c.key == "SET DEFAULT":
		return defaultID, false
	}
	return user, false
}

// TestAnySchemaAndAnyLists deletes random users of random tables in two runs, of which
// the first is stopped. It derives the expected rows from the columns of each row alone.
func TestAnySchemaAndAnyLists(t *testing.T) {
	t.Parallel()
	b := setup(t, "DROP TABLE posts, likes, visits;", ghostuser.Lists{})
	b.engine.Sizes = ghostuser.Sizes{Move: 3, Delete: 4, Nullify: 2}
	rapid.Check(t, func(rt *rapid.T) { b.check(t, rt) })
}

func (b *bundle) check(t *testing.T, rt *rapid.T) {
	hard := map[int]bool{}
	for _, user := range rapid.SliceOfNDistinct(rapid.SampledFrom([]int{1, 3, 4, 5}), 1, 4, rapid.ID).Draw(rt,
		"leaving") {
		hard[user] = rapid.Bool().Draw(rt, "hard")
	}
	var lists ghostuser.Lists
	var sql strings.Builder
	expected := [][]string{}
	for number := range rapid.IntRange(1, 3).Draw(rt, "tables") {
		table := fmt.Sprintf("drawn.t%d", number)
		columns := rapid.SliceOfN(rapid.Custom(drawColumn), 1, 3).Draw(rt, "columns")
		fmt.Fprintf(&sql, "CREATE TABLE %s (id bigint, meant boolean", table)
		for i, c := range columns {
			name := fmt.Sprintf("c%d", i)
			sql.WriteString(", " + c.definition(name))
			c.addTo(&lists, table, name)
		}
		sql.WriteString(");\n")
		for id := range rapid.IntRange(0, 25).Draw(rt, "rows") {
			meant := rapid.Bool().Draw(rt, "meant")
			values, want, kept := []string{}, []string{}, true
			for _, c := range columns {
				user := rapid.IntRange(0, 5).Draw(rt, "user")
				if c.notNull {
					user = max(user, 1)
				}
				value := user
				if isHard, leaving := hard[user]; leaving {
					var deleted bool
					value, deleted = c.valueAfter(user, meant, isHard)
					kept = kept && !deleted
				}
				values, want = append(values, userOrNull(user)), append(want, userOrNull(value))
			}
			fmt.Fprintf(&sql, "INSERT INTO %s VALUES (%d, %t, %s);\n", table, id, meant, strings.Join(values, ", "))
			if kept {
				expected = append(expected, []string{table, fmt.Sprint(id), strings.Join(want, ", ")})
			}
		}
	}
	b.Exec(freshUsers + sql.String())
	b.engine.Plan = plan(t, b.DB, lists)
	for user, isHard := range hard {
		b.queue(isHard, int64(user))
	}
	b.runInterrupted(t, rapid.IntRange(1, 30).Draw(rt, "interrupted after"))

	found := [][]string{}
	for _, table := range b.Rows("SELECT relname FROM pg_class WHERE relnamespace = 'drawn'::regnamespace AND relkind = 'r' ORDER BY 1") {
		found = append(found, b.Rows(fmt.Sprintf(`
			SELECT 'drawn.%[1]s', id, (SELECT string_agg(coalesce(nullif(value, 'null')::text, 'NULL'), ', ' ORDER BY key) FROM jsonb_each(to_jsonb(entry)) WHERE key LIKE 'c%%')
			FROM drawn.%[1]s AS entry ORDER BY id`, table[0]))...)
	}
	require.Equal(rt, expected, found, "lists: %+v\nhard: %v\n%s", lists, hard, sql.String())
	require.Empty(rt, b.queued())
	require.Len(rt, b.Rows("SELECT FROM users"), 6-len(hard))
	require.Len(rt, b.Rows("SELECT DISTINCT payload ->> 'user_id' FROM sexton.events"), len(hard))
	require.Len(rt, b.Rows("SELECT FROM sexton.events"), len(hard))
}

// runInterrupted runs the engine twice. It stops the first run after the given number of
// batches.
func (b *bundle) runInterrupted(t *testing.T, batches int) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	b.engine.Progress = func(_ context.Context, stats *ghostuser.Stats) {
		if stats.Batches >= int64(batches) {
			stop()
		}
	}
	_, err := b.engine.Run(ctx)
	require.NoError(t, err)
	b.engine.Progress = nil
	require.Empty(t, b.run(t).Errors)
}

func userOrNull(user int) string {
	if user == 0 {
		return "NULL"
	}
	return fmt.Sprint(user)
}
