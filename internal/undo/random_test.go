package undo_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/undo"
)

// randomSchema is a random schema with the statements of an application. Each table
// refers to some of the tables, and may refer to itself.
type randomSchema struct {
	tables, yaml string
	names        []string
	// statements are the statements of the application. deletions are the indexes of its
	// DELETEs.
	statements []string
	deletions  []int
}

const rowsEach = 40

func newRandomSchema(random *rand.Rand) *randomSchema {
	w := &randomSchema{}
	n := 3 + random.IntN(3)
	var tables, yaml, fill strings.Builder
	for i := range n {
		w.names = append(w.names, fmt.Sprintf("t%d", i))
		columns, values := []string{
			"id bigint PRIMARY KEY", "val int NOT NULL DEFAULT 0",
			"state int NOT NULL DEFAULT 1",
		}, []string{"i", "i", "1"}
		var entries []string
		sets := false
		for j := range n {
			// Most references are to earlier tables, so that chains are long. Some are to
			// the table itself or to later tables.
			if j < i && random.IntN(2) > 0 || j == i && random.IntN(3) == 0 || j > i && random.IntN(6) == 0 || i > 0 &&
				j == i-1 {
				column := fmt.Sprintf("to_t%d", j)
				columns = append(columns, column+" bigint")
				values = append(values, fmt.Sprintf("CASE WHEN i %% %d > 0 THEN (i * %d) %% %d + 1 END",
					2+random.IntN(4), 1+random.IntN(9), rowsEach))
				set := fmt.Sprintf("update_column_to, target_column: state, target_value: %d", 4+random.IntN(2))
				action := []string{"async_delete", "async_delete", "async_nullify", set}[random.IntN(4)]
				if sets && action == set {
					// Only one parent of a table sets the column state. If two parents
					// set it, an undo would not repeat the cleanup of a row that another
					// cleanup had changed. order_test.go tests that case.
					action = "async_nullify"
				}
				sets = sets || action == set
				entries = append(entries, fmt.Sprintf("{table: t%d, column: %s, on_delete: %s}", j, column, action))
			}
		}
		fmt.Fprintf(&tables, "CREATE TABLE t%d (%s);\n", i, strings.Join(columns, ", "))
		fmt.Fprintf(&fill, "INSERT INTO t%d SELECT %s FROM generate_series(1, %d) AS i;\n", i,
			strings.Join(values, ", "), rowsEach)
		if len(entries) > 0 {
			fmt.Fprintf(&yaml, "t%d: [%s]\n", i, strings.Join(entries, ", "))
		}
	}
	w.tables, w.yaml = tables.String()+fill.String(), yaml.String()
	for i := range 6 {
		if i%2 == 0 || random.IntN(2) > 0 {
			w.deletions = append(w.deletions, len(w.statements))
			w.statements = append(w.statements, fmt.Sprintf("DELETE FROM t%d WHERE id %% %d = %d", random.IntN(n),
				3+random.IntN(7), random.IntN(3)))
		}
		w.statements = append(w.statements, "drain", fmt.Sprintf("UPDATE t%d SET val = val + 1000 WHERE id %% 3 = %d",
			random.IntN(n), random.IntN(3)),
			fmt.Sprintf("INSERT INTO t%d (id, val) SELECT %d + i, i FROM generate_series(1, 5) AS i", random.IntN(n),
				1000*(i+1)))
	}
	return w
}

// rows returns the rows of all tables as texts, by table and key.
func (b *bundle) rows(names []string) map[string]string {
	found := map[string]string{}
	for _, name := range names {
		for _, row := range b.Rows(fmt.Sprintf("SELECT t.id::text, t::text FROM %s AS t", name)) {
			found["public."+name+" "+row[0]] = row[1]
		}
	}
	return found
}

// seeds is the number of random schemas that the test tries.
var seeds uint64 = 2

// Deletions are undone last in, first out. Afterwards, the database equals a database in
// which they never happened, except for the rows that the reports name. The restores fail
// and their sessions are killed at random points, also within transactions. Meanwhile the
// application writes other rows, and workers run between the tries.
func TestRestoredDatabaseEqualsDatabaseWithoutDeletion(t *testing.T) {
	t.Parallel()
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 20))
			w := newRandomSchema(random)
			wrong := map[int]bool{}
			for _, place := range random.Perm(len(w.deletions))[:1+random.IntN(min(3, len(w.deletions)))] {
				wrong[w.deletions[place]] = true
			}
			partly := random.IntN(2) > 0
			b, other := setup(t, w.tables, w.yaml, w.names...), setup(t, w.tables, w.yaml, w.names...)
			referred := b.references(w.names)
			var units []int64
			for i, statement := range w.statements {
				switch {
				case wrong[i]:
					before := len(pgtest.Must(b.engine.List(t.Context(), 100))(t))
					b.Exec(statement)
					if after := pgtest.Must(b.engine.List(t.Context(), 100))(t); len(after) > before {
						units = append(units, after[0].ID)
					}
				case strings.HasPrefix(statement, "INSERT"):
					b.Exec(statement)
					other.Exec(statement)
				case statement != "drain":
					b.writeBoth(t, other, statement)
				case wrong[i-1] && partly:
					b.drain(t, 30) // The next drain deletes the remaining rows, unless the deletion is undone first.
				default:
					b.drain(t, 0)
					other.drain(t, 0)
				}
			}
			slices.Reverse(units)
			for _, unit := range units {
				for _, l := range b.restoreUntilDone(t, random, unit, other, w.names) {
					require.NotContains(t, l.Reason, "changed since", "%v: the application changes other columns", l)
				}
			}
			var left []undo.Left
			deletions := map[string]int64{}
			for restored := int64(1); restored > 0; { // A row whose parent belongs to another deletion can be restored only after that parent.
				left, restored = nil, 0
				for _, unit := range units {
					report := b.restore(t, unit)
					left, restored = append(left, report.Left...), restored+report.Restored
					for _, l := range report.Left {
						deletions[l.Table+" "+l.Key] = unit
					}
				}
			}
			b.drain(t, 0)
			other.drain(t, 0)
			want, got := other.rows(w.names), b.rows(w.names)
			requireReasons(t, left, want, referred, deletions)
			for _, l := range left {
				delete(want, l.Table+" "+l.Key)
				delete(got, l.Table+" "+l.Key)
			}
			require.Equal(t, want, got, "seed %d\n%s\n%s\n%s", seed, w.tables, w.yaml, strings.Join(w.statements, "\n"))
			for _, unit := range units {
				require.Zero(t, b.restore(t, unit).Restored)
			}
		})
	}
}

