package loosefk_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk/dryrun"
)

// needed lists table, columns and way of the missing indexes of the first definition.
func needed(run *dryrun.Result) [][]any {
	var all [][]any
	for _, missing := range run.Definitions[0].MissingIndexes {
		way, _, _ := strings.Cut(missing.Why, ": no index begins with ")
		all = append(all, []any{missing.Table, missing.Columns, way})
	}
	return all
}

func TestPlanWalksTheForeignKeysBelow(t *testing.T) {
	t.Parallel()
	db := with(t, `
		CREATE SCHEMA app;
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (
			id bigint PRIMARY KEY, iid bigint, tenant bigint, parent_id bigint, next_id bigint REFERENCES children ON DELETE CASCADE, UNIQUE (tenant, iid)
		);
		CREATE INDEX ON children (parent_id);
		CREATE TABLE app.notes (id bigint PRIMARY KEY, child_id bigint REFERENCES children ON DELETE CASCADE);
		CREATE TABLE awards (id bigint PRIMARY KEY, note_id bigint REFERENCES app.notes ON DELETE SET NULL);
		CREATE TABLE beyond (id bigint PRIMARY KEY, award_id bigint REFERENCES awards ON DELETE CASCADE);
		CREATE TABLE indexed (id bigint PRIMARY KEY, note_id bigint REFERENCES app.notes ON DELETE CASCADE);
		CREATE INDEX ON indexed USING hash (note_id);
		CREATE TABLE pairs (id bigint PRIMARY KEY, t bigint, i bigint, FOREIGN KEY (t, i) REFERENCES children (tenant, iid) ON DELETE SET DEFAULT);
		CREATE INDEX ON pairs (t);
		CREATE TABLE swapped (id bigint PRIMARY KEY, t bigint, i bigint, FOREIGN KEY (t, i) REFERENCES children (tenant, iid));
		CREATE INDEX ON swapped (i, t);
		CREATE TABLE single (t bigint, i bigint UNIQUE, FOREIGN KEY (t, i) REFERENCES children (tenant, iid));
		CREATE TABLE strict (id bigint PRIMARY KEY, indexed_id bigint REFERENCES indexed ON DELETE RESTRICT, again bigint REFERENCES indexed);
		CREATE TABLE elsewhere (id bigint PRIMARY KEY, parent_id bigint REFERENCES parents ON DELETE CASCADE);
		-- A cycle of two.
		ALTER TABLE app.notes ADD COLUMN indexed_id bigint REFERENCES indexed ON DELETE CASCADE;
		CREATE INDEX ON app.notes (indexed_id) WHERE indexed_id IS NOT NULL;`)
	plan := planOn(t, db, deleteChildren, planLimits())
	require.Equal(t, [][]any{
		{"app.notes", []string{"child_id"}, "children → app.notes (child_id) ON DELETE CASCADE"},
		{"children", []string{"next_id"}, "children → children (next_id) ON DELETE CASCADE"},
		{"pairs", []string{"t", "i"}, "children → pairs (t, i) ON DELETE SET DEFAULT"},
		{"awards", []string{"note_id"}, "children → app.notes (child_id) ON DELETE CASCADE → awards (note_id) ON DELETE SET NULL"},
		{"strict", []string{"indexed_id"}, "children → app.notes (child_id) ON DELETE CASCADE → indexed (note_id) ON DELETE CASCADE → strict (indexed_id) ON DELETE RESTRICT"},
		{"strict", []string{"again"}, "children → app.notes (child_id) ON DELETE CASCADE → indexed (note_id) ON DELETE CASCADE → strict (again) ON DELETE NO ACTION"},
	}, needed(plan))
	require.Equal(t, "children → app.notes (child_id) ON DELETE CASCADE → awards (note_id) ON DELETE SET NULL: "+
		"no index begins with note_id, so every deleted row of app.notes reads all of awards", plan.Definitions[0].MissingIndexes[3].Why)
	lines := creates(plan)
	require.Contains(t, lines, "CREATE INDEX CONCURRENTLY ON public.pairs (t, i);")
	run(db, lines)
	require.Empty(t, creates(planOn(t, db, deleteChildren, planLimits())))
}

func TestPlanOfChangesLooksAtNoKeys(t *testing.T) {
	t.Parallel()
	db := with(t, parentsAndChildren)
	db.Exec("CREATE TABLE notes (child_id bigint REFERENCES children ON DELETE CASCADE)")
	require.Empty(t, creates(planOn(t, db, "children: [{table: parents, column: parent_id, on_delete: async_nullify}]", planLimits())),
		"rows that stay take nothing with them")
	require.Len(t, creates(planOn(t, db, deleteChildren, planLimits())), 1)
}

func TestPlanWalksKeysOfPartitionedTables(t *testing.T) {
	t.Parallel()
	db := with(t, `
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (id bigint, part int, parent_id bigint, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
		CREATE INDEX ON children (parent_id);
		CREATE TABLE children_1 PARTITION OF children FOR VALUES IN (1);
		CREATE TABLE children_2 PARTITION OF children FOR VALUES IN (2);
		CREATE TABLE notes (id bigint, part int, child_id bigint, FOREIGN KEY (child_id, part) REFERENCES children ON DELETE CASCADE) PARTITION BY LIST (part);
		CREATE TABLE notes_1 PARTITION OF notes FOR VALUES IN (1);
		CREATE TABLE notes_2 PARTITION OF notes FOR VALUES IN (2);
		CREATE INDEX ON notes_2 (part, child_id);
		-- Keys of one partition alone.
		CREATE TABLE tags (child_id bigint, part int, FOREIGN KEY (child_id, part) REFERENCES children_2 ON DELETE CASCADE);`)
	wanted := []string{
		"CREATE INDEX CONCURRENTLY ON public.notes_1 (child_id, part);",
		"CREATE INDEX CONCURRENTLY ON public.tags (child_id, part);",
	}
	require.ElementsMatch(t, wanted, creates(planOn(t, db, deleteChildren, planLimits())))
	require.ElementsMatch(t, wanted, creates(planOn(t, db, "children_2: [{table: parents, column: parent_id, on_delete: async_delete}]", planLimits())),
		"what refers to the whole refers to the partition")
	require.Equal(t, wanted[:1], creates(planOn(t, db, "children_1: [{table: parents, column: parent_id, on_delete: async_delete}]", planLimits())))
}
