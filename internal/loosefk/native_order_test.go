package loosefk_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

// rule is a definition on a child table, with the statement that a native key would run.
type rule struct{ column, yaml, change, where string }

// entry returns the rule as an entry of a definitions file.
func (r rule) entry() string {
	return fmt.Sprintf("{table: parents, column: %s, %s}", r.column, r.yaml)
}

// native returns the statement that a native key runs when one parent is deleted.
func (r rule) native(table string, parent int) string {
	return fmt.Sprintf(r.change, table) + fmt.Sprintf(" WHERE %s = %d%s;\n", r.column, parent, r.where)
}

// rules returns definitions with all actions, by two columns, on rows with different
// states and kinds.
func rules() (all []rule) {
	conditions := []struct{ yaml, where string }{
		{"", ""},
		{", conditions: [{column: state, value: done}]", " AND state = 'done'"},
		{", conditions: [{column: state, value: open}]", " AND state = 'open'"},
		{", conditions: [{column: kind, value: a}]", " AND kind = 'a'"},
		{", conditions: [{column: kind, value: b}]", " AND kind = 'b'"},
	}
	for _, column := range []string{"parent_id", "other_id"} {
		for _, action := range []struct{ yaml, change string }{
			{"on_delete: async_delete", "DELETE FROM %s"},
			{"on_delete: async_nullify", "UPDATE %s SET " + column + " = NULL"},
			{"on_delete: update_column_to, target_column: state, target_value: done", "UPDATE %s SET state = 'done'"},
			{"on_delete: update_column_to, target_column: kind, target_value: b", "UPDATE %s SET kind = 'b'"},
		} {
			for _, condition := range conditions {
				all = append(all, rule{column, action.yaml + condition.yaml, action.change, condition.where})
			}
		}
	}
	return all
}

// pairs returns the pairs of rules that must be refused, and all other pairs in random
// order.
func pairs(t *testing.T, random *rand.Rand) (refused, others [][2]rule) {
	all := rules()
	find := func(yaml string) rule {
		at := slices.IndexFunc(all, func(r rule) bool { return strings.HasSuffix(r.yaml, yaml) })
		require.GreaterOrEqual(t, at, 0, yaml)
		return all[at]
	}
	done := find("async_delete, conditions: [{column: state, value: done}]")
	for _, condition := range []string{"state, value: open", "kind, value: a"} {
		update := find("value: done, conditions: [{column: " + condition + "}]")
		refused = append(refused, [2]rule{done, update}, [2]rule{update, done})
	}
	for len(others) < 120 {
		one, two := all[random.IntN(len(all))], all[random.IntN(len(all))]
		// Rules with the same column and condition are refused as duplicates.
		if one.column != two.column || one.where != two.where {
			others = append(others, [2]rule{one, two})
		}
	}
	return refused, others
}

// Two definitions on one child are refused, or have the same result as native keys that
// fire in the order of the definitions. Each pair has its own child table.
func TestTwoDefinitionsOnOneChildMatchNativeKeys(t *testing.T) {
	t.Parallel()
	atPaces(t, func(t *testing.T, pace string) {
		seed := rand.Uint64()
		t.Logf("the seed is %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		refused, others := pairs(t, random)
		db := dbtest.Tracked(t, `CREATE TABLE parents (id bigint PRIMARY KEY);
			INSERT INTO parents SELECT generate_series(1, 40)`, "parents")
		var definitions, tables string
		for i, pair := range append(refused, others...) {
			definitions += fmt.Sprintf("child_%d: [%s, %s]\n", i, pair[0].entry(), pair[1].entry())
			for _, table := range []string{"child", "native"} {
				tables += fmt.Sprintf(`
					CREATE TABLE %[1]s_%[2]d (id int PRIMARY KEY, parent_id bigint, other_id bigint, state text, kind text);
					CREATE INDEX ON %[1]s_%[2]d (parent_id); CREATE INDEX ON %[1]s_%[2]d (other_id);
					INSERT INTO %[1]s_%[2]d SELECT 10 * p + n, p, 1 + (7 * p) %% 40,
						CASE n %% 2 WHEN 0 THEN 'open' ELSE 'done' END, substr('abc', 1 + n / 2, 1)
					FROM generate_series(1, 40) AS p, generate_series(0, 5) AS n;`, table, i)
			}
		}
		db.Exec(tables)

		_, problems := resolve(t, db.Pool(), definitions)
		wrong := map[string]bool{}
		for _, found := range problems.Only(problem.Error) {
			require.Contains(t, found.Message, "their order is not defined")
			table, _, _ := strings.Cut(found.Key, "[")
			wrong[table] = true
		}
		accepted, natively := "", map[string][2]rule{}
		for line := range strings.Lines(definitions) {
			table, _, _ := strings.Cut(line, ":")
			number := strings.TrimPrefix(table, "child_")
			i := pgtest.Must(strconv.Atoi(number))(t)
			if i < len(refused) {
				require.True(t, wrong[table], line)
			} else if !wrong[table] {
				accepted += line
				natively[number] = others[i-len(refused)]
			}
		}
		require.Greater(t, len(natively), 20)

		b := newBundle(t, db, accepted).withPace(pace)
		if pace == "adaptive" {
			b.connections(t, 4)
		}
		for deleted := range slices.Chunk(random.Perm(40)[:30], 15) {
			changes := ""
			for _, n := range deleted {
				db.Exec("DELETE FROM parents WHERE id = $1", n+1)
				for number, pair := range natively {
					changes += pair[0].native("native_"+number, n+1) + pair[1].native("native_"+number, n+1)
				}
			}
			db.Exec(changes)
			b.runToEnd(t)
		}
		for number, pair := range natively {
			require.Empty(t, db.Rows(fmt.Sprintf(`(TABLE child_%[1]s EXCEPT TABLE native_%[1]s)
				UNION ALL (TABLE native_%[1]s EXCEPT TABLE child_%[1]s)`, number)), "%s, %s", pair[0].entry(), pair[1].entry())
		}
	})
}
