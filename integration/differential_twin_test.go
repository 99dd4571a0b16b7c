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

// scenario is one schema and the state of its cases.
//
// The expected result comes from a twin: a database with native foreign keys (and
// triggers for actions that foreign keys do not have), in which the same transactions run
// one after the other. Every statement uses only rows that exist in the twin, because an
// application may refer only to existing rows. In the database without foreign keys,
// nothing else enforces this.
//
// Transactions that overlap a deletion run before it in the twin, regardless of the order
// in which they really insert, commit and delete. Postgres would enforce that order: the
// insert of a child locks the parent until the transaction ends, and the DELETE waits. So
// a late child of a deleted parent must be deleted, or its column must be NULL or its
// state changed, exactly as if the parent had been deleted after the insert. This is
// stricter than necessary, because natively the insert might also come later and fail.
// But there is one correct result, so rows can be compared one by one.
//
// Therefore overlapping transactions must not interfere except through parents and
// children. No two of these transactions change the same row. None of them refers to rows
// that a transaction before it in the twin has deleted. After the worker may have run,
// they change only rows that no deletion affects.
type scenario struct {
	*pair

	rt     *rapid.T
	schema *schema
	// alive holds the rows that currently exist in the twin.
	alive []row
	// referred holds the rows that any row has ever referred to.
	referred map[rowID]bool
	// script holds the statements that our database has not run yet.
	script strings.Builder
}

// rowID identifies a row by the number of its table and its own number.
type rowID struct{ table, number int }

// row is one row as a session sees it.
type row struct {
	rowID

	// marked is true if the deletion of a parent has changed the row's state. The row
	// still refers to that parent, and the test must not give it another one: our
	// database may not have changed the state yet, and the new parent would prevent the
	// change.
	marked bool
	text   string
}

// exec runs a script in one session and logs it.
func (c *scenario) exec(conn *pgx.Conn, where, sql string) []*pgconn.Result {
	c.rt.Logf("%s: %s", where, sql)
	results, err := conn.PgConn().Exec(c.ctx, sql).ReadAll()
	require.NoError(c.rt, err, "%s: %s", where, sql)
	return results
}

// queueSQL adds SQL to the script for our database. It is used if no result is needed.
func (c *scenario) queueSQL(sql string) { c.script.WriteString(sql + ";\n") }

// flush runs the queued script in our database.
func (c *scenario) flush() {
	if c.script.Len() > 0 {
		c.exec(c.main, "ours", c.script.String())
		c.script.Reset()
	}
}

// runControl runs a transaction command in both databases.
func (c *scenario) runControl(sql string) {
	c.exec(c.native, "native", sql)
	c.queueSQL(sql)
}

// runInBoth runs a statement in both databases, or in neither if the native foreign keys
// refuse it.
func (c *scenario) runInBoth(sql string) {
	if c.runNatively(sql) {
		c.queueSQL(sql)
		c.readTwinAfter(sql)
	}
}

// runNatively runs a statement in the native database and reports whether the foreign
// keys allowed it. Postgres also refuses a cascade that sets one column of a row to NULL
// and then deletes the row because of a second column, because it checks the second
// column again.
func (c *scenario) runNatively(sql string) bool {
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

// readTwin reads the rows of the twin.
func (c *scenario) readTwin() { c.alive = c.rows(c.native) }

// readTwinAfter reads the rows of the twin if the statement may have deleted further
// rows.
func (c *scenario) readTwinAfter(sql string) {
	if strings.Contains(sql, "DELETE") {
		c.readTwin()
	}
}

// rows returns all rows that a session sees, ordered.
func (c *scenario) rows(conn *pgx.Conn) []row {
	results := pgtest.Must(conn.PgConn().Exec(c.ctx, "EXECUTE content").ReadAll())(c.rt)
	rows := make([]row, len(results[0].Rows))
	for i, values := range results[0].Rows {
		table := pgtest.Must(strconv.Atoi(string(values[0])))(c.rt)
		number := pgtest.Must(strconv.Atoi(string(values[1])))(c.rt)
		rows[i] = row{rowID: rowID{table, number}, marked: string(values[2]) == "t", text: string(values[3])}
	}
	return rows
}

// numbers returns the numbers of a table's rows in the twin.
func (c *scenario) numbers(table int) []int {
	var numbers []int
	for _, r := range c.alive {
		if r.table == table {
			numbers = append(numbers, r.number)
		}
	}
	return numbers
}

// compare requires that no tombstones and no rechecks are left, and that both databases
// have equal rows.
func (c *scenario) compare() {
	pending, unchecked := c.countLeft()
	require.Zero(c.rt, pending, "tombstones are left after the run")
	if unchecked > 0 {
		require.Zero(c.rt, unchecked, "parents have not been rechecked; sessions: %s", c.inTransaction())
	}
	require.Equal(c.rt, c.lines(c.native), c.lines(c.main), "rows differ from what native foreign keys leave")
}

// countLeft returns the numbers of tombstones and of batches that have not been
// rechecked.
func (c *scenario) countLeft() (pending, unchecked int64) {
	const sql = "SELECT (SELECT count(*) FROM public.loose_foreign_keys_deleted_records), (SELECT count(*) FROM sexton.swept)"
	require.NoError(c.rt, c.main.QueryRow(c.ctx, sql).Scan(&pending, &unchecked))
	return pending, unchecked
}

// inTransaction describes the sessions with open transactions, which delay rechecks.
func (c *scenario) inTransaction() string {
	var sessions string
	const sql = `SELECT coalesce(string_agg(activity::text, E'\n'), 'none') FROM pg_stat_activity AS activity
		WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()`
	require.NoError(c.rt, c.main.QueryRow(c.ctx, sql).Scan(&sessions))
	return sessions
}

// lines returns the rows that a session sees as text for failure messages.
func (c *scenario) lines(conn *pgx.Conn) []string {
	lines := []string{}
	for _, r := range c.rows(conn) {
		lines = append(lines, fmt.Sprintf("%s %s", c.schema.tables[r.table].sql(), r.text))
	}
	return lines
}

// copyRows returns copies of alive and referred.
func (c *scenario) copyRows() (alive []row, referred map[rowID]bool) {
	return slices.Clone(c.alive), maps.Clone(c.referred)
}
