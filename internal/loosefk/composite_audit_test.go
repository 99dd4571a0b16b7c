package loosefk_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompositeAuditFindsAndRepairs(t *testing.T) {
	t.Parallel()
	const orphans = `children AS c WHERE num_nulls(a, b) = 0 AND NOT EXISTS (SELECT FROM parents AS p WHERE p.a = c.a AND p.b = c.b)`
	for _, kind := range compositeKinds() {
		for _, layout := range compositeLayouts() {
			if !layout.usual && !kind.thorough {
				continue
			}
			t.Run(kind.name+", "+layout.name, func(t *testing.T) {
				t.Parallel()
				b := composites(t, kind.tables("CASCADE", layout.children, layout.partitions), `
children: [{table: parents, column: [a, b], on_delete: async_delete}]
`, "parents")
				b.untracked("DELETE FROM parents WHERE number % 2 = 0")
				b.Exec("DELETE FROM parents WHERE number = 3")
				checked := b.count(t, "(SELECT DISTINCT a, b FROM children WHERE num_nulls(a, b) = 0) AS keys")
				missing := b.count(t, "(SELECT DISTINCT a, b FROM "+orphans+") AS keys") - 1 // One of them has a tombstone.
				rows := b.count(t, orphans) - 3
				for _, batch := range []int{1, 2, 7, 1000} {
					report := b.audit(t, b.auditor(batch, false))["children[0]"]
					require.Equal(t, "a, b", report.Column)
					require.Equal(t, checked, report.CheckedKeys, "batches of %d", batch)
					require.Equal(t, missing, report.OrphanedKeys, "batches of %d", batch)
					require.Equal(t, rows, report.OrphanedRows, "batches of %d", batch)
				}
				require.Equal(t, missing, b.audit(t, b.auditor(2, true))["children[0]"].RepairedKeys)
				require.Zero(t, b.audit(t, b.auditor(3, true))["children[0]"].OrphanedKeys, "repairing twice is repairing once")
				require.Equal(t, missing+1, b.Pending(t))
				b.run(t)
				require.Zero(t, b.count(t, orphans))
				require.Zero(t, b.Pending(t))
				require.Positive(t, b.count(t, "children WHERE num_nulls(a, b) = 1"))
			})
		}
	}
}

// A walk costs a few look-ups per key, however many children a key has and however many have half of one.
func TestCompositeAuditStepsOverEqualAndHalfKeys(t *testing.T) {
	t.Parallel()
	b := composites(t, `
CREATE TABLE parents (a int, b int, PRIMARY KEY (a, b));
CREATE TABLE children (a int, b int);
INSERT INTO children SELECT n % 4, CASE WHEN n % 4 < 2 THEN n % 3 END FROM generate_series(1, 40000) AS n;
INSERT INTO children VALUES (9, 9), (NULL, 9), (NULL, NULL);
CREATE INDEX ON children (a, b);`, "children: [{table: parents, column: [a, b], on_delete: async_delete}]", "parents")
	report := b.audit(t, b.auditor(3, false))["children[0]"]
	require.EqualValues(t, 7, report.CheckedKeys)
	require.Equal(t, []string{"{0,0}", "{0,1}", "{0,2}", "{1,0}", "{1,1}", "{1,2}", "{9,9}"}, report.Samples)
}
