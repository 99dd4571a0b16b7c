package loosefk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
)

const toAandB = `
a: [{table: parents, column: parent_id, on_delete: async_delete}]
b: [{table: parents, column: parent_id, on_delete: async_delete}]
`

const aAndB = `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE a (id bigint PRIMARY KEY, parent_id bigint);
CREATE TABLE b (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON a (parent_id);
CREATE INDEX ON b (parent_id);
INSERT INTO parents VALUES (1), (2);
INSERT INTO a SELECT n, 1 FROM generate_series(1, 10) AS n;
INSERT INTO b SELECT n, 1 FROM generate_series(1, 20) AS n;`

// What comes to a table behind the exact statement is not looked for when the tombstone goes: its transaction is
// older, so the second look has to wait for it.
func TestChildBehindAnExactStatementIsALateOne(t *testing.T) {
	t.Parallel()

	b := setupAdaptive(t, aAndB, toAandB, "parents")
	older := b.begun(t)
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.onProgress(func(s *loosefk.Stats) bool { return len(s.DeleteCountByTable) == 1 }, func() {
		older.exec("INSERT INTO a VALUES (100, 1); INSERT INTO b VALUES (100, 1)")
	})
	stats := b.run(t)
	require.EqualValues(t, 30, stats.DeleteCount)
	require.EqualValues(t, 1, stats.Processed)
	require.Zero(t, b.Pending(t))
	require.Len(t, b.swept(), 1, "the older transaction is waited for")

	older.exec("COMMIT")
	stats = b.openedGate(t)
	require.EqualValues(t, 1, stats.LateChildren)
	require.EqualValues(t, 2, stats.DeleteCount)
	require.Zero(t, b.count(t, "a")+b.count(t, "b"))
	require.Zero(t, b.Pending(t))
}

// The same for one whose transaction ends before the tombstone goes: it is found in the same run.
func TestCommittedChildBehindAnExactStatementGoesInTheSameRun(t *testing.T) {
	t.Parallel()

	b := setupAdaptive(t, aAndB, toAandB, "parents")
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.onProgress(func(s *loosefk.Stats) bool { return len(s.DeleteCountByTable) == 1 }, func() {
		b.Exec("INSERT INTO a VALUES (100, 1); INSERT INTO b VALUES (100, 1)")
	})
	require.EqualValues(t, 32, b.run(t).DeleteCount)
	require.Zero(t, b.count(t, "a")+b.count(t, "b"))
	require.Zero(t, b.Pending(t))
	require.Empty(t, b.swept())
}

// What the exact statements have to be looked after for is found before the tombstone goes: an older transaction
// keeps second looks away here.
func TestStatementsThatAreNotExactAreLookedAfter(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		tables, definitions string
		// meanwhile happens after the first statement that deleted or changed anything.
		meanwhile string
		left      string
	}{
		"a row that moves to a partition which is done": {
			`CREATE TABLE parents (id bigint PRIMARY KEY);
			CREATE TABLE parted (id bigint, parent_id bigint) PARTITION BY RANGE (id);
			CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (50);
			CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (50) TO (100);
			CREATE INDEX ON parted (parent_id);
			INSERT INTO parents VALUES (1);
			INSERT INTO parted VALUES (1, 1), (51, 1), (52, 1);`,
			"parted: [{table: parents, column: parent_id, on_delete: async_delete}]",
			"UPDATE parted SET id = 100 - id WHERE id IN (51, 52); UPDATE parted SET id = 99 WHERE id = 1",
			"parted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupAdaptive(t, test.tables, test.definitions, "parents")
			b.begun(t)
			b.Exec("DELETE FROM parents")
			b.onProgress(func(s *loosefk.Stats) bool { return s.DeleteCount+s.UpdateCount > 0 }, func() { b.Exec(test.meanwhile) })
			stats := b.run(t)
			require.Zero(t, b.count(t, test.left))
			require.EqualValues(t, 1, stats.Processed)
			require.Zero(t, stats.LateChildren)
			require.Len(t, b.swept(), 1)
		})
	}
}

// A rule or trigger that keeps rows would have its tombstone go and come back for ever if nobody looked.
func TestRowsThatARuleKeepsAreReported(t *testing.T) {
	t.Parallel()

	for name, keep := range map[string]string{
		"a rule": "CREATE RULE keep AS ON DELETE TO a WHERE old.id = 5 DO INSTEAD NOTHING",
		"a trigger": `CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
			CREATE TRIGGER keep BEFORE DELETE ON a FOR EACH ROW WHEN (old.id = 5) EXECUTE FUNCTION keep()`,
		"a trigger that puts them back": `CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS
				'BEGIN INSERT INTO public.a SELECT gone.* FROM gone WHERE gone.id = 5; RETURN NULL; END';
			CREATE TRIGGER again AFTER DELETE ON a REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION again()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupAdaptive(t, aAndB+keep, toAandB, "parents")
			b.Exec("DELETE FROM parents")
			require.EqualValues(t, 1, b.run(t).Processed, "the other parent's")
			left := b.tombstones()
			require.Len(t, left, 1)
			require.Equal(t, []string{"1", "1"}, left[0][:2])
			require.Contains(t, left[0][3], "a trigger or rule of a child table keeps them or puts them back")
			require.Equal(t, [][]string{{"5"}}, b.Rows("SELECT id FROM a"))
			require.Zero(t, b.count(t, "b"))
		})
	}
}

// The triggers that change nothing about what a statement leaves behind cost no look: those of inserts, those that
// are disabled, and the tracking trigger of a child that is a parent itself.
func TestWhichTriggersNeedALook(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		trigger string
		looked  bool
	}{
		"none":            {"SELECT 1", false},
		"of inserts":      {"CREATE TRIGGER hook BEFORE INSERT ON a FOR EACH ROW EXECUTE FUNCTION hook()", false},
		"of updates":      {"CREATE TRIGGER hook BEFORE UPDATE ON a FOR EACH ROW EXECUTE FUNCTION hook()", false},
		"of deletes":      {"CREATE TRIGGER hook BEFORE DELETE ON a FOR EACH ROW EXECUTE FUNCTION hook()", true},
		"behind deletes":  {"CREATE TRIGGER hook AFTER INSERT OR DELETE ON a FOR EACH STATEMENT EXECUTE FUNCTION hook()", true},
		"a disabled one":  {"CREATE TRIGGER hook BEFORE DELETE ON a FOR EACH ROW EXECUTE FUNCTION hook(); ALTER TABLE a DISABLE TRIGGER hook", false},
		"a foreign key's": {"CREATE TABLE c (a_id bigint REFERENCES a ON DELETE CASCADE)", false},
		"the tracking":    {"CREATE TRIGGER sexton_track AFTER DELETE ON a FOR EACH STATEMENT EXECUTE FUNCTION hook()", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupAdaptive(t, aAndB+"CREATE FUNCTION hook() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN coalesce(new, old); END';"+test.trigger, toAandB, "parents")
			b.begun(t)
			b.Exec("DELETE FROM parents WHERE id = 1")
			b.onProgress(func(s *loosefk.Stats) bool { return s.DeleteCountByTable["a"] > 0 }, func() { b.Exec("INSERT INTO a VALUES (100, 1)") })
			require.Zero(t, b.run(t).LateChildren)
			require.Zero(t, b.Pending(t))
			require.Equal(t, test.looked, b.count(t, "a") == 0, "a look finds the child before the tombstone goes")
		})
	}
}
