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

// newOutageSite returns a site with one database on a private server.
func newOutageSite(t *testing.T, p program, alone, jobs string) (*multiSite, *devpg.Server) {
	server := pgtest.Server(t)
	return newMultiSite(t, p, layout{jobs: jobs, urls: map[string]string{alone: pgtest.NewOn(t, server).URL}}), server
}

// soon is the time limit for work that needs none of the unavailable databases. The limit
// also suffices on a busy machine.
const soon = time.Minute

// deleteScans deletes scans in sec, which creates work that does not involve ci.
func (s *multiSite) deleteScans(t *testing.T, condition string) {
	for _, db := range []*multiDB{&s.native, &s.sec} {
		db.exec(t, "DELETE FROM scans WHERE "+condition)
	}
}

// requireWaitingForCI requires that tombstones in main wait for ci without a counted
// attempt, that sec and main continue to work, and that status reports the outage.
func (s *multiSite) requireWaitingForCI(t *testing.T, parents int64, scans string) {
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
		require.Equal(t, table.Database == "ci", table.Unreachable != "", "status of %s: %q", table.Database,
			table.Unreachable)
	}
	for _, job := range document.Jobs {
		if job.Database == "ci" {
			require.NotNil(t, job.Waiting)
			require.Contains(t, *job.Waiting, "database ci cannot be reached")
		}
	}
}

// testMultiDownAtStart starts a worker while ci is down. The worker must do the other
// work and finish after ci is up again.
func testMultiDownAtStart(t *testing.T, p program) {
	s, server := newOutageSite(t, p, "ci", "main")
	s.deleteParents(t, "id <= 5")
	for _, db := range []*multiDB{&s.native, &s.ci} {
		db.exec(t, "DELETE FROM builds WHERE id = 100")
	}
	crash(t, server)
	failing := s.jobs.start(t, []string{cronOff}, "--fail-fast")
	require.Equal(t, 4, failing.waitExit(t, time.Minute), "exit code with --fail-fast")
	require.Contains(t, failing.log.String(), "database ci cannot be reached")

	w := s.startWorker(t)
	s.requireWaitingForCI(t, 5, "id <= 10")
	s.requireWaitingForCI(t, 5, "id <= 20")
	require.Equal(t, 1, w.countLines(`"level":"WARN"`, `"msg":"database_unreachable","database":"ci"`),
		"log lines about the subscription of ci")
	require.LessOrEqual(t, w.countLines(`"level":"WARN"`, `"msg":"database_unreachable","kind"`, `"database":"ci"`),
		1, "log lines about jobs that need ci")
	s.ci.restart(t, server)
	w.waitForLog(t, `"msg":"database_reachable"`)
	s.waitCleaned(t)
	w.stop(t)
	s.requireFinalState(t)
}

// testMultiDownWhileRunning stops ci while a worker is running and starts it again.
func testMultiDownWhileRunning(t *testing.T, p program) {
	s, server := newOutageSite(t, p, "ci", "main")
	w := s.startWorker(t)
	s.deleteParents(t, "id = 40")
	s.waitCleaned(t)
	crash(t, server)
	s.deleteParents(t, "id <= 5")
	s.requireWaitingForCI(t, 5, "id <= 10")
	s.ci.restart(t, server)
	for _, db := range []*multiDB{&s.native, &s.ci} {
		db.exec(t, "DELETE FROM builds WHERE id = 100")
	}
	s.retryDeferred(t)
	require.Equal(t, 1, w.countLines(`"msg":"wakeup_connection_lost`, `"database":"ci"`),
		"log lines about the subscription of ci")
	require.Equal(t, 1, w.countLines(`"msg":"wakeup_connection_restored"`, `"database":"ci"`), "log lines about the restored connection")
	require.LessOrEqual(t, w.countLines(`"level":"WARN"`, `"msg":"database_unreachable","kind"`, `"database":"ci"`),
		1, "log lines about jobs that need ci")
	w.stop(t)
	s.requireFinalState(t)
}

