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

// interleaving is the order of the transactions that overlap a deletion, and of the
// worker's runs between their stages.
type interleaving struct {
	*scenario

	sessions []*session
	// deleting holds the sessions that run the last deletions.
	deleting []*session
	// mayHaveSkipped is true if tombstones may have been committed that sort before
	// tombstones that a run had already read.
	mayHaveSkipped bool
}

// drawInterleaving draws the sessions and the last deletions, and runs them in the twin.
func (c *scenario) drawInterleaving() *interleaving {
	x := &interleaving{scenario: c}
	f := c.drawDeletes()
	for i := range rapid.SampledFrom([]int{2, 1, 3, 0}).Draw(c.rt, "sessions") {
		s := c.drawSession(f, c.overlapping[i], c.pair.name+"_"+string(rune('a'+i)))
		if len(s.early)+len(s.late) > 0 {
			x.sessions = append(x.sessions, s)
		}
	}
	x.deleting = []*session{{conn: c.main, begin: "BEGIN", end: "COMMIT", deletes: true}}
	if len(f.deletes) > 1 && rapid.IntRange(0, 2).Draw(c.rt, "two deleting sessions") == 2 {
		slow := &session{conn: c.overlapping[len(c.overlapping)-1], begin: "BEGIN", end: "COMMIT", deletes: true}
		slow.endAt = rapid.IntRange(0, stages-1).Draw(c.rt, "end of the second")
		x.deleting = append(x.deleting, slow)
		c.mix.count("deletions overlap")
	}
	for i, sql := range f.deletes {
		if !c.runNatively(sql) {
			continue
		}
		s := x.deleting[i%len(x.deleting)]
		if rapid.IntRange(0, 5).Draw(c.rt, "undone") == 5 {
			s.early = append(s.early, "SAVEPOINT step", sql, "ROLLBACK TO step")
		}
		s.early = append(s.early, sql)
	}
	c.readTwin()
	if len(x.sessions) > 0 {
		c.mix.count("case with sessions")
	}
	return x
}

// run runs the interleaving in our database, with one run of the worker after each stage.
func (x *interleaving) run() {
	x.flush()
	for _, s := range x.sessions {
		x.beginSession(s)
	}
	for _, s := range x.deleting {
		x.beginSession(s)
	}
	for stage := range stages {
		x.advance(stage)
		if stage == stages-1 || !slices.ContainsFunc(x.allSessions(), func(s *session) bool { return !s.ended }) {
			break
		}
		x.mayHaveSkipped = x.mayHaveSkipped || slices.ContainsFunc(x.openSessions(), func(s *session) bool { return s.deletes })
		x.runPass(x.openSessions())
		if !x.mayHaveSkipped {
			pending, _ := x.countLeft()
			require.Zero(x.rt, pending, "tombstones are left after the run")
			x.requireNoOrphans()
		}
	}
	x.finish()
}

// requireNoOrphans requires that no row refers to a deleted parent, even if a session had
// locked the row. It checks nothing if late children have been inserted: they wait for
// the recheck, which runs after all older transactions have ended.
func (x *interleaving) requireNoOrphans() {
	if slices.ContainsFunc(x.allSessions(), func(s *session) bool { return s.lateDone && len(s.late) > 0 }) {
		return
	}
	x.mix.count("check for orphans while sessions are open")
	found := x.exec(x.main, "ours", "EXECUTE orphans")
	require.Equal(x.rt, "0", string(found[0].Rows[0][0]), "children are left after the run")
}

// finish runs the worker after all sessions have ended. One run must be enough, with two
// exceptions: a tombstone that an earlier run may have skipped, and a session of another
// program that had an open transaction in the database during the run.
func (x *interleaving) finish() {
	x.runPass(nil)
	const most = 3
	for range most {
		pending, unchecked := x.countLeft()
		switch {
		case pending > 0 && x.mayHaveSkipped:
			x.mix.count("run for late tombstones")
		case pending == 0 && unchecked > 0:
			x.mix.count(lateRecheck)
		default:
			return
		}
		x.runPass(nil)
	}
}

func (x *interleaving) allSessions() []*session { return slices.Concat(x.deleting, x.sessions) }

// openSessions returns the sessions whose transactions have not ended.
func (x *interleaving) openSessions() []*session {
	return slices.DeleteFunc(x.allSessions(), func(s *session) bool { return s.ended })
}