// references returns the parents of each row by table and key. They stay the same during
// the test, because the application changes no reference and inserts no rows with
// references.
func (b *bundle) references(names []string) map[string][]string {
	found := map[string][]string{}
	for _, name := range names {
		for _, row := range b.Rows(fmt.Sprintf("SELECT t.id::text, substr(k, 4), v FROM %s AS t, jsonb_each_text(to_jsonb(t)) AS e (k, v) WHERE k LIKE 'to%%' AND v <> ''", name)) {
			found["public."+name+" "+row[0]] = append(found["public."+name+" "+row[0]], "public."+row[1]+" "+row[2])
		}
	}
	return found
}

// requireReasons verifies that each row in left has a valid reason not to be restored:
// the row does not exist in the database without the deletion, or one of its parents is
// missing there or is also in left. If rows of several deletions depend on each other,
// the reason may name another parent than the missing one.
func requireReasons(t *testing.T, left []undo.Left, rows map[string]string, referred map[string][]string,
	deletions map[string]int64,
) {
	t.Helper()
	explained := map[string]bool{}
	several := len(slices.Compact(slices.Sorted(maps.Values(deletions)))) > 1
	reasonHolds := func(l undo.Left) bool {
		row := l.Table + " " + l.Key
		missing, is := strings.CutPrefix(l.Reason, "its parent row in ")
		missing, _, _ = strings.Cut(missing, " does not exist")
		if rows[row] == "" {
			return true
		}
		require.True(t, is || l.Reason == "its parent was not restored", "%v", l)
		return slices.ContainsFunc(referred[row], func(parent string) bool {
			others := deletions[parent] != 0 && deletions[parent] != deletions[row]
			return others || (!is || several || strings.HasPrefix(parent, missing+" ")) &&
				(rows[parent] == "" || explained[parent])
		})
	}
	for before := -1; before < len(explained); {
		before = len(explained)
		for _, l := range left {
			if key := l.Table + " " + l.Key; !explained[key] && reasonHolds(l) {
				explained[key] = true
			}
		}
	}
	for _, l := range left {
		require.True(t, explained[l.Table+" "+l.Key], "%v is not restored although its parents exist", l)
	}
}

// writeBoth runs a statement of the application in b. In other, it runs the statement on
// the same rows only, because other also has rows that are deleted in b.
func (b *bundle) writeBoth(t *testing.T, other *bundle, statement string) {
	t.Helper()
	ids := pgtest.Scalar[[]int64](t, b.Database, "WITH hit AS ("+statement+
		" RETURNING id) SELECT coalesce(array_agg(id), '{}') FROM hit")
	other.Exec(statement+" AND id = ANY ($1)", ids)
}

// restoreUntilDone restores a deletion, and retries the restore until it succeeds. Some
// tries fail or are killed. A killed try may leave its lease behind.
func (b *bundle) restoreUntilDone(t *testing.T, random *rand.Rand, id int64, other *bundle, names []string) []undo.Left {
	t.Helper()
	const leave = "UPDATE sexton.leases SET holder = 'killed', expires_at = now() + interval '1 hour' WHERE key = $1"
	for tries := 8; ; tries-- {
		killed := false
		b.engine.Reached = func(string) error {
			if table := names[random.IntN(len(names))]; random.IntN(2) > 0 {
				// Rows that the restore has changed are locked until it commits, so the
				// statement skips them.
				b.writeBoth(t, other,
					fmt.Sprintf("UPDATE %s SET val = val + 7 WHERE id IN (SELECT id FROM %[1]s WHERE id %% 11 = %d FOR NO KEY UPDATE SKIP LOCKED)",
						table, random.IntN(11)))
			}
			if tries <= 0 || random.IntN(4) > 0 {
				return nil
			}
			if random.IntN(2) > 0 {
				return errStopped
			}
			killed = killed || b.Terminate("application_name LIKE '%#%'") > 0
			return nil
		}
		report, err := b.engine.Restore(t.Context(), id, false)
		b.engine.Reached = nil
		switch {
		case err == nil:
			return slices.Clone(report.Left)
		case !killed:
			require.ErrorIs(t, err, errStopped)
		case random.IntN(2) > 0:
			b.Exec(leave, key("main"))
			continue
		}
		if random.IntN(2) > 0 {
			b.drain(t, 0)
		}
	}
}