// testMultiJobsDown stops the database with the jobs, which all work needs, and starts it
// again.
func testMultiJobsDown(t *testing.T, p program) {
	s, server := newOutageSite(t, p, "sec", "sec")
	w := s.startWorker(t)
	s.deleteParents(t, "id = 40")
	s.waitCleaned(t)
	s.jobs.wait(t, soon, "the ends of runs to be recorded",
		"NOT EXISTS (SELECT FROM sexton.runs WHERE ended_at IS NULL)")
	crash(t, server)
	s.deleteParents(t, "id <= 5")
	w.waitForLog(t, `"msg":"wakeup_connection_lost`)
	require.Equal(t, int64(5), s.main.count(t, backlogOf), "tombstones while the jobs database is down")
	s.run(t, 4, "status")
	s.sec.restart(t, server)
	s.waitCleaned(t)
	require.LessOrEqual(t, w.countLines(`"level":"WARN"`, `"msg":"wakeup_connection_lost`), 3,
		"log lines about lost connections, at most one per subscription")
	w.stop(t)
	s.requireFinalState(t)
}

// testMultiHungServer stops the server processes of ci with SIGSTOP. They neither answer
// nor close their connections, like a network that drops packets.
func testMultiHungServer(t *testing.T, p program) {
	s, server := newOutageSite(t, p, "ci", "main")
	w := s.startWorker(t)
	s.deleteParents(t, "id = 40")
	s.waitCleaned(t)
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
	s.requireWaitingForCI(t, 5, "id <= 10")
	signal(syscall.SIGCONT)
	s.retryDeferred(t)
	w.stop(t)
	s.requireFinalState(t)
}

// testMultiJobsCrashAtStart crashes the server with the jobs while a starting worker
// reads the schema in it.
func testMultiJobsCrashAtStart(t *testing.T, p program) {
	s, server := newOutageSite(t, p, "sec", "sec")
	s.deleteParents(t, "id <= 5")
	keeper := pgtest.Begin(t, s.sec.pool, "LOCK TABLE sexton.river_migration")
	w := s.jobs.start(t, []string{cronOff})
	s.sec.wait(t, time.Minute, "the worker to read the schema",
		"EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'sexton.river_migration'::regclass)")
	crash(t, server)
	_ = keeper.Rollback(t.Context())
	w.waitForLog(t, `"msg":"database_unreachable_at_start"`)
	s.sec.restart(t, server)
	s.waitCleaned(t)
	w.stop(t)
	s.requireFinalState(t)
}

// testMultiInvalidDefinition invalidates a definition in ci while a worker with its own
// role is running. The tombstones of the definition's parent must be deferred with the
// reason, and other tombstones must be processed. After the repair a retry must be
// enough. The same worker runs during all cases.
func testMultiInvalidDefinition(t *testing.T, p program) {
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
	w := s.startWorker(t, "SEXTON_DATABASES__CI__URL="+ci.AsRole(role))
	s.deleteParents(t, "id = 40")
	s.waitCleaned(t)
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
		for _, db := range []*multiDB{&s.ci, &s.sec} {
			db.wait(t, soon, "tombstones of "+db.name+" to be processed",
				"NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
		}

		inCI(change.mends)
		s.run(t, 0, "failures", "retry", "tombstones", "--all", "--database", s.main.name)
		s.waitCleaned(t)
	}
	w.stop(t)
	s.requireFinalState(t)
}

// grant runs the program to grant a role in ci the privileges of a worker.
func (s *multiSite) grant(t *testing.T, role string) {
	s.run(t, 0, "grants", "--database", "ci", "--worker", role, "--apply")
}

// testMulti runs the tests with several databases.
func testMulti(t *testing.T, p program) {
	tests := map[string]func(*testing.T, program){
		"chain": testMultiChain,
		"server of another database crashes after the commit": testMultiCommitIsDurable,
		"jobs database down": testMultiJobsDown,
		"broken definitions": testMultiInvalidDefinition,
	}
	if pgtest.Long {
		maps.Copy(tests, map[string]func(*testing.T, program){
			"random kills":                                testMultiKills,
			"killed between commit and removal":           testMultiKilledBetween,
			"stopped between batches of another database": testMultiStoppedBetweenBatches,
			"stopped in a batch of another database":      testMultiStoppedInBatch,
			"database hangs":                              testMultiHungServer,
			"database down at the start":                  testMultiDownAtStart,
			"database down while the worker runs":         testMultiDownWhileRunning,
			"jobs database crashes during the start":      testMultiJobsCrashAtStart,
		})
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, p) })
	}
}