// beginSession begins a transaction and runs its statements from before the deletion.
func (x *interleaving) beginSession(s *session) {
	begin := []string{s.begin}
	if s.name != "" {
		// A transaction that executed NOTIFY cannot be prepared.
		begin = append(begin, "SET LOCAL sexton.notify = off")
	}
	x.exec(s.conn, "session", strings.Join(append(begin, s.early...), ";\n"))
}

// advance runs the statements of all sessions that belong to a stage.
func (x *interleaving) advance(stage int) {
	for _, s := range x.openSessions() {
		if stage >= s.lateAt {
			x.runLate(s)
		}
		if stage >= s.endAt {
			x.endSession(s)
		}
	}
}

// runLate runs a session's statements from after the deletion, and prepares the
// transaction if it has a name.
func (c *scenario) runLate(s *session) {
	if s.lateDone {
		return
	}
	s.lateDone = true
	script := s.late
	if s.name != "" {
		script = append(slices.Clone(script), "PREPARE TRANSACTION "+quoteText(s.name))
	}
	if len(script) > 0 {
		c.exec(s.conn, "session, late", strings.Join(script, ";\n"))
	}
}

func (c *scenario) endSession(s *session) {
	c.runLate(s)
	s.ended = true
	end := s.end
	if s.name != "" {
		end += " PREPARED " + quoteText(s.name)
	}
	c.exec(s.conn, "session", end)
}

// runPass runs the worker once. It ends sessions for which the worker waits.
func (c *scenario) runPass(open []*session) *loosefk.Stats {
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
	pause, giveUp := watchEvery, time.After(watchFor)
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
			for _, s := range c.findBlockers(open) {
				c.mix.count("worker waits for a session")
				c.endSession(s)
				pause = watchEvery
			}
			open = slices.DeleteFunc(open, func(s *session) bool { return s.ended })
		case <-giveUp:
			for _, s := range open {
				c.endSession(s)
			}
			open = nil
		}
	}
	c.mix.runs++
	require.NoError(c.rt, end.err)
	stats := &loosefk.Stats{}
	require.NoError(c.rt, json.Unmarshal(end.report.Stats, stats))
	// The statistics go to the log of the test, because rapid omits the output of rapid.T
	// if it cannot reproduce a failure.
	if end.report.Outcome != jobrun.Done || len(stats.Errors) > 0 {
		c.logf("a run was %s: %s, statistics %s", end.report.Outcome, end.report.Reason, end.report.Stats)
	}
	require.Equal(c.rt, jobrun.Done, end.report.Outcome)
	require.Empty(c.rt, stats.Errors, "errors of a run")
	c.mix.add("late children found", int(stats.LateChildren))
	c.mix.add("tombstones", int(stats.Processed))
	return stats
}

// watchEvery is the first interval at which runPass checks whether the worker waits for a
// session. The interval doubles up to watchSeldom. The worker waits for a lock for 200 ms
// and tries again seconds later, so on a busy machine all checks may miss these waits.
// Therefore runPass ends all sessions after watchFor.
//
// watchFor is shorter than the timeout of a statement, which would be an error of the
// run: in this test the lock timeout equals the statement timeout, so Postgres cannot
// report a lock timeout first.
const (
	watchEvery  = 2 * time.Millisecond
	watchSeldom = 100 * time.Millisecond
	watchFor    = 3 * time.Second
)

// blockersSQL returns the ids of the sessions for which other sessions of this database
// wait. 0 stands for a prepared transaction.
const blockersSQL = `
SELECT DISTINCT blocker
FROM pg_locks AS wanted
JOIN pg_stat_activity AS waiting ON waiting.pid = wanted.pid AND waiting.datname = current_database()
CROSS JOIN LATERAL unnest(pg_blocking_pids(wanted.pid)) AS blocker
WHERE NOT wanted.granted`

// findBlockers returns those open sessions for which the worker waits.
func (c *scenario) findBlockers(open []*session) []*session {
	found, err := c.watcher.Query(c.ctx, blockersSQL, pgx.QueryExecModeCacheStatement)
	require.NoError(c.rt, err)
	blockers, err := pgx.CollectRows(found, pgx.RowTo[uint32])
	require.NoError(c.rt, err)
	var awaited []*session
	for _, s := range open {
		pid := s.conn.PgConn().PID()
		if s.name != "" && s.lateDone {
			pid = 0
		}
		if slices.Contains(blockers, pid) {
			awaited = append(awaited, s)
		}
	}
	return awaited
}
