package retention_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/definitions"
	"sexton/internal/pgtest"
	"sexton/internal/retention"
)

// drawnSchema describes random tables with rules (t0, t1, …) and tables below them (c0,
// c1, …). raw holds the DELETE statements that the rules must be equal to.
type drawnSchema struct {
	ddl    strings.Builder
	tables []string
	rules  []retention.Rule
	raw    []string
}

// drawSchema draws random tables with rows, and rules for them.
func drawSchema(t *rapid.T) *drawnSchema {
	s := &drawnSchema{}
	rows := map[string]int{}
	add := func(table, columns, suffix, key string, n int, values func(id int) string) {
		s.tables, rows[table] = append(s.tables, table), n
		fmt.Fprintf(&s.ddl, "CREATE TABLE %s (id bigint PRIMARY KEY, note text, %s) %s;\n", table, columns, suffix)
		if suffix != "" {
			fmt.Fprintf(&s.ddl,
				"CREATE TABLE %[1]s_0 PARTITION OF %[1]s FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE %[1]s_1 PARTITION OF %[1]s FOR VALUES WITH (MODULUS 2, REMAINDER 1);\n", table)
		}
		if key != "" {
			fmt.Fprintf(&s.ddl, "CREATE INDEX ON %s (%s);\n", table, key)
		}
		for id := 1; id <= n; id++ {
			fmt.Fprintf(&s.ddl, "INSERT INTO %s VALUES (%d, '', %s);\n", table, id, values(id))
		}
	}
	for number := range rapid.IntRange(1, 2).Draw(t, "tables") {
		kind := rapid.SampledFrom([]string{"timestamptz", "timestamp", "date", "bigint"}).Draw(t, "type")
		value := map[string]string{
			"timestamptz": "now() - interval '%d days'", "timestamp": "timezone('UTC', now()) - interval '%d days'",
			"date":   "timezone('UTC', now())::date - %d",
			"bigint": "(extract(epoch FROM now())::bigint - 86400 * %d)",
		}[kind]
		columns, suffix, key := "at "+kind+", done boolean", "", ""
		if rapid.Bool().Draw(t, "parted") {
			suffix = "PARTITION BY HASH (id)"
		}
		if rapid.Bool().Draw(t, "indexed") {
			key = "at"
		}
		self := rapid.Bool().Draw(t, "refers to itself")
		if self {
			columns += ", parent_id bigint"
		}
		table := fmt.Sprintf("t%d", number)
		n := rapid.IntRange(0, 40).Draw(t, "rows")
		add(table, columns, suffix, key, n, func(int) string {
			at := "NULL"
			if days := rapid.IntRange(0, 40).Draw(t, "days"); days > 0 {
				at = fmt.Sprintf(value, 10*days) // The value is 5 days away from the nearest cutoff.
			}
			values := fmt.Sprintf("%s, %t", at, rapid.Bool().Draw(t, "done"))
			if self {
				values += ", nullif(" + fmt.Sprint(rapid.IntRange(0, n).Draw(t, "parent")) + ", 0)"
			}
			return values
		})
		if self {
			fmt.Fprintf(&s.ddl,
				"CREATE INDEX ON %[1]s (parent_id); ALTER TABLE %[1]s ADD FOREIGN KEY (parent_id) REFERENCES %[1]s ON DELETE CASCADE;\n", table)
		}
		rule := retention.Rule{
			Table: "drawn." + table, Column: "at",
			Keep: time.Duration(10*rapid.IntRange(0, 40).Draw(t, "keep")+5) * day,
		}
		raw := fmt.Sprintf("DELETE FROM raw.%s WHERE at < "+value, table, int(rule.Keep/day))
		if kind == "bigint" {
			rule.Unit = "s"
		}
		if rapid.Bool().Draw(t, "some") {
			rule.Conditions = []definitions.Condition{{Column: "done", Value: "true"}}
			raw += " AND done"
		}
		s.rules, s.raw = append(s.rules, rule), append(s.raw, raw)
	}
	for number := range rapid.IntRange(0, 3).Draw(t, "tables below") {
		parent := rapid.SampledFrom(s.tables).Draw(t, "of")
		action := rapid.SampledFrom([]string{"CASCADE", "SET NULL"}).Draw(t, "action")
		add(fmt.Sprintf("c%d", number), fmt.Sprintf("parent_id bigint REFERENCES %s ON DELETE %s", parent, action), "",
			"parent_id",
			rapid.IntRange(0, 60).Draw(t, "rows"), func(int) string {
				return fmt.Sprintf("nullif(%d, 0)", rapid.IntRange(0, rows[parent]).Draw(t, "parent"))
			})
	}
	return s
}

// A rule leaves the same rows as one DELETE, even if workers are killed and an
// application updates rows.
func TestRandomSchemaEqualsOneDelete(t *testing.T) {
	t.Parallel()
	db := setup(t, "")
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSchema(rt)
		for _, schema := range []string{"drawn", "raw"} {
			db.Exec(fmt.Sprintf("DROP SCHEMA IF EXISTS %[1]s CASCADE; CREATE SCHEMA %[1]s; SET search_path = %[1]s; SET client_min_messages = warning; %[2]s RESET search_path", schema, s.ddl.String()))
		}
		for _, sql := range s.raw {
			db.Exec(sql)
		}
		stop := startUpdates(t, db.URL, s.tables)
		kills := rapid.IntRange(0, 3).Draw(rt, "kills")
		for again := true; again; kills-- {
			db.Exec("UPDATE sexton.leases SET expires_at = now()")
			session, end := db.Session(t, "retention")
			e := engineOn(rt, db, session, s.rules...)
			if kills > 0 {
				left := rapid.IntRange(0, 6).Draw(rt, "killed after")
				kill := db.KillOnce(session.Conn)
				e.Progress = func(context.Context, *retention.Stats) {
					if left--; left < 0 {
						kill()
					}
				}
			}
			stats, err := e.Run(t.Context())
			if again = kills > 0; !again {
				require.NoError(rt, err)
				require.Empty(rt, stats.Errors)
				// Rows that the application was updating are left for the next pass.
				again = len(stats.Kept) > 0
			}
			end()
			if !again {
				break
			}
		}
		stop()
		for _, table := range s.tables {
			const rows = "SELECT to_jsonb(r) - 'note' - 'at' FROM %s.%s AS r ORDER BY id"
			require.Equal(rt, db.Rows(fmt.Sprintf(rows, "raw", table)), db.Rows(fmt.Sprintf(rows, "drawn", table)),
				"%s\n%v\n%s", table, s.rules, s.ddl.String())
		}
	})
}

// startUpdates starts a session that updates rows of the tables in short transactions,
// like an application, until stop is called.
func startUpdates(t *testing.T, url string, tables []string) (stop func()) {
	conn := pgtest.Connect(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = conn.Exec(context.WithoutCancel(ctx),
				fmt.Sprintf("UPDATE drawn.%s SET note = 'x' WHERE id = $1",
					pgx.Identifier{tables[i%len(tables)]}.Sanitize()), i%41)
		}
	}()
	return func() { cancel(); <-done; _ = conn.Close(context.WithoutCancel(t.Context())) }
}
