package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// newOutageSite is a site with one database on a server of its own.
func newOutageSite(t *testing.T, p program, alone, jobs string) (*multiSite, *devpg.Server) {
	server := pgtest.Server(t)
	return newMultiSite(t, p, layout{jobs: jobs, urls: map[string]string{alone: pgtest.NewOn(t, server).URL}}), server
}

// soon is how long work may take on a busy machine that depends on no database that is
// down.
const soon = time.Minute

// deleteScans makes work of which ci has no part.
func (s *multiSite) deleteScans(t *testing.T, condition string) {
	for _, at := range []*home{&s.native, &s.sec} {
		at.exec(t, "DELETE FROM scans WHERE "+condition)
	}
}

// waitsForCI expects that tombstones in main wait for ci without blame, and that what sec
// and main have to do goes on.
func (s *multiSite) waitsForCI(t *testing.T, parents int64, scans string) {
	s.deleteScans(t, scans)
	s.sec.wait(t, soon, "work without ci to be done", "NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
	s.main.wait(t, soon, "tombstones to be deferred",
		`NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records WHERE last_error IS NULL OR consume_after <= clock_timestamp())`)
	waiting, attempts, reason := s.main.waitingTombstones(t, "parents")
	require.Equal(t, parents, waiting, "tombstones that wait for ci")
	require.Zero(t, attempts, "attempts")
	require.Contains(t, reason, "database ci")

	var document struct {
		Tables []struct{ Database, Unreachable string } `json:"deletion_tables"`
		Jobs   []struct {
			Database string
			Waiting  *string `json:"waiting_for"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.run(t, 0, "status", "--json")), &document))
	require.Len(t, document.Tables, 3)
	for _, table := range document.Tables {
		require.Equal(t, table.Database == "ci", table.Unreachable != "", "what status says of %s: %q", table.Database,
			table.Unreachable)
	}
	for _, job := range document.Jobs {
		if job.Database == "ci" {
			require.NotNil(t, job.Waiting)
			require.Contains(t, *job.Waiting, "database ci cannot be reached")
		}
	}
}

// testMultiDownAtStart starts a worker while ci is down.
func testMultiDownAtStart(t *testing.T, p program) {
	s, server := newOutageSite(t, p, "ci", "main")
	s.deleteParents(t, "id <= 5")
	for _, at := range []*home{&s.native, &s.ci} {
		at.exec(t, "DELETE FROM builds WHERE id = 100")
	}
	crash(t, server)
	failing := s.jobs.start(t, []string{cronOff}, "--fail-fast")
	require.Equal(t, 4, failing.exit(t, time.Minute), "exit code with --fail-fast")
	require.Contains(t, failing.log.String(), "database ci cannot be reached")

	w := s.started(t)
	s.waitsForCI(t, 5, "id <= 10")
	s.waitsForCI(t, 5, "id <= 20")
	require.Equal(t, 1, w.lines(`"level":"WARN"`, `"msg":"database_unreachable","database":"ci"`),
		"lines about the subscription of ci")
	require.LessOrEqual(t, w.lines(`"level":"WARN"`, `"msg":"database_unreachable","kind"`, `"database":"ci"`),
		1, "lines about those that need ci")
	s.ci.restart(t, server)
	w.logged(t, `"msg":"database_reachable"`)
	s.cleaned(t)
	w.stop(t)
	s.settled(t)
}

// testMultiDownMeanwhile takes ci away from a worker and brings it back.
func testMultiDownMeanwhile(t *testing.T, p program) {
	s, server := newOutageSite(t, p, "ci", "main")
	w := s.started(t)
	s.deleteParents(t, "id = 40")
	s.cleaned(t)
	crash(t, server)
	s.deleteParents(t, "id <= 5")
	s.waitsForCI(t, 5, "id <= 10")
	s.ci.restart(t, server)
	for _, at := range []*home{&s.native, &s.ci} {
		at.exec(t, "DELETE FROM builds WHERE id = 100")
	}
	s.hurried(t)
	require.Equal(t, 1, w.lines(`"msg":"wakeup_connection_lost`, `"database":"ci"`),
		"lines about the subscription of ci")
	require.Equal(t, 1, w.lines(`"msg":"wakeup_connection_restored"`, `"database":"ci"`), "lines about its end")
	require.LessOrEqual(t, w.lines(`"level":"WARN"`, `"msg":"database_unreachable","kind"`, `"database":"ci"`),
		1, "lines about those that need ci")
	w.stop(t)
	s.settled(t)
}

// testMultiJobsDown takes the database with the jobs away, which all others need.
func testMultiJobsDown(t *testing.T, p program) {
	s, server := newOutageSite(t, p, "sec", "sec")
	w := s.started(t)
	s.deleteParents(t, "id = 40")
	s.cleaned(t)
	s.jobs.wait(t, soon, "the ends of runs to be recorded",
		"NOT EXISTS (SELECT FROM sexton.runs WHERE ended_at IS NULL)")
	crash(t, server)
	s.deleteParents(t, "id <= 5")
	w.logged(t, `"msg":"wakeup_connection_lost`)
	require.Equal(t, int64(5), s.main.count(t, backlogOf), "tombstones without the jobs")
	s.run(t, 4, "status")
	s.sec.restart(t, server)
	s.cleaned(t)
	require.LessOrEqual(t, w.lines(`"level":"WARN"`, `"msg":"wakeup_connection_lost`), 3,
		"lines about lost connections, at most one per subscription")
	w.stop(t)
	s.settled(t)
}

// testMultiHangs stops the processes of the server of ci, which then neither answer nor
// close their connections, as behind a network that swallows packets.
func testMultiHangs(t *testing.T, p program) {
	s, server := newOutageSite(t, p, "ci", "main")
	w := s.started(t)
	s.deleteParents(t, "id = 40")
	s.cleaned(t)
	rows := pgtest.Must(s.ci.pool.Query(t.Context(),
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"))(t)
	pids := pgtest.Must(pgx.CollectRows(rows, pgx.RowTo[int]))(t)
	pids = append(pids, server.PID())
	signal := func(signal syscall.Signal) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, signal) // The session may have ended.
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	s.deleteParents(t, "id <= 5")
	s.waitsForCI(t, 5, "id <= 10")
	signal(syscall.SIGCONT)
	s.hurried(t)
	w.stop(t)
	s.settled(t)
}

// testMultiJobsDieAtStart lets the server with the jobs die while a worker that starts is
// looking at it.
func testMultiJobsDieAtStart(t *testing.T, p program) {
	s, server := newOutageSite(t, p, "sec", "sec")
	s.deleteParents(t, "id <= 5")
	keeper := pgtest.Begin(t, s.sec.pool, "LOCK TABLE sexton.river_migration")
	w := s.jobs.start(t, []string{cronOff})
	s.sec.wait(t, time.Minute, "the worker to look at the schema",
		"EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'sexton.river_migration'::regclass)")
	crash(t, server)
	_ = keeper.Rollback(t.Context())
	w.logged(t, `"msg":"database_unreachable_at_start"`)
	s.sec.restart(t, server)
	s.cleaned(t)
	w.stop(t)
	s.settled(t)
}

// testMultiBroken breaks a definition in ci under a worker that is a role of its own
// there. The tombstones of its parent wait and say why; others do not. After mending a
// retry is enough. The same worker sees one break after the other.
func testMultiBroken(t *testing.T, p program) {
	t.Helper()
	type change struct{ breaks, mends, reason string }
	changes := pgtest.Few(t, map[string]change{
		"table dropped": {
			breaks: "CREATE TABLE kept AS TABLE badges; DROP TABLE badges",
			mends:  `ALTER TABLE kept RENAME TO badges; CREATE INDEX ON badges (parent_id); GRANT SELECT, UPDATE ON badges TO worker`,
			reason: "badges",
		},
		"column renamed": {
			breaks: "ALTER TABLE badges RENAME parent_id TO owner_id",
			mends:  "ALTER TABLE badges RENAME owner_id TO parent_id",
			reason: "parent_id",
		},
		"privilege revoked": {
			breaks: "REVOKE UPDATE ON badges FROM worker",
			mends:  "GRANT UPDATE ON badges TO worker",
			reason: "lacks UPDATE on table \"Ci\".badges",
		},
	}, "table dropped", "privilege revoked")
	ci := pgtest.New(t)
	s := newMultiSite(t, p, layout{urls: map[string]string{"ci": ci.URL}})
	role := ci.CreateRole()
	inCI := func(sql string) {
		s.ci.exec(t, strings.ReplaceAll(sql, "TO worker", "TO "+pgx.Identifier{role}.Sanitize()))
	}
	s.grant(t, role)
	w := s.started(t, "SEXTON_DATABASES__CI__URL="+ci.AsRole(role))
	s.deleteParents(t, "id = 40")
	s.cleaned(t)
	parents, scans := 0, 320
	for name, change := range changes {
		t.Log(name)
		inCI(strings.ReplaceAll(change.breaks, "FROM worker", "FROM "+pgx.Identifier{role}.Sanitize()))
		s.deleteParents(t, fmt.Sprintf("id > %d AND id <= %d", parents, parents+5))
		s.deleteScans(t, fmt.Sprintf("id > %d", scans-20))
		parents, scans = parents+5, scans-20
		// Tombstones that are rechecked are deferred as well.
		s.main.wait(t, time.Minute, "tombstones to be deferred", `5 <= (SELECT count(*) FROM loose_foreign_keys_deleted_records
			WHERE status = 1 AND consume_after > clock_timestamp() AND last_error IS NOT NULL)`)
		_, _, reason := s.main.waitingTombstones(t, "parents")
		require.Contains(t, reason, change.reason)
		require.Contains(t, s.run(t, 0, "failures", "list"), change.reason)
		for _, at := range []*home{&s.ci, &s.sec} {
			at.wait(t, soon, "tombstones of "+at.name+" to be worked off",
				"NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
		}

		inCI(change.mends)
		s.run(t, 0, "failures", "retry", "tombstones", "--all", "--database", s.main.name)
		s.cleaned(t)
	}
	w.stop(t)
	s.settled(t)
}

// grant gives a role in ci what the program prints for a worker there.
func (s *multiSite) grant(t *testing.T, role string) {
	s.run(t, 0, "grants", "--database", "ci", "--worker", role, "--apply")
}

// testMulti holds what the program does with several databases.
func testMulti(t *testing.T, p program) {
	tests := map[string]func(*testing.T, program){
		"chain":                                 testMultiChain,
		"other server crashes after the commit": testMultiCommitIsDurable,
		"jobs down meanwhile":                   testMultiJobsDown,
		"broken definitions":                    testMultiBroken,
	}
	if pgtest.Long {
		maps.Copy(tests, map[string]func(*testing.T, program){
			"random kills":                        testMultiKills,
			"killed between commit and removal":   testMultiKilledBetween,
			"stopped between batches elsewhere":   testMultiStoppedBetweenBatches,
			"stopped in a batch elsewhere":        testMultiStoppedInBatch,
			"hangs":                               testMultiHangs,
			"down at the start":                   testMultiDownAtStart,
			"down meanwhile":                      testMultiDownMeanwhile,
			"jobs die in the checks at the start": testMultiJobsDieAtStart,
		})
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, p) })
	}
}

// chainTable is a table of the chain that the tests of several databases are about. All
// have the columns id and parent_id, and an entry for each row of the parent in every
// few.
type chainTable struct {
	name, home, parent, action string
	rows                       int
}

// chain begins in main, goes on in ci and sec, and comes back to main. Every database has
// parents, and children of others.
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
	return all[slices.IndexFunc(all, func(other chainTable) bool {
		return other.name == cmp.Or(c.parent,
			c.name)
	})].rows
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
	return fmt.Sprintf("ALTER TABLE %s ADD FOREIGN KEY (parent_id) REFERENCES %s ON DELETE %s;\n", c.name, c.parent,
		action)
}

