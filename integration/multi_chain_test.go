package integration

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// testMulti holds what the program does with several databases.
func testMulti(t *testing.T, p program) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, program){
		"chain":                                 testMultiChain,
		"random kills":                          testMultiKills,
		"killed between commit and removal":     testMultiKilledBetween,
		"other server crashes after the commit": testMultiCommitIsDurable,
		"stopped in a batch elsewhere":          testMultiStoppedInBatch,
		"stopped between batches elsewhere":     testMultiStoppedBetweenBatches,
		"down at the start":                     testMultiDownAtStart,
		"down meanwhile":                        testMultiDownMeanwhile,
		"hangs":                                 testMultiHangs,
		"jobs down meanwhile":                   testMultiJobsDown,
		"jobs die in the checks at the start":   testMultiJobsDieAtStart,
		"ticks":                                 testMultiTicks,
		"broken definitions":                    testMultiBroken,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, p) })
	}
}

// chainTable is a table of the chain that the tests of several databases are about. All have the columns id and
// parent_id, and an entry for each row of the parent in every few.
type chainTable struct {
	name, home, parent, action string
	rows                       int
}

// chain begins in main, goes on in ci and sec, and comes back to main. Every database has parents, and children of others.
func chain() []chainTable {
	return []chainTable{
		{name: "parents", home: "main", rows: 40},
		{name: "builds", home: "ci", parent: "parents", action: "async_delete", rows: 160},
		{name: "badges", home: "ci", parent: "parents", action: "async_nullify", rows: 160},
		{name: "scans", home: "sec", parent: "builds", action: "async_delete", rows: 320},
		{name: "findings", home: "main", parent: "scans", action: "async_delete", rows: 640},
		{name: "links", home: "sec", parent: "scans", action: "async_nullify", rows: 640},
	}
}

func (c chainTable) rowsOfParent() int {
	all := chain()
	return all[slices.IndexFunc(all, func(other chainTable) bool { return other.name == cmp.Or(c.parent, c.name) })].rows
}

// create is the table with its rows in the schema that comes first in the search path.
func (c chainTable) create() string {
	return fmt.Sprintf(`CREATE TABLE %[1]s (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON %[1]s (parent_id);
INSERT INTO %[1]s SELECT number, number %% %[2]d + 1 FROM generate_series(1, %[3]d) AS number;
`, c.name, c.rowsOfParent(), c.rows)
}

// native is the table's foreign key as Postgres has it.
func (c chainTable) native() string {
	if c.parent == "" {
		return ""
	}
	action := map[string]string{"async_delete": "CASCADE", "async_nullify": "SET NULL"}[c.action]
	return fmt.Sprintf("ALTER TABLE %s ADD FOREIGN KEY (parent_id) REFERENCES %s ON DELETE %s;\n", c.name, c.parent, action)
}

// watched notes every row that goes or changes, in whose session and how durably, and stops that session while the gate of
// its table is closed.
func (c chainTable) watched() string {
	if c.parent == "" {
		return ""
	}
	event := map[string]string{"async_delete": "DELETE", "async_nullify": "UPDATE"}[c.action]
	return fmt.Sprintf("CREATE TRIGGER note_change AFTER %s ON %s FOR EACH ROW EXECUTE FUNCTION note_change();\n", event, c.name)
}

const chainWatch = `
CREATE TABLE changes (number bigint GENERATED ALWAYS AS IDENTITY, at_table name, id bigint, session text, commits text);
CREATE TABLE closed_gate (at_table name);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1min' SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO changes (at_table, id, session, commits)
    VALUES (TG_TABLE_NAME, OLD.id, current_setting('application_name'), current_setting('synchronous_commit'));
    IF EXISTS (SELECT FROM closed_gate WHERE at_table = TG_TABLE_NAME) THEN
        PERFORM pg_advisory_xact_lock(4711);
    END IF;
    RETURN NULL;
END $$;
`

// testMultiChain works off deletions whose children are in other databases, in whatever way these are found, with passes
// in the foreground. One pass per database, in the order of the chain, is enough.
func testMultiChain(t *testing.T, p program) {
	t.Helper()
	for name, l := range map[string]layout{
		"tables found where they are": {},
		"tables by patterns":          {jobs: "ci", everywhere: true, claimed: true},
		"tables by their definitions": {jobs: "sec", twice: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMultiSite(t, p, l)
			astray := s.rows(t, true)
			s.deleteParents(t, "id <= 15")
			for _, database := range []string{"main", "ci", "sec"} {
				first := s.pass(t, database)
				require.Equal(t, "done", first.Outcome)
				require.Empty(t, first.Errors)
				require.NotZero(t, first.Processed, "tombstones of %s", database)
			}
			s.settled(t)
			require.Equal(t, astray, s.rows(t, true), "tables that are not the definitions'")
			for _, at := range s.places() {
				again := s.pass(t, at.name)
				require.Zero(t, again.Processed+again.DeleteCount+again.UpdateCount, "a second pass must change nothing")
				require.Zero(t, at.count(t, "SELECT count(*) FROM changes WHERE session NOT LIKE 'sexton%#%'"), "changes outside of batches")
				require.Equal(t, at.name == s.jobs.name, at.count(t, "SELECT count(*) FROM pg_tables WHERE tablename = 'river_job'") > 0, "jobs in %s", at.name)
			}
			s.run(t, 0, "triggers", "status")
		})
	}
}

// chainRows are the rows of those tables of the chain that are there, one line each.
func (p *home) chainRows(t *testing.T, wanted func(chainTable) bool) []string {
	t.Helper()
	var lines []string
	for _, table := range chain() {
		there := p.count(t, "SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename = $2", p.schema, table.name) > 0
		if !there || !wanted(table) {
			continue
		}
		found, err := p.pool.Query(t.Context(), "SELECT '"+table.name+" ' || entry::text FROM "+table.name+" AS entry")
		require.NoError(t, err)
		read, err := pgx.CollectRows(found, pgx.RowTo[string])
		require.NoError(t, err)
		lines = append(lines, read...)
	}
	slices.Sort(lines)
	return lines
}
