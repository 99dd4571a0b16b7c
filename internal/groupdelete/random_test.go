package groupdelete_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/groupdelete"
)

// seeds are so many random schemas.
const seeds = 6

// randomShape makes tables that refer to groups, to projects, to each other and to themselves by keys of all sorts, and rows.
func randomShape(random *rand.Rand) shape {
	n := 2 + random.IntN(6)
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	var tables, keys, rows strings.Builder
	partitioned := make([]bool, n)
	for i := range n {
		partitioned[i] = random.IntN(5) == 0
		code := ", code bigint UNIQUE"
		if partitioned[i] {
			code = ", code bigint, UNIQUE (id, code)) PARTITION BY HASH (id"
		}
		fmt.Fprintf(&tables, "CREATE TABLE t%d (id bigint PRIMARY KEY%s);\n", i, code)
		if partitioned[i] {
			for part := range 2 {
				fmt.Fprintf(&tables, "CREATE TABLE t%d_%d PARTITION OF t%d FOR VALUES WITH (MODULUS 2, REMAINDER %d);\n", i, part, i, part)
			}
		}
		fmt.Fprintf(&rows, "INSERT INTO t%d SELECT n, n + 1000 FROM generate_series(1, %d) AS n;\n", i, random.IntN(40))
	}
	for i := range n {
		for c := range 1 + random.IntN(3) {
			column := fmt.Sprintf("c%d", c)
			var target string
			of, whole := "id", false
			switch at := random.IntN(n + 2); {
			case at == n && c == 0:
				target = "groups"
			case at >= n || c == 0 && random.IntN(2) == 0:
				target = "projects"
			default:
				target = fmt.Sprintf("t%d", at)
				if !partitioned[at] && random.IntN(4) == 0 {
					of = "code"
				}
				whole = partitioned[at] && random.IntN(2) == 0
			}
			action := pick("CASCADE", "CASCADE", "CASCADE", "CASCADE", "CASCADE", "CASCADE", "SET NULL", "SET NULL", "SET DEFAULT", pick("NO ACTION", "RESTRICT", "SET NULL"))
			fmt.Fprintf(&keys, "ALTER TABLE t%d ADD COLUMN %s bigint;\n", i, column)
			if whole {
				fmt.Fprintf(&keys, "ALTER TABLE t%d ADD COLUMN %s_code bigint, ADD FOREIGN KEY (%s, %s_code) REFERENCES %s (id, code) ON DELETE %s;\n",
					i, column, column, column, target, action)
			} else {
				fmt.Fprintf(&keys, "ALTER TABLE t%d ADD FOREIGN KEY (%s) REFERENCES %s (%s) ON DELETE %s;\n", i, column, target, of, action)
			}
			if random.IntN(5) > 0 {
				fmt.Fprintf(&keys, "CREATE INDEX ON t%d (%s);\n", i, column)
			}
			// Each row refers to some other one, or to none; the numbers do not depend on the order in which rows are read.
			value := fmt.Sprintf("(SELECT array_agg(%s ORDER BY id) FROM %s)", of, target)
			fmt.Fprintf(&rows, `UPDATE t%[1]d SET %[2]s = (%[3]s)[1 + (id * %[4]d + %[5]d) %% %[6]d] WHERE id %% %[7]d <> 0;
`, i, column, value, 1+random.IntN(50), random.IntN(50), 4+random.IntN(60), 2+random.IntN(4))
			if whole {
				fmt.Fprintf(&rows, "UPDATE t%d SET %[2]s_code = %[2]s + 1000;\n", i, column)
			}
		}
	}
	return shape{tables.String() + keys.String(), rows.String()}
}

// Random schemas: what is left must be what Postgres's own keys leave, and what they refuse must be refused.
func TestRandomSchemas(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := randomShape(rand.New(rand.NewPCG(seed, 0)))
			b := setup(t, s.tables, s.rows)
			want, refused := native(t, s.tables, s.rows)
			engine := b.engine(t, 1)
			engine.Sizes.Rows = 3
			stats, err := engine.Run(t.Context())
			require.NoError(t, err)
			if refused != nil {
				require.Equal(t, groupdelete.Stuck, stats.Outcome, "Postgres says: %v\n%s%s", refused, s.tables, s.rows)
				require.NotEmpty(t, stats.Reason)
				return
			}
			require.Equal(t, groupdelete.Destroyed, stats.Outcome, "%s\n%s%s", stats.Reason, s.tables, s.rows)
			require.Equal(t, want, content(b.Database), "%s%s", s.tables, s.rows)
		})
	}
}
