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

// home is one of several databases, with its schema first in the pool's search path.
type home struct {
	twinSite

	name, schema string
}

// layout says where the databases of a test are and how tables are found in them.
type layout struct {
	// urls are by database; those that are missing are made on the tests' server.
	urls map[string]string
	// jobs is the database with the jobs, main by default.
	jobs string
	// everywhere makes all tables in all databases, filled alike; claimed tells the
	// databases' tables by patterns.
	everywhere, claimed bool
	// twice makes the last tables of the chain also where they do not belong, and names
	// their databases in the definitions.
	twice    bool
	settings string
}

// multiSite are three databases with one configuration, on which the program has
// installed itself.
type multiSite struct {
	program       program
	dir           string
	main, ci, sec home
	// jobs is one of those, native a database of its own in which Postgres's foreign keys
	// do the same.
	jobs, native home
}

func openHome(t *testing.T, p program, dir, name, schema, address string) home {
	settings := pgtest.Must(pgxpool.ParseConfig(address))(t)
	quoted := pgx.Identifier{schema}.Sanitize()
	settings.ConnConfig.RuntimeParams["search_path"] = quoted
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(pool.Close)
	made := home{
		twinSite: twinSite{workSite{program: p, url: address, dir: dir, pool: pool}}, name: name,
		schema: schema,
	}
	made.exec(t, "CREATE SCHEMA IF NOT EXISTS "+quoted)
	return made
}

func newMultiSite(t *testing.T, p program, l layout) *multiSite {
	s := &multiSite{program: p, dir: t.TempDir()}
	open := func(name, schema string) home {
		address := l.urls[name]
		if address == "" {
			address = pgtest.New(t).URL
		}
		return openHome(t, p, s.dir, name, schema, address)
	}
	s.main, s.ci, s.sec, s.native = open("main", "app"), open("ci", "Ci"), open("sec", "public"),
		open("native", "public")
	s.jobs = *s.home(cmp.Or(l.jobs, "main"))

	definitions := ""
	for _, table := range chain() {
		s.native.exec(t, table.create()+table.native())
		last := table.name == "findings" || table.name == "links"
		for _, at := range s.places() {
			if at.name == table.home || l.everywhere || l.twice && last {
				at.exec(t, table.create())
			}
		}
		if table.parent == "" {
			continue
		}
		entry := fmt.Sprintf("table: %s, column: parent_id, on_delete: %s", table.parent, table.action)
		if l.twice && last {
			entry += ", database: " + table.home
		}
		definitions += fmt.Sprintf("%s: [{%s}]\n", table.name, entry)
	}
	for _, at := range s.places() {
		at.exec(t, chainWatch)
		for _, table := range chain() {
			if at.name == table.home {
				at.exec(t, table.watched())
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
	for _, at := range s.places() {
		text += fmt.Sprintf("  %s: {url: %q, schema: %q", at.name, at.url, at.schema)
		if l.claimed {
			text += ", tables: " + claims[at.name]
		}
		text += "}\n"
	}
	text += fmt.Sprintf("jobs: {database: %s}\nhttp: {listen: \"\"}\n%s", s.jobs.name, cmp.Or(l.settings, patientPace))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "sexton.yaml"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "loose_foreign_keys.yml"), []byte(definitions), 0o600))
}

func (s *multiSite) places() []*home { return []*home{&s.main, &s.ci, &s.sec} }

func (s *multiSite) home(name string) *home {
	places := s.places()
	return places[slices.IndexFunc(places, func(p *home) bool { return p.name == name })]
}

// run runs a command to its end and expects its exit code.
func (s *multiSite) run(t *testing.T, code int, args ...string) string {
	return s.program.run(t, s.dir, "", code, args...)
}

// pass runs one pass for a database in the foreground.
func (s *multiSite) pass(t *testing.T, database string) report {
	r := parseReport(t, s.run(t, 0, "job", "run", kind, "--database", database, "--json"))
	require.Equal(t, database, r.Database)
	return r
}

// started starts a worker and waits until it says that it works.
func (s *multiSite) started(t *testing.T, environ ...string) *runningWorker {
	return s.jobs.started(t, environ...)
}

// deleteParents deletes the same parents in main and where the foreign keys are native.
func (s *multiSite) deleteParents(t *testing.T, condition string) {
	for _, at := range []*home{&s.native, &s.main} {
		at.exec(t, "DELETE FROM parents WHERE "+condition)
	}
}

