package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
)

// interleaving is the course of the transactions that overlap a deletion, and of the
// worker's runs between them.
type interleaving struct {
	*scenario

	sessions []*session
	// deleting are the transactions of the last deletions.
	deleting []*session
	// behind reports that tombstones may have been committed behind what a run had come
	// to.
	behind bool
}

// drawInterleaving draws the sessions and the last deletions and runs all of that in the
// twin.
func (c *scenario) drawInterleaving() *interleaving {
	x := &interleaving{scenario: c}
	f := c.drawDeletes()
	for i := range rapid.SampledFrom([]int{2, 1, 3, 0}).Draw(c.rt, "sessions") {
		s := c.drawSession(f, c.others[i], c.lane.name+"_"+string(rune('a'+i)))
		if len(s.early)+len(s.late) > 0 {
			x.sessions = append(x.sessions, s)
		}
	}
	x.deleting = []*session{{conn: c.main, begin: "BEGIN", end: "COMMIT", deletes: true}}
	if len(f.deletes) > 1 && rapid.IntRange(0, 2).Draw(c.rt, "two deleting sessions") == 2 {
		slow := &session{conn: c.others[len(c.others)-1], begin: "BEGIN", end: "COMMIT", deletes: true}
		slow.endAt = rapid.IntRange(0, stages-1).Draw(c.rt, "end of the second")
		x.deleting = append(x.deleting, slow)
		c.mix.count("deletions overlap")
	}
	for i, sql := range f.deletes {
		if !c.natively(sql) {
			continue
		}
		s := x.deleting[i%len(x.deleting)]
		if rapid.IntRange(0, 5).Draw(c.rt, "undone") == 5 {
			s.early = append(s.early, "SAVEPOINT step", sql, "ROLLBACK TO step")
		}
		s.early = append(s.early, sql)
	}
	c.look()
	if len(x.sessions) > 0 {
		c.mix.count("case with sessions")
	}
	return x
}

// run plays the interleaving in our database, with the worker's runs between its stages.
func (x *interleaving) run() {
	x.flush()
	for _, s := range x.sessions {
		x.arrive(s)
	}
	for _, s := range x.deleting {
		x.arrive(s)
	}
	for stage := range stages {
		x.reach(stage)
		if stage == stages-1 || !slices.ContainsFunc(x.all(), func(s *session) bool { return !s.over }) {
			break
		}
		x.behind = x.behind || slices.ContainsFunc(x.open(), func(s *session) bool { return s.deletes })
		x.pass(x.open())
		if !x.behind {
			pending, _ := x.left()
			require.Zero(x.rt, pending, "tombstones are left after the run")
			x.expectNoOrphans()
		}
	}
	x.finish()
}

// expectNoOrphans expects that no row has lost a parent, whoever had it locked, unless
// there are late children already: those wait for the second look, which comes when all
// older transactions have ended.
func (x *interleaving) expectNoOrphans() {
	if slices.ContainsFunc(x.all(), func(s *session) bool { return s.arrived && len(s.late) > 0 }) {
		return
	}
	x.mix.count("look for orphans while sessions are open")
	found := x.exec(x.main, "ours", "EXECUTE orphans")
	require.Equal(x.rt, "0", string(found[0].Rows[0][0]), "children are left after the run")
}

// finish runs the worker when everybody has gone. One run is enough, but for tombstones
// behind an earlier one, and where something that is not of this test had a transaction
// open in the database while the run looked at its horizons.
func (x *interleaving) finish() {
	x.pass(nil)
	const most = 3
	for range most {
		pending, unconfirmed := x.left()
		switch {
		case pending > 0 && x.behind:
			x.mix.count("run for tombstones that came late")
		case pending == 0 && unconfirmed > 0:
			x.mix.count(shutOut)
		default:
			return
		}
		x.pass(nil)
	}
}

func (x *interleaving) all() []*session { return slices.Concat(x.deleting, x.sessions) }

// open are the sessions whose transactions have not ended.
func (x *interleaving) open() []*session {
	return slices.DeleteFunc(x.all(), func(s *session) bool { return s.over })
}

// arrive begins a transaction and runs what comes before the deletion.
func (x *interleaving) arrive(s *session) {
	begin := []string{s.begin}
	if s.name != "" {
		// Whoever has notified cannot prepare.
		begin = append(begin, "SET LOCAL sexton.notify = off")
	}
	x.exec(s.conn, "session", strings.Join(append(begin, s.early...), ";\n"))
}

