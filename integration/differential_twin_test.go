package integration

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/pgtest"
)

// scenario is one schema with its cases while they run.
//
// The oracle is a twin: a database with native foreign keys (and triggers for what
// Postgres has no foreign key for), in which the same transactions run one after the
// other. Every statement is drawn from what is alive in the twin, because that is what an
// application may still refer to; without foreign keys nothing else stops it.
//
// Transactions that overlap a deletion come before it in the twin, whatever the order in
// which they really insert, commit and delete. Postgres itself would bring them into that
// order: a child's insertion holds a lock on the parent until its transaction ends, and
// the DELETE waits. So a late child of a deleted parent must be gone, or its column NULL
// or its state changed, exactly as if the parent had been deleted after it was there.
// That is stricter than it would have to be, as natively the insertion might also come
// too late and be refused; there is one right outcome, so rows can be compared one by
// one.
//
// For there to be one, overlapping transactions keep out of each other's way but for
// parents and children. No two of them touch the same row; those with a rank in the twin
// do not refer to what one of a lower rank has deleted; and once the worker may have come
// by, they touch only rows that nobody's deletion reaches.
type scenario struct {
	*lane

	rt     *rapid.T
	schema *schema
	// alive are the rows of the twin.
	alive []row
	// referred are rows that something has ever referred to.
	referred map[place]bool
	// script is what our database still has to run.
	script strings.Builder
}

// place says which row it is: by its table's number and its own.
type place struct{ table, number int }

// row is one row as seen from outside.
type row struct {
	place

	// marked reports that the deletion of a parent has changed its state. It still refers
	// to that parent, and our database may not have noticed yet: there, giving it another
	// one would spare it the mark.
	marked bool
	text   string
}

// exec runs a script in one session and keeps it for the message of a failure.
func (c *scenario) exec(conn *pgx.Conn, where, sql string) []*pgconn.Result {
	c.rt.Logf("%s: %s", where, sql)
	results, err := conn.PgConn().Exec(c.ctx, sql).ReadAll()
	require.NoError(c.rt, err, "%s: %s", where, sql)
	return results
}

// ours notes SQL for our database, where nothing depends on its result.
func (c *scenario) ours(sql string) { c.script.WriteString(sql + ";\n") }

// flush runs what our database has to catch up with.
func (c *scenario) flush() {
	if c.script.Len() > 0 {
		c.exec(c.main, "ours", c.script.String())
		c.script.Reset()
	}
}

// control runs a transaction's command in both databases.
func (c *scenario) control(sql string) {
	c.exec(c.native, "native", sql)
	c.ours(sql)
}

// both runs a statement in both databases, or in none where the native one refuses it.
func (c *scenario) both(sql string) {
	if c.natively(sql) {
		c.ours(sql)
		c.lookAfter(sql)
	}
}

// natively runs a statement in the native database and reports whether that took it.
// Where a row is set to NULL in one column before it is deleted for another one, within
// one cascade, Postgres checks the second column again and refuses the whole.
func (c *scenario) natively(sql string) bool {
	attempt := sql
	open := c.native.PgConn().TxStatus() == 'T'
	if open {
		attempt = "SAVEPOINT attempt; " + sql
	}
	c.rt.Logf("native: %s", attempt)
	_, err := c.native.PgConn().Exec(c.ctx, attempt).ReadAll()
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "23503" {
		c.mix.count("refused natively")
		if open {
			c.exec(c.native, "native", "ROLLBACK TO attempt")
		}
		return false
	}
	require.NoError(c.rt, err, "native: %s", sql)
	return true
}

// look reads what is alive in the twin.
func (c *scenario) look() { c.alive = c.rows(c.native) }

// lookAfter looks where a statement may have taken rows along.
func (c *scenario) lookAfter(sql string) {
	if strings.Contains(sql, "DELETE") {
		c.look()
	}
}

// rows returns all rows that a session sees, ordered.
func (c *scenario) rows(conn *pgx.Conn) []row {
	results := pgtest.Must(conn.PgConn().Exec(c.ctx, "EXECUTE content").ReadAll())(c.rt)
	rows := make([]row, len(results[0].Rows))
	for i, values := range results[0].Rows {
		table := pgtest.Must(strconv.Atoi(string(values[0])))(c.rt)
		number := pgtest.Must(strconv.Atoi(string(values[1])))(c.rt)
		rows[i] = row{place: place{table, number}, marked: string(values[2]) == "t", text: string(values[3])}
	}
	return rows
}

// numbers are the living rows of a table.
func (c *scenario) numbers(table int) []int {
	var numbers []int
	for _, r := range c.alive {
		if r.table == table {
			numbers = append(numbers, r.number)
		}
	}
	return numbers
}

// compare expects an empty backlog, nothing left to be confirmed, and equal tables.
func (c *scenario) compare() {
	pending, unconfirmed := c.left()
	require.Zero(c.rt, pending, "tombstones are left after the run")
	if unconfirmed > 0 {
		require.Zero(c.rt, unconfirmed, "parents still wait for their second look; sessions: %s", c.inTransaction())
	}
	require.Equal(c.rt, c.lines(c.native), c.lines(c.main), "rows differ from what native foreign keys leave")
}

// left counts the tombstones, and the batches that are not confirmed yet.
func (c *scenario) left() (pending, unconfirmed int64) {
	const sql = "SELECT (SELECT count(*) FROM public.loose_foreign_keys_deleted_records), (SELECT count(*) FROM sexton.swept)"
	require.NoError(c.rt, c.main.QueryRow(c.ctx, sql).Scan(&pending, &unconfirmed))
	return pending, unconfirmed
}

// inTransaction describes the sessions that keep parents from being confirmed.
func (c *scenario) inTransaction() string {
	var sessions string
	const sql = `SELECT coalesce(string_agg(activity::text, E'\n'), 'none') FROM pg_stat_activity AS activity
		WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()`
	require.NoError(c.rt, c.main.QueryRow(c.ctx, sql).Scan(&sessions))
	return sessions
}

// lines are the rows that a session sees, as a failure is to show them.
func (c *scenario) lines(conn *pgx.Conn) []string {
	lines := []string{}
	for _, r := range c.rows(conn) {
		lines = append(lines, fmt.Sprintf("%s %s", c.schema.tables[r.table].sql(), r.text))
	}
	return lines
}

// keep takes the twin's rows for later.
func (c *scenario) keep() (alive []row, referred map[place]bool) {
	return slices.Clone(c.alive), maps.Clone(c.referred)
}