// rows are all rows of the chain, each table from its home, or of those tables that are
// where they do not belong.
func (s *multiSite) rows(t *testing.T, astray bool) []string {
	var lines []string
	for _, at := range s.places() {
		lines = append(lines,
			at.chainRows(t, func(table chainTable) bool { return (table.home != at.name) == astray })...)
	}
	slices.Sort(lines)
	return lines
}

// asNative expects the rows that native foreign keys have left, and that none went twice.
func (s *multiSite) asNative(t *testing.T) {
	native := s.native.chainRows(t, func(chainTable) bool { return true })
	require.Equal(t, native, s.rows(t, false), "rows differ from what native foreign keys leave in one database")
	for _, at := range s.places() {
		require.Zero(t, at.count(t, backlogOf), "tombstones in %s", at.name)
		require.Zero(t, at.count(t, `SELECT count(*) FROM (
			SELECT FROM changes WHERE at_table IN ('builds', 'scans', 'findings') GROUP BY at_table, id HAVING count(*) > 1) AS twice`),
			"rows deleted twice in %s", at.name)
	}
}

// backlogOf counts tombstones that wait. Marked ones are rechecks, which a worker that
// stops leaves to the next.
const backlogOf = "SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE status = 1"

// cleaned waits until workers have finished everything everywhere: work of one database
// makes work in the next.
func (s *multiSite) cleaned(t *testing.T) {
	for _, at := range []*home{&s.main, &s.ci, &s.sec} {
		at.wait(t, time.Minute, "tombstones of "+at.name+" to be worked off",
			"NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
	}
}

// confirmed waits until the second looks have been taken in all databases.
func (s *multiSite) confirmed(t *testing.T) {
	for _, at := range s.places() {
		at.wait(t, time.Minute, "everything of "+at.name+" to be confirmed", "NOT EXISTS (SELECT FROM sexton.swept)")
	}
}

// settled expects, once all workers have stopped, that the end is that of native foreign
// keys and that nobody has to wait for what they left.
func (s *multiSite) settled(t *testing.T) {
	s.asNative(t)
	s.jobs.cleanedUp(t)
}

// hurried is cleaned for tombstones that are put off, perhaps more than once: it stands
// for that time, and wakes the worker as `sexton failures retry tombstones` does.
func (s *multiSite) hurried(t *testing.T) {
	var last time.Time
	waitUntil(t, "tombstones of main to be worked off", func() bool {
		if time.Since(last) > time.Second {
			last = time.Now()
			s.main.exec(t,
				"UPDATE loose_foreign_keys_deleted_records SET consume_after = clock_timestamp() WHERE consume_after > clock_timestamp()")
			s.main.exec(t, "SELECT pg_notify('sexton_wake', $1)", kind)
		}
		return s.main.count(t, backlogOf) == 0
	})
	s.cleaned(t)
}

// waitingTombstones are those of a database that have a reason: how many, the most
// attempts, and one of the reasons.
func (p *home) waitingTombstones(t *testing.T, parent string) (waiting, attempts int64, reason string) {
	err := p.pool.QueryRow(t.Context(), `SELECT count(*), coalesce(max(cleanup_attempts), 0), coalesce(max(last_error), '')
		FROM loose_foreign_keys_deleted_records WHERE status = 1 AND fully_qualified_table_name LIKE '%' || $1`, parent).Scan(&waiting, &attempts, &reason)
	require.NoError(t, err)
	return waiting, attempts, reason
}

// crash ends a private server as a crash would. It stays down until Restart.
func crash(t *testing.T, server *devpg.Server) {
	pid := server.PID()
	require.NoError(t, syscall.Kill(pid, syscall.SIGQUIT))
	waitUntil(t, "the server to be gone", func() bool { return syscall.Kill(pid, 0) != nil })
}

// restart starts a server that is down, or ends it as a crash would first, and forgets
// the connections to it.
func (p *home) restart(t *testing.T, server *devpg.Server) {
	require.NoError(t, server.Restart(t.Context(), devpg.Immediate))
	p.pool.Reset()
}

func waitUntil(t *testing.T, what string, holds func() bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	require.True(t, pgtest.Poll(ctx, holds), "waited in vain for %s", what)
}

// lines counts the lines of a log that have all of these texts.
func (w *runningWorker) lines(texts ...string) int {
	count := 0
	for line := range strings.Lines(w.log.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			count++
		}
	}
	return count
}
