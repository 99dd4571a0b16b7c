package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// scenario is one case while it runs.
type scenario struct {
	*twins

	rt     *rapid.T
	schema *schema
}

// exec runs SQL in one session and keeps it for the message of a failure.
func (c *scenario) exec(conn *pgx.Conn, where, sql string) {
	c.rt.Logf("%s: %s", where, sql)
	_, err := conn.Exec(c.ctx, sql)
	require.NoError(c.rt, err, "%s: %s", where, sql)
}

// control runs a script or a transaction's command in both databases.
func (c *scenario) control(sql string) {
	c.exec(c.native, "both", sql)
	_, err := c.ours.Exec(c.ctx, sql)
	require.NoError(c.rt, err, "ours: %s", sql)
}

// both runs a statement in both databases, or in none where the native one refuses it.
func (c *scenario) both(sql string) {
	if c.natively(sql) {
		c.exec(c.ours, "ours", sql)
	}
}

// natively runs a statement in the native database and reports whether that took it. Where a row is set to
// NULL in one column before it is deleted for another one, within one cascade, Postgres checks the second
// column again and refuses the whole.
func (c *scenario) natively(sql string) bool {
	open := c.native.PgConn().TxStatus() == 'T'
	if open {
		c.exec(c.native, "native", "SAVEPOINT attempt")
	}
	c.rt.Logf("native: %s", sql)
	_, err := c.native.Exec(c.ctx, sql)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "23503" {
		if open {
			c.exec(c.native, "native", "ROLLBACK TO attempt")
		}
		return false
	}
	require.NoError(c.rt, err, "native: %s", sql)
	return true
}

// row is one row as seen from outside.
type row struct {
	Table int
	Key   string
	Text  string
}

// rows returns all rows that a session sees, ordered.
func (c *scenario) rows(conn *pgx.Conn) []row {
	found, err := conn.Query(c.ctx, c.schema.content())
	require.NoError(c.rt, err)
	rows, err := pgx.CollectRows(found, pgx.RowToStructByPos[row])
	require.NoError(c.rt, err)
	return rows
}

// state is which keys of each table are alive.
type state [][]string

// live returns the keys that the native database has now: the rows that an application can still see are
// the only ones it may refer to or move, since without foreign keys nothing else stops it.
func (c *scenario) live() state {
	keys := make(state, len(c.schema.tables))
	for _, r := range c.rows(c.native) {
		keys[r.Table] = append(keys[r.Table], r.Key)
	}
	return keys
}

// workload runs some transactions, which may be rolled back as a whole or in part.
func (c *scenario) workload() {
	for range rapid.IntRange(1, 4).Draw(c.rt, "transactions") {
		c.control("BEGIN")
		for range rapid.IntRange(1, 4).Draw(c.rt, "statements") {
			if rapid.IntRange(0, 5).Draw(c.rt, "savepoint") == 0 {
				c.control("SAVEPOINT here")
				c.statement()
				c.control(rapid.SampledFrom([]string{"ROLLBACK TO here", "RELEASE here"}).Draw(c.rt, "end of savepoint"))
			}
			c.statement()
		}
		c.control(rapid.SampledFrom([]string{"COMMIT", "COMMIT", "ROLLBACK"}).Draw(c.rt, "end"))
	}
}

// statement runs one statement that both databases take.
func (c *scenario) statement() {
	live := c.live()
	at := rapid.IntRange(0, len(c.schema.tables)-1).Draw(c.rt, "table")
	t := c.schema.tables[at]
	switch rapid.SampledFrom([]string{"delete", "delete", "delete some", "delete in two tables", "delete in partition", "insert", "move", "update"}).Draw(c.rt, "statement") {
	case "delete":
		if keys := live[at]; len(keys) > 0 {
			c.both(t.delete(rapid.SampledFrom(keys).Draw(c.rt, "key")))
		}
	case "delete some":
		// By a condition, which also meets rows that natively are gone already.
		c.both(fmt.Sprintf("DELETE FROM %s WHERE note %% 4 = %d", t.sql(), rapid.IntRange(0, 3).Draw(c.rt, "remainder")))
	case "delete in two tables":
		other := (at + rapid.IntRange(1, len(c.schema.tables)-1).Draw(c.rt, "other table")) % len(c.schema.tables)
		remainder := rapid.IntRange(0, 4).Draw(c.rt, "remainder")
		c.both(fmt.Sprintf("WITH gone AS (DELETE FROM %s WHERE note %% 5 = %[2]d RETURNING note) DELETE FROM %[3]s WHERE note %% 5 = %[2]d",
			t.sql(), remainder, c.schema.tables[other].sql()))
	case "delete in partition":
		if t.partitions > 0 {
			c.both(fmt.Sprintf("DELETE FROM %s WHERE note %% 3 = 0", t.partition(rapid.IntRange(0, t.partitions-1).Draw(c.rt, "partition"))))
		}
	case "insert":
		targets := make([]*string, len(t.references))
		for i, r := range t.references {
			targets[i] = c.drawTarget(r, live)
		}
		// Rolled back or not, the key is used up.
		c.both(t.insert(t.made, targets))
		t.made++
	case "move":
		if keys := live[at]; len(keys) > 0 && len(t.references) > 0 {
			c.both(c.move(t, rapid.SampledFrom(keys).Draw(c.rt, "key"), live))
		}
	case "update":
		if keys := live[at]; len(keys) > 0 {
			c.both(t.renote(rapid.SampledFrom(keys).Draw(c.rt, "key"), rapid.IntRange(0, 9).Draw(c.rt, "note")))
		}
	}
}

// drawTarget draws a living parent, or nil for NULL.
func (c *scenario) drawTarget(r reference, live state) *string {
	keys := live[slices.Index(c.schema.tables, r.parent)]
	at := rapid.IntRange(-1, len(keys)-1).Draw(c.rt, "target")
	if at < 0 {
		return nil
	}
	return &keys[at]
}

// move gives a row new parents, in all its columns.
func (c *scenario) move(t *table, key string, live state) string {
	sets := make([]string, len(t.references))
	for i, r := range t.references {
		sets[i] = quoteName(r.column) + " = " + quoteNullable(c.drawTarget(r, live))
	}
	return fmt.Sprintf("UPDATE %s SET %s WHERE id = %s", t.sql(), strings.Join(sets, ", "), quoteText(key))
}

func (t *table) delete(keys ...string) string {
	return fmt.Sprintf("DELETE FROM %s WHERE id IN (%s)", t.sql(), quoteAll(keys))
}

func (t *table) renote(key string, note int) string {
	return fmt.Sprintf("UPDATE %s SET note = %d WHERE id = %s", t.sql(), note, quoteText(key))
}