// chainTable is a table of the chain in the tests with several databases. Every table has
// the columns id and parent_id, and several rows for each row of its parent.
type chainTable struct {
	name, database, parent, action string
	rows                           int
}

// chain returns tables whose references lead from main to ci and sec and back to main.
// Every database has parents, and children of parents in another database.
func chain() []chainTable {
	return []chainTable{
		{name: "parents", database: "main", rows: 40},
		{name: "builds", database: "ci", parent: "parents", action: "async_delete", rows: 160},
		{name: "badges", database: "ci", parent: "parents", action: "async_nullify", rows: 160},
		{name: "scans", database: "sec", parent: "builds", action: "async_delete", rows: 320},
		{name: "findings", database: "main", parent: "scans", action: "async_delete", rows: 640},
		{name: "links", database: "sec", parent: "scans", action: "async_nullify", rows: 640},
	}
}

func (c chainTable) rowsOfParent() int {
	all := chain()
	return all[slices.IndexFunc(all, func(other chainTable) bool {
		return other.name == cmp.Or(c.parent,
			c.name)
	})].rows
}

// create returns SQL that creates the table with its rows in the first schema of the
// search path.
func (c chainTable) create() string {
	return fmt.Sprintf(`CREATE TABLE %[1]s (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON %[1]s (parent_id);
INSERT INTO %[1]s SELECT number, number %% %[2]d + 1 FROM generate_series(1, %[3]d) AS number;
`, c.name, c.rowsOfParent(), c.rows)
}

// foreignKey returns SQL that adds the table's native foreign key.
func (c chainTable) foreignKey() string {
	if c.parent == "" {
		return ""
	}
	action := map[string]string{"async_delete": "CASCADE", "async_nullify": "SET NULL"}[c.action]
	return fmt.Sprintf("ALTER TABLE %s ADD FOREIGN KEY (parent_id) REFERENCES %s ON DELETE %s;\n", c.name, c.parent,
		action)
}

// trigger returns SQL for a trigger that records each deleted or changed row with the
// session and synchronous_commit, and stops the session while the gate of the table is
// closed.
func (c chainTable) trigger() string {
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

// testMultiChain deletes parents whose children are in other databases, for each way in
// which Sexton assigns tables to databases. One foreground run per database, in the order
// of the chain, must be enough.
func testMultiChain(t *testing.T, p program) {
	layouts := map[string]layout{"tables by patterns": {jobs: "ci", inAllDatabases: true, byPattern: true}}
	if pgtest.Long {
		layouts["tables found in the databases"] = layout{}
		layouts["tables by their definitions"] = layout{jobs: "sec", duplicated: true}
	}
	pgtest.Each(t, layouts, func(t *testing.T, _ string, l layout) {
		s := newMultiSite(t, p, l)
		misplaced := s.rows(t, true)
		s.deleteParents(t, "id <= 15")
		for _, database := range []string{"main", "ci", "sec"} {
			first := s.runPass(t, database)
			require.Equal(t, "done", first.Outcome)
			require.Empty(t, first.Errors)
			require.NotZero(t, first.Processed, "tombstones of %s", database)
		}
		s.requireFinalState(t)
		require.Equal(t, misplaced, s.rows(t, true), "rows of tables in the wrong database")
		for _, db := range s.databases() {
			again := s.runPass(t, db.name)
			require.Zero(t, again.Processed+again.DeleteCount+again.UpdateCount, "a second pass must change nothing")
			require.Zero(t, db.count(t, "SELECT count(*) FROM changes WHERE session NOT LIKE 'sexton%#%'"),
				"changes outside of batches")
			require.Equal(t, db.name == s.jobs.name, db.count(t,
				"SELECT count(*) FROM pg_tables WHERE tablename = 'river_job'") > 0, "jobs in %s", db.name)
		}
		s.run(t, 0, "triggers", "status")
	})
}

// chainRows returns the rows of the wanted tables of the chain that exist in this
// database, one line per row.
func (p *multiDB) chainRows(t *testing.T, wanted func(chainTable) bool) []string {
	var lines []string
	for _, table := range chain() {
		exists := p.count(t, "SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename = $2", p.schema,
			table.name) > 0
		if !exists || !wanted(table) {
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
