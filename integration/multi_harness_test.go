package integration

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// multiDB is one database of a multiSite. Its schema comes first in the pool's search
// path.
type multiDB struct {
	twinSite

	name, schema string
}

// layout describes where the databases of a test are and how Sexton assigns tables to
// them.
type layout struct {
	// urls are the URLs by database. Missing databases are created on the tests' server.
	urls map[string]string
	// jobs is the name of the database with the jobs; the default is main.
	jobs string
	// inAllDatabases creates all tables in all databases with the same rows. byPattern
	// makes the configuration assign tables to databases by patterns.
	inAllDatabases, byPattern bool
	// duplicated also creates the last tables of the chain in the other databases. The
	// definitions then name the database of these tables.
	duplicated bool
	settings   string
}

// multiSite is a set of three databases with one configuration, in which the program has
// installed itself.
type multiSite struct {
	program       program
	dir           string
	main, ci, sec multiDB
	// jobs is the database with the jobs. native is another database with the same tables
	// and native foreign keys.
	jobs, native multiDB
}

func openMultiDB(t *testing.T, p program, dir, name, schema, address string) multiDB {
	settings := pgtest.Must(pgxpool.ParseConfig(address))(t)
	quoted := pgx.Identifier{schema}.Sanitize()
	settings.ConnConfig.RuntimeParams["search_path"] = quoted
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(pool.Close)
	made := multiDB{
		twinSite: twinSite{workSite{program: p, url: address, dir: dir, pool: pool}}, name: name,
		schema: schema,
	}
	made.exec(t, "CREATE SCHEMA IF NOT EXISTS "+quoted)
	return made
}

func newMultiSite(t *testing.T, p program, l layout) *multiSite {
	s := &multiSite{program: p, dir: t.TempDir()}
	open := func(name, schema string) multiDB {
		address := l.urls[name]
		if address == "" {
			address = pgtest.New(t).URL
		}
		return openMultiDB(t, p, s.dir, name, schema, address)
	}
	s.main, s.ci, s.sec, s.native = open("main", "app"), open("ci", "Ci"), open("sec", "public"),
		open("native", "public")
	s.jobs = *s.database(cmp.Or(l.jobs, "main"))

	definitions := ""
	for _, table := range chain() {
		s.native.exec(t, table.create()+table.foreignKey())
		last := table.name == "findings" || table.name == "links"
		for _, db := range s.databases() {
			if db.name == table.database || l.inAllDatabases || l.duplicated && last {
				db.exec(t, table.create())
			}
		}
		if table.parent == "" {
			continue
		}
		entry := fmt.Sprintf("table: %s, column: parent_id, on_delete: %s", table.parent, table.action)
		if l.duplicated && last {
			entry += ", database: " + table.database
		}
		definitions += fmt.Sprintf("%s: [{%s}]\n", table.name, entry)
	}
	for _, db := range s.databases() {
		db.exec(t, chainWatch)
		for _, table := range chain() {
			if db.name == table.database {
				db.exec(t, table.trigger())
			}
		}
	}
	s.configure(t, l, definitions)
	s.run(t, 0, "migrate", "up")
	s.run(t, 0, "triggers", "install")
	return s
}

func (s *multiSite) configure(t *testing.T, l layout, definitions string) {
	claims := map[string]string{"main": "[parents, 'fi*']", "ci": "['b*']", "sec": "['public.s*', 'link?']"}
	text := "databases:\n"
	for _, db := range s.databases() {
		text += fmt.Sprintf("  %s: {url: %q, schema: %q", db.name, db.url, db.schema)
		if l.byPattern {
			text += ", tables: " + claims[db.name]
		}
		text += "}\n"
	}
	text += fmt.Sprintf("jobs: {database: %s}\nhttp: {listen: \"\"}\n%s", s.jobs.name, cmp.Or(l.settings, patientPace))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "sexton.yaml"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "loose_foreign_keys.yml"), []byte(definitions), 0o600))
}

func (s *multiSite) databases() []*multiDB { return []*multiDB{&s.main, &s.ci, &s.sec} }

func (s *multiSite) database(name string) *multiDB {
	all := s.databases()
	return all[slices.IndexFunc(all, func(p *multiDB) bool { return p.name == name })]
}

// run runs a command, requires the given exit code and returns the standard output.
func (s *multiSite) run(t *testing.T, code int, args ...string) string {
	return s.program.run(t, s.dir, "", code, args...)
}

// runPass runs one foreground run for a database.
func (s *multiSite) runPass(t *testing.T, database string) report {
	r := parseReport(t, s.run(t, 0, "job", "run", kind, "--database", database, "--json"))
	require.Equal(t, database, r.Database)
	return r
}

// startWorker starts a worker and waits until it logs worker_started.
func (s *multiSite) startWorker(t *testing.T, environ ...string) *runningWorker {
	return s.jobs.startWorker(t, environ...)
}