// reach brings every session to a stage.
func (x *interleaving) reach(stage int) {
	for _, s := range x.open() {
		if stage >= s.lateAt {
			x.comeLate(s)
		}
		if stage >= s.endAt {
			x.end(s)
		}
	}
}

// comeLate runs what comes after the deletion.
func (c *scenario) comeLate(s *session) {
	if s.arrived {
		return
	}
	s.arrived = true
	script := s.late
	if s.name != "" {
		script = append(slices.Clone(script), "PREPARE TRANSACTION "+quoteText(s.name))
	}
	if len(script) > 0 {
		c.exec(s.conn, "session, late", strings.Join(script, ";\n"))
	}
}

func (c *scenario) end(s *session) {
	c.comeLate(s)
	s.over = true
	end := s.end
	if s.name != "" {
		end += " PREPARED " + quoteText(s.name)
	}
	c.exec(s.conn, "session", end)
}

// pass runs the worker once. A session that it waits for ends, and with that the wait.
func (c *scenario) pass(open []*session) *loosefk.Stats {
	type ending struct {
		report jobrun.Report
		err    error
	}
	open = slices.Clone(open)
	ended := make(chan ending, 1)
	go func() {
		report, err := c.worker.run(c.ctx, c.defs)
		ended <- ending{report, err}
		close(ended)
	}()
	var end ending
	pause, patience := watchEvery, time.After(watchFor)
	for done := false; !done; {
		if len(open) == 0 {
			end = <-ended
			break
		}
		select {
		case end = <-ended:
			done = true
		case <-time.After(pause):
			pause = min(2*pause, watchSeldom)
			for _, s := range c.awaited(open) {
				c.mix.count("worker waits for a session")
				c.end(s)
				pause = watchEvery
			}
			open = slices.DeleteFunc(open, func(s *session) bool { return s.over })
		case <-patience:
			for _, s := range open {
				c.end(s)
			}
			open = nil
		}
	}
	c.mix.runs++
	require.NoError(c.rt, end.err)
	stats := &loosefk.Stats{}
	require.NoError(c.rt, json.Unmarshal(end.report.Stats, stats))
	// Where rapid cannot make the case fail again it leaves out what is told to it.
	if end.report.Outcome != jobrun.Done || len(stats.Errors) > 0 {
		c.logf("a run was %s: %s, statistics %s", end.report.Outcome, end.report.Reason, end.report.Stats)
	}
	require.Equal(c.rt, jobrun.Done, end.report.Outcome)
	require.Empty(c.rt, stats.Errors, "errors of a run")
	c.mix.add("late children found", int(stats.LateChildren))
	c.mix.add("tombstones", int(stats.Processed))
	return stats
}

// watchEvery is how soon somebody looks whether the worker waits; if it does not, the
// next look takes twice as long, up to watchSeldom. A wait of the worker lasts 200 ms and
// comes back after seconds: on a busy machine all looks may fall between two waits, so
// that the sessions end after watchFor. That is before a statement has waited for its
// whole time, which is an error of the run: the settings of the test give a lock no less
// time than the statement, so that Postgres cannot say that it was a lock.
const (
	watchEvery  = 2 * time.Millisecond
	watchSeldom = 100 * time.Millisecond
	watchFor    = 3 * time.Second
)

// blockersSQL lists the sessions that others in this database wait for; 0 is a prepared
// transaction.
const blockersSQL = `
SELECT DISTINCT blocker
FROM pg_locks AS wanted
JOIN pg_stat_activity AS waiting ON waiting.pid = wanted.pid AND waiting.datname = current_database()
CROSS JOIN LATERAL unnest(pg_blocking_pids(wanted.pid)) AS blocker
WHERE NOT wanted.granted`

// awaited are those of the sessions that the worker waits for.
func (c *scenario) awaited(open []*session) []*session {
	found, err := c.watcher.Query(c.ctx, blockersSQL, pgx.QueryExecModeCacheStatement)
	require.NoError(c.rt, err)
	blockers, err := pgx.CollectRows(found, pgx.RowTo[uint32])
	require.NoError(c.rt, err)
	var awaited []*session
	for _, s := range open {
		pid := s.conn.PgConn().PID()
		if s.name != "" && s.arrived {
			pid = 0
		}
		if slices.Contains(blockers, pid) {
			awaited = append(awaited, s)
		}
	}
	return awaited
}