// watched notes every row that goes or changes, in whose session and how durably, and
// stops that session while the gate of its table is closed.
func (c chainTable) watched() string {
	if c.parent == "" {
		return ""
	}
	event := map[string]string{"async_delete": "DELETE", "async_nullify": "UPDATE"}[c.action]
	return fmt.Sprintf("CREATE TRIGGER note_change AFTER %s ON %s FOR EACH ROW EXECUTE FUNCTION note_change();\n",
		event, c.name)
}

const chainWatch = dbtest.Gates + `
CREATE TABLE changes (number bigint GENERATED ALWAYS AS IDENTITY, at_table name, id bigint, session text, commits text);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1min' SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO changes (at_table, id, session, commits)
    VALUES (TG_TABLE_NAME, OLD.id, current_setting('application_name'), current_setting('synchronous_commit'));
    PERFORM stop_at_gate(TG_TABLE_NAME);
    RETURN NULL;
END $$;
`

// testMultiChain works off deletions whose children are in other databases, in whatever
// way these are found, with passes in the foreground. One pass per database, in the order
// of the chain, is enough.
func testMultiChain(t *testing.T, p program) {
	layouts := map[string]layout{"tables by patterns": {jobs: "ci", everywhere: true, claimed: true}}
	if pgtest.Long {
		layouts["tables found where they are"] = layout{}
		layouts["tables by their definitions"] = layout{jobs: "sec", twice: true}
	}
	pgtest.Each(t, layouts, func(t *testing.T, _ string, l layout) {
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
			require.Zero(t, at.count(t, "SELECT count(*) FROM changes WHERE session NOT LIKE 'sexton%#%'"),
				"changes outside of batches")
			require.Equal(t, at.name == s.jobs.name, at.count(t,
				"SELECT count(*) FROM pg_tables WHERE tablename = 'river_job'") > 0, "jobs in %s", at.name)
		}
		s.run(t, 0, "triggers", "status")
	})
}

// chainRows are the rows of those tables of the chain that are there, one line each.
func (p *home) chainRows(t *testing.T, wanted func(chainTable) bool) []string {
	var lines []string
	for _, table := range chain() {
		there := p.count(t, "SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename = $2", p.schema,
			table.name) > 0
		if !there || !wanted(table) {
			continue
		}
		found := pgtest.Must(p.pool.Query(t.Context(), "SELECT '"+table.name+" ' || entry::text FROM "+table.name+
			" AS entry"))(t)
		read := pgtest.Must(pgx.CollectRows(found, pgx.RowTo[string]))(t)
		lines = append(lines, read...)
	}
	slices.Sort(lines)
	return lines
}