// deleteParents deletes the same parents in main and in the native database.
func (s *multiSite) deleteParents(t *testing.T, condition string) {
	for _, db := range []*multiDB{&s.native, &s.main} {
		db.exec(t, "DELETE FROM parents WHERE "+condition)
	}
}

// rows returns the rows of the chain's tables in their own databases or, if misplaced is
// set, the rows of the chain's tables in other databases.
func (s *multiSite) rows(t *testing.T, misplaced bool) []string {
	var lines []string
	for _, db := range s.databases() {
		lines = append(lines,
			db.chainRows(t, func(table chainTable) bool { return (table.database != db.name) == misplaced })...)
	}
	slices.Sort(lines)
	return lines
}

// requireNativeRows requires the rows that native foreign keys have left, no pending
// tombstones, and that no row was deleted twice.
func (s *multiSite) requireNativeRows(t *testing.T) {
	native := s.native.chainRows(t, func(chainTable) bool { return true })
	require.Equal(t, native, s.rows(t, false), "rows differ from what native foreign keys leave in one database")
	for _, db := range s.databases() {
		require.Zero(t, db.count(t, backlogOf), "tombstones in %s", db.name)
		require.Zero(t, db.count(t, `SELECT count(*) FROM (
			SELECT FROM changes WHERE at_table IN ('builds', 'scans', 'findings') GROUP BY at_table, id HAVING count(*) > 1) AS duplicated`),
			"rows deleted twice in %s", db.name)
	}
}

// backlogOf counts pending tombstones. Tombstones with another status wait for a recheck,
// which a stopped worker leaves to the next worker.
const backlogOf = "SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE status = 1"

// waitCleaned waits until no database has tombstones, in the order of the chain, because
// the work of one database creates work in the next.
func (s *multiSite) waitCleaned(t *testing.T) {
	for _, db := range []*multiDB{&s.main, &s.ci, &s.sec} {
		db.wait(t, time.Minute, "tombstones of "+db.name+" to be processed",
			"NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
	}
}

// waitRechecked waits until all rechecks are done in all databases.
func (s *multiSite) waitRechecked(t *testing.T) {
	for _, db := range s.databases() {
		db.wait(t, time.Minute, "all rechecks of "+db.name, "NOT EXISTS (SELECT FROM sexton.swept)")
	}
}

// requireFinalState requires, after all workers have stopped, the rows that native
// foreign keys leave, and no leases or clients.
func (s *multiSite) requireFinalState(t *testing.T) {
	s.requireNativeRows(t)
	s.jobs.requireCleanedUp(t)
}

// retryDeferred makes deferred tombstones of main due and wakes the worker every second,
// like `sexton failures retry tombstones`, until main has none. Then it waits for the
// other databases.
func (s *multiSite) retryDeferred(t *testing.T) {
	var last time.Time
	waitUntil(t, "tombstones of main to be processed", func() bool {
		if time.Since(last) > time.Second {
			last = time.Now()
			s.main.exec(t,
				"UPDATE loose_foreign_keys_deleted_records SET consume_after = clock_timestamp() WHERE consume_after > clock_timestamp()")
			s.main.exec(t, "SELECT pg_notify('sexton_wake', $1)", kind)
		}
		return s.main.count(t, backlogOf) == 0
	})
	s.waitCleaned(t)
}

// waitingTombstones returns the number of pending tombstones of a parent table, their
// highest number of attempts, and one of their errors.
func (p *multiDB) waitingTombstones(t *testing.T, parent string) (waiting, attempts int64, reason string) {
	err := p.pool.QueryRow(t.Context(), `SELECT count(*), coalesce(max(cleanup_attempts), 0), coalesce(max(last_error), '')
		FROM loose_foreign_keys_deleted_records WHERE status = 1 AND fully_qualified_table_name LIKE '%' || $1`, parent).Scan(&waiting, &attempts, &reason)
	require.NoError(t, err)
	return waiting, attempts, reason
}

// crash kills a private server, which stays down until Restart is called.
func crash(t *testing.T, server *devpg.Server) {
	pid := server.PID()
	require.NoError(t, syscall.Kill(pid, syscall.SIGQUIT))
	waitUntil(t, "the server to end", func() bool { return syscall.Kill(pid, 0) != nil })
}

// restart kills the server if it is running, starts it again and closes the pool's
// connections.
func (p *multiDB) restart(t *testing.T, server *devpg.Server) {
	require.NoError(t, server.Restart(t.Context(), devpg.Immediate))
	p.pool.Reset()
}

func waitUntil(t *testing.T, what string, holds func() bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	require.True(t, pgtest.Poll(ctx, holds), "timed out waiting for %s", what)
}

// countLines returns the number of log lines that contain all of the texts.
func (w *runningWorker) countLines(texts ...string) int {
	count := 0
	for line := range strings.Lines(w.log.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			count++
		}
	}
	return count
}
