package integration

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// hold is a session with an open transaction on a row that the worker has to clean.
type hold struct {
	conn *pgx.Conn
	end  string
	// deletes tells that it leaves a tombstone of its own. That one bears the time at which its transaction
	// began, so it may come to stand behind others that a run has loaded already and wait for the next run.
	deletes bool
}

// conflicts deletes some last parents while other sessions have rows that depend on them locked, changed or
// moved, and returns those sessions, their transactions still open.
//
// Natively such a DELETE waits until they have committed, so in the twin they come first. Here it does not
// wait, and it is the worker who meets them.
func (c *scenario) conflicts() []hold {
	deletes, doomed := c.drawDeletes()
	deletes, candidates, survivors := c.foresee(deletes, doomed)
	var held []hold
	for _, conn := range c.holders[:rapid.IntRange(1, len(c.holders)).Draw(c.rt, "sessions")] {
		// A row that goes with what an earlier session deletes could not be moved natively any more.
		live := c.live()
		candidates = slices.DeleteFunc(candidates, func(r row) bool { return !slices.Contains(live[r.Table], r.Key) })
		if len(candidates) == 0 {
			break
		}
		at := rapid.IntRange(0, len(candidates)-1).Draw(c.rt, "held row")
		held = append(held, c.hold(conn, candidates[at], survivors))
		candidates = slices.Delete(candidates, at, at+1)
	}
	for _, sql := range deletes {
		c.both(sql)
	}
	return held
}

// drawDeletes draws statements that delete rows by their keys, and returns those keys as well.
func (c *scenario) drawDeletes() ([]string, state) {
	live, doomed := c.live(), make(state, len(c.schema.tables))
	var deletes []string
	for i, t := range c.schema.tables {
		if len(live[i]) == 0 || !c.schema.isParent(t) {
			continue
		}
		doomed[i] = rapid.SliceOfNDistinct(rapid.SampledFrom(live[i]), 0, (len(live[i])+1)/2, rapid.ID).Draw(c.rt, "last deletes")
		if len(doomed[i]) > 0 {
			deletes = append(deletes, t.delete(doomed[i]...))
		}
	}
	return deletes, doomed
}

// foresee returns those of the deletes that are possible, the rows that they change or take along, and the
// keys of the rows that stay.
func (c *scenario) foresee(deletes []string, doomed state) ([]string, []row, state) {
	before := c.rows(c.native)
	c.exec(c.native, "native", "BEGIN")
	deletes = slices.DeleteFunc(deletes, func(sql string) bool { return !c.natively(sql) })
	after, survivors := c.rows(c.native), c.live()
	c.exec(c.native, "native", "ROLLBACK")
	var affected []row
	for _, r := range before {
		if !slices.Contains(after, r) && !slices.Contains(doomed[r.Table], r.Key) {
			affected = append(affected, r)
		}
	}
	return deletes, affected, survivors
}

// hold opens a transaction on the row. What it commits is done in the twin at once.
func (c *scenario) hold(conn *pgx.Conn, r row, survivors state) hold {
	t := c.schema.tables[r.Table]
	end := rapid.SampledFrom([]string{"COMMIT", "ROLLBACK"}).Draw(c.rt, "end of session")
	h := hold{conn: conn, end: end}
	var sql string
	switch rapid.SampledFrom([]string{"lock", "share", "update", "move", "move", "delete"}).Draw(c.rt, "kind of session") {
	case "lock":
		sql = fmt.Sprintf("SELECT FROM %s WHERE id = %s FOR UPDATE", t.sql(), quoteText(r.Key))
	case "share":
		sql = fmt.Sprintf("SELECT FROM %s WHERE id = %s FOR KEY SHARE", t.sql(), quoteText(r.Key))
	case "update":
		sql = t.renote(r.Key, 100)
	case "move":
		// To parents that live on in any case: one that is deleted at the same time could not be chosen
		// natively, and here nothing can stop it.
		sql = c.move(t, r.Key, survivors)
	case "delete":
		// Of rows that go anyway, so that no session takes away what another one moves to.
		if slices.Contains(survivors[r.Table], r.Key) {
			sql = t.renote(r.Key, 200)
			break
		}
		sql = t.delete(r.Key)
		h.deletes = end == "COMMIT"
	}
	if end == "COMMIT" && !c.natively(sql) {
		h.end, h.deletes = "ROLLBACK", false
	}
	c.exec(conn, "session", "BEGIN")
	c.exec(conn, "session, "+h.end+" later", sql)
	return h
}

// blockersSQL lists the sessions that others wait for.
const blockersSQL = `
SELECT DISTINCT blocker
FROM pg_stat_activity AS waiting
CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS blocker
WHERE waiting.datname = current_database() AND waiting.wait_event_type = 'Lock'`

// releaseWhenAwaited ends each transaction when the worker waits for it, and the rest when it has ended. It
// returns how it ended.
func releaseWhenAwaited[T any](c *scenario, held []hold, ended <-chan T) T {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case end := <-ended:
			for _, h := range held {
				c.exec(h.conn, "session, the worker has ended", h.end)
			}
			return end
		case <-tick.C:
		}
		found, err := c.watcher.Query(c.ctx, blockersSQL)
		require.NoError(c.rt, err)
		blockers, err := pgx.CollectRows(found, pgx.RowTo[uint32])
		require.NoError(c.rt, err)
		held = slices.DeleteFunc(held, func(h hold) bool {
			if !slices.Contains(blockers, h.conn.PgConn().PID()) {
				return false
			}
			c.exec(h.conn, "session, the worker waits", h.end)
			return true
		})
	}
}
