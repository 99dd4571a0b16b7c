package retention_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/pgtest"
	"sexton/internal/retention"
)

// For each column type, a pass deletes the same rows as a plain comparison. Rows with
// NULL or infinity are kept.
func TestTypesOfColumns(t *testing.T) {
	t.Parallel()
	type example struct {
		column, unit string
		keep         time.Duration
		due, kept    []string
	}
	pgtest.Each(t, map[string]example{
		"timestamptz": {
			"timestamptz", "", 90 * day,
			[]string{"now() - interval '91 days'", "'-infinity'", "'4713-01-01 BC'"},
			[]string{"now() - interval '89 days'", "'infinity'", "NULL"},
		},
		"0s": {
			"timestamptz", "", 0,
			[]string{"now() - interval '1 second'"},
			[]string{"now() + interval '1 hour'", "NULL"},
		},
		"timestamp": {
			"timestamp", "", 3 * time.Hour,
			[]string{"timezone('UTC', now()) - interval '181 minutes'", "'-infinity'"},
			[]string{"timezone('UTC', now()) - interval '179 minutes'", "'infinity'", "NULL"},
		},
		"date": {
			"date", "", 10 * day,
			[]string{"timezone('UTC', now())::date - 11", "'-infinity'"},
			[]string{"timezone('UTC', now())::date - 9", "'infinity'", "'5874897-12-31'", "NULL"},
		},
		"seconds": {
			"integer", "s", time.Hour,
			[]string{"extract(epoch FROM now())::int - 3601", "0", "-2147483648"},
			[]string{"extract(epoch FROM now())::int - 3590", "2147483647", "NULL"},
		},
		"milliseconds": {
			"bigint", "ms", time.Hour,
			[]string{"extract(epoch FROM now())::int8 * 1000 - 3601000", "-9223372036854775808"},
			[]string{"extract(epoch FROM now())::int8 * 1000 - 3590000", "9223372036854775807", "NULL"},
		},
		"domain": {"moment", "", time.Hour, []string{"now() - interval '2 hours'"}, []string{"now()", "NULL"}},
	}, func(t *testing.T, _ string, test example) {
		db := setup(t,
			"CREATE DOMAIN moment AS timestamptz; CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY, at "+
				test.column+"); CREATE INDEX ON events (at)")
		db.Exec("SET TIME ZONE 'Asia/Tokyo'")
		for i, values := range [][]string{test.due, test.kept} {
			for _, value := range values {
				db.Exec(fmt.Sprintf("ALTER TABLE events ADD IF NOT EXISTS due boolean; INSERT INTO events (at, due) VALUES (%s, %t)", value, i == 0))
			}
		}
		stats := run(t, engine(t, db, retention.Rule{Table: "events", Column: "at", Keep: test.keep, Unit: test.unit}))
		require.Equal(t, map[string]int64{"events": int64(len(test.due))}, stats.Deleted)
		require.Equal(t, [][]string{{"f", fmt.Sprint(len(test.kept))}},
			db.Rows("SELECT due, count(*) FROM events GROUP BY 1"))
		require.Empty(t, stats.Errors)
	})
}

const sessions = `
CREATE TABLE sessions (id bigint PRIMARY KEY, at timestamptz, state text NOT NULL DEFAULT 'done', note text);
CREATE INDEX ON sessions (at);
INSERT INTO sessions SELECT n, now() - n * interval '1 day' FROM generate_series(1, 100) AS n;
`

func keep(days int) retention.Rule {
	return retention.Rule{Table: "sessions", Column: "at", Keep: time.Duration(days)*day + day/2}
}

func TestConditionsAndEvents(t *testing.T) {
	t.Parallel()
	db := setup(t,
		sessions+"UPDATE sessions SET state = 'open' WHERE id % 2 = 0; UPDATE sessions SET note = id WHERE id > 95")
	rule := keep(90)
	rule.Conditions = []definitions.Condition{{Column: "state", Value: "done"}}
	rule.Event, rule.EventColumns = true, []string{"note"}
	stats := run(t, engine(t, db, rule))
	require.Equal(t, map[string]int64{"sessions": 5}, stats.Deleted)
	require.Equal(t, [][]string{{"5"}}, db.Rows("SELECT count(*) FROM sessions WHERE id > 90"))
	require.Equal(t, [][]string{
		{"rows_deleted", "sessions", `{"id": 91}`, `{"note": null}`},
		{"rows_deleted", "sessions", `{"id": 93}`, `{"note": null}`},
		{"rows_deleted", "sessions", `{"id": 95}`, `{"note": null}`},
		{"rows_deleted", "sessions", `{"id": 97}`, `{"note": "97"}`},
		{"rows_deleted", "sessions", `{"id": 99}`, `{"note": "99"}`},
	}, db.Rows(`SELECT kind, payload ->> 'table', k, r FROM sexton.events, ROWS FROM (jsonb_array_elements(payload -> 'keys'), jsonb_array_elements(payload -> 'rows')) AS e (k, r) ORDER BY 3`))
}

func TestDryRunCountsAndDeletesNothing(t *testing.T) {
	t.Parallel()
	db := setup(t, sessions)
	rule := keep(90)
	rule.DryRun = true
	stats := run(t, engine(t, db, rule))
	require.Equal(t, map[string]int64{"sessions.at": 10}, stats.Due)
	require.Empty(t, stats.Deleted)
	require.Len(t, db.Rows("SELECT FROM sessions"), 100)
	require.Equal(t, [][]string{{"f", "10", "t"}}, db.Rows("SELECT due, pending, dry_run FROM sexton.retention_rules"))
	require.Equal(t, [][]string{{"retention_rules", "0", "0"}},
		db.Rows("SELECT deletion_table, pending, oldest_age_seconds FROM sexton.backlog_of_retention()"))
}

// Rows below due rows are deleted or changed as the foreign keys' ON DELETE actions
// require, at any depth.
func TestRowsBelowAreDeletedFirst(t *testing.T) {
	t.Parallel()
	db := setup(t, sessions+`
		CREATE TABLE pages (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions ON DELETE CASCADE);
		CREATE INDEX ON pages (session_id);
		CREATE TABLE clicks (id bigint PRIMARY KEY, page_id bigint REFERENCES pages ON DELETE CASCADE);
		CREATE INDEX ON clicks (page_id);
		CREATE TABLE notes (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions ON DELETE SET NULL);
		CREATE INDEX ON notes (session_id);
		INSERT INTO pages SELECT n, 1 + n % 100 FROM generate_series(1, 1000) AS n;
		INSERT INTO clicks SELECT n, 1 + n % 1000 FROM generate_series(1, 3000) AS n;
		INSERT INTO notes SELECT n, n FROM generate_series(1, 100) AS n;
		ALTER TABLE sessions ADD parent_id bigint REFERENCES sessions ON DELETE CASCADE;
		CREATE INDEX ON sessions (parent_id);
		UPDATE sessions SET parent_id = 95 WHERE id = 96;
		UPDATE sessions SET parent_id = 96 WHERE id = 95;
		UPDATE sessions SET parent_id = 97 WHERE id = 5;`)
	stats := run(t, engine(t, db, keep(90)))
	require.Empty(t, stats.Errors)
	require.Equal(t, map[string]int64{"sessions": 11, "pages": 110, "clicks": 330}, stats.Deleted)
	require.Equal(t, map[string]int64{"notes.session_id": 11}, stats.Nullified)
	require.Equal(t, [][]string{{"89", "890", "2670"}},
		db.Rows("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM pages), (SELECT count(*) FROM clicks)"))
}

// A RESTRICT key that prevents a deletion is reported, and the other rows are deleted.
func TestRestrictingKeysAreReported(t *testing.T) {
	t.Parallel()
	db := setup(t,
		sessions+`CREATE TABLE pages (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions); CREATE INDEX ON pages (session_id); INSERT INTO pages VALUES (1, 95), (2, 2)`)
	stats := run(t, engine(t, db, keep(90)))
	require.Equal(t, map[string]int64{"sessions": 9}, stats.Deleted)
	require.Equal(t, map[string]int64{"sessions.at": 1}, stats.Kept)
	const reason = "pages: the row with id 95 refers to sessions, and foreign key pages_session_id_fkey has no ON DELETE action"
	require.Equal(t, [][]string{{"f", "1", "1", "1"}},
		db.Rows("SELECT due, pending, kept, attempts FROM sexton.retention_rules"))
	require.Contains(t, db.Rows("SELECT last_error FROM sexton.retention_rules")[0][0],
		"foreign key pages_session_id_fkey", reason)
	db.Exec("DELETE FROM pages")
	stats = run(t, engine(t, db, keep(90)))
	require.Equal(t, map[string]int64{"sessions": 1}, stats.Deleted)
	require.Equal(t, [][]string{{"0", "NULL", "0"}},
		db.Rows("SELECT pending, last_error, attempts FROM sexton.retention_rules"))
}

// Rows whose deletion a trigger rejects are left, and the others are deleted. The next
// pass continues after the rejected rows.
func TestFailingRowsDelayNoOther(t *testing.T) {
	t.Parallel()
	db := setup(t, `
		CREATE TABLE events (id bigint PRIMARY KEY, at timestamptz); CREATE INDEX ON events (at);
		INSERT INTO events SELECT n, now() - interval '100 days' + n * interval '1 hour' FROM generate_series(1, 400) AS n;
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'row % is kept', OLD.id; END $$;
		CREATE TRIGGER refuse BEFORE DELETE ON events FOR EACH ROW WHEN (OLD.id <= 150) EXECUTE FUNCTION refuse();`)
	rule := retention.Rule{Table: "events", Column: "at", Keep: day}
	for range 3 {
		stats := run(t, engine(t, db, rule))
		require.NotEmpty(t, stats.Errors)
		require.Equal(t, [][]string{{"f"}}, db.Rows("SELECT due FROM sexton.retention_rules"),
			"the rule waits for the next tick")
	}
	require.Equal(t, [][]string{{"150"}}, db.Rows("SELECT count(*) FROM events"))
}

// If a foreign key blocks the deletion of one row, rows that refer to each other in a
// cycle are still deleted.
func TestCycleIsDeletedDespiteABlockedRow(t *testing.T) {
	t.Parallel()
	db := setup(t, `
		CREATE TABLE sessions (id bigint PRIMARY KEY, at timestamptz, next bigint REFERENCES sessions ON DELETE CASCADE);
		CREATE INDEX ON sessions (at); CREATE INDEX ON sessions (next);
		INSERT INTO sessions SELECT n, now() - interval '100 days' FROM generate_series(1, 3) AS n;
		UPDATE sessions SET next = 5 - id WHERE id > 1;
		CREATE TABLE pages (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions); CREATE INDEX ON pages (session_id);
		INSERT INTO pages VALUES (1, 1)`)
	stats := run(t, engine(t, db, keep(90)))
	require.Equal(t, map[string]int64{"sessions": 2}, stats.Deleted)
	require.Equal(t, map[string]int64{"sessions.at": 1}, stats.Kept)
}

// If a trigger updates rows instead of deleting them, the trigger runs only a few times
// per row and pass.
func TestRowsThatATriggerUpdatesAreLeft(t *testing.T) {
	t.Parallel()
	db := setup(t, `
		CREATE TABLE events (id bigint PRIMARY KEY, at date, deleted boolean); CREATE INDEX ON events (at);
		INSERT INTO events SELECT n, '2020-01-01' FROM generate_series(1, 2000) AS n;
		CREATE SEQUENCE calls;
		CREATE FUNCTION hide() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM nextval('calls'); UPDATE events SET deleted = true WHERE id = OLD.id; RETURN NULL; END $$;
		CREATE TRIGGER hide BEFORE DELETE ON events FOR EACH ROW EXECUTE FUNCTION hide();`)
	stats := run(t, engine(t, db, retention.Rule{Table: "events", Column: "at", Keep: day}))
	require.NotZero(t, stats.Kept["events.at"])
	require.Less(t, pgtest.Scalar[int](t, db.Pool(), "SELECT last_value::int FROM calls"), 6000)
}

// A rule that a pass did not begin is due and keeps its last result.
func TestRuleThatHasNotBegunKeepsResult(t *testing.T) {
	t.Parallel()
	db := setup(t, sessions+`
		CREATE TABLE events (id bigint PRIMARY KEY, at timestamptz); CREATE INDEX ON events (at);
		INSERT INTO events SELECT n, now() - interval '100 days' FROM generate_series(1, 5000) AS n;
		INSERT INTO sexton.retention_rules (rule, due, pending, capped, dry_run, kept, last_error, attempts, resume_at, checked_at)
			VALUES ('sessions.at', false, 7, false, false, 7, 'reason', 3, '2026-01-01', now())`)
	e := engine(t, db, keep(90), retention.Rule{Table: "events", Column: "at", Keep: day})
	ctx, cancel := context.WithCancel(t.Context())
	afterFirstBatch(e, cancel)
	stats, err := e.Run(ctx)
	require.NoError(t, err)
	require.True(t, stats.Interrupted)
	require.Equal(t, [][]string{{"events.at", "t", "NULL", "f"}, {"sessions.at", "t", "reason", "f"}}, db.Rows(
		"SELECT rule, due, last_error, resume_at IS NULL FROM sexton.retention_rules ORDER BY rule"))
	run(t, engine(t, db, keep(90), retention.Rule{Table: "events", Column: "at", Keep: day}))
	require.Equal(t, [][]string{{"f"}, {"f"}}, db.Rows("SELECT due FROM sexton.retention_rules"))
}

// Rows that another session has locked are left for the next pass, and the other rows are
// deleted.
func TestLockedRowsAreLeft(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{"no rows below": "", "with rows below": `
		CREATE TABLE pages (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions ON DELETE CASCADE); CREATE INDEX ON pages (session_id);
		INSERT INTO pages SELECT n, n FROM generate_series(1, 100) AS n;`}, func(t *testing.T, _ string, more string) {
		db := setup(t, sessions+more)
		tx := db.Begin(t, "SELECT FROM sessions WHERE id = 95 FOR UPDATE")
		stats := run(t, engine(t, db, keep(90)))
		require.EqualValues(t, 9, stats.Deleted["sessions"])
		require.Equal(t, map[string]int64{"sessions.at": 1}, stats.Kept)
		require.Empty(t, stats.Errors, "a lock is not a failure")
		require.NotEmpty(t, stats.Held)
		require.NoError(t, tx.Rollback(t.Context()))
		stats = run(t, engine(t, db, keep(90)))
		require.EqualValues(t, 1, stats.Deleted["sessions"])
	})
}

// A row that is restored while rows below it are deleted is kept and reported. The
// remaining rows below it are kept too.
func TestRestoredRowsAreKept(t *testing.T) {
	t.Parallel()
	db := setup(t, `
		CREATE TABLE documents (id bigint PRIMARY KEY, deleted_at timestamptz); CREATE INDEX ON documents (deleted_at) WHERE deleted_at IS NOT NULL;
		CREATE TABLE pages (id bigint PRIMARY KEY, document_id bigint NOT NULL REFERENCES documents ON DELETE CASCADE); CREATE INDEX ON pages (document_id);
		INSERT INTO documents SELECT n, now() - interval '60 days' FROM generate_series(1, 3) AS n;
		INSERT INTO documents VALUES (4, NULL);
		INSERT INTO pages SELECT n, 1 + n % 4 FROM generate_series(1, 40000) AS n;`)
	e := engine(t, db, retention.Rule{Table: "documents", Column: "deleted_at", Keep: 30 * day})
	afterFirstBatch(e, func() { db.Exec("UPDATE documents SET deleted_at = NULL WHERE id = 2") })
	var restored []string
	e.PartlyCleared = func(_ context.Context, rule, table, row string) { restored = append(restored, rule, table, row) }
	stats := run(t, e)
	require.Empty(t, stats.Errors)
	require.EqualValues(t, 2, stats.Deleted["documents"])
	require.Equal(t, []string{"documents.deleted_at", "documents", "id 2"}, restored)
	require.EqualValues(t, 1, stats.PartlyCleared)
	require.Equal(t, [][]string{{"2"}, {"4"}}, db.Rows("SELECT id FROM documents ORDER BY id"))
	require.NotEqual(t, [][]string{{"0"}}, db.Rows("SELECT count(*) FROM pages WHERE document_id = 2"))
	require.Equal(t, [][]string{{"10000"}}, db.Rows("SELECT count(*) FROM pages WHERE document_id = 4"))
}

// A pass empties one partition after the other, beginning with the partition that has the
// oldest row.
func TestLeavesAreEmptiedOldestFirst(t *testing.T) {
	t.Parallel()
	db := setup(t, `
		CREATE TABLE events (id bigint, part int, at timestamptz) PARTITION BY LIST (part);
		CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1);
		CREATE TABLE events_2 PARTITION OF events FOR VALUES IN (2) PARTITION BY RANGE (id);
		CREATE TABLE events_2a PARTITION OF events_2 FOR VALUES FROM (0) TO (500);
		CREATE TABLE events_2b PARTITION OF events_2 FOR VALUES FROM (500) TO (100000);
		CREATE TABLE events_3 PARTITION OF events FOR VALUES IN (3);
		CREATE INDEX ON events (at);
		INSERT INTO events SELECT n, 1, now() - interval '50 days' FROM generate_series(1, 100) AS n;
		INSERT INTO events SELECT n, 2, now() - interval '100 days' + n * interval '1 minute' FROM generate_series(1, 1000) AS n;
		INSERT INTO events SELECT n, 3, now() FROM generate_series(1, 100) AS n;
		CREATE TABLE log (id bigint GENERATED ALWAYS AS IDENTITY, leaf text);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log (leaf) VALUES (TG_TABLE_NAME); RETURN OLD; END $$;
		CREATE TRIGGER note AFTER DELETE ON events FOR EACH ROW EXECUTE FUNCTION note();`)
	stats := run(t, engine(t, db, retention.Rule{Table: "events", Column: "at", Keep: 30 * day}))
	require.Equal(t, map[string]int64{"events": 1100}, stats.Deleted)
	require.Equal(t, [][]string{{"events_2a"}, {"events_2b"}, {"events_1"}},
		db.Rows("SELECT leaf FROM log GROUP BY leaf ORDER BY min(id)"))
	require.Equal(t, [][]string{{"100"}}, db.Rows("SELECT count(*) FROM events"))
}

// All rows are deleted even if many of them have the same value.
func TestManyRowsWithOneValue(t *testing.T) {
	t.Parallel()
	db := setup(t, `
		CREATE TABLE events (id bigint, on_day date); CREATE INDEX ON events (on_day);
		INSERT INTO events SELECT n, date '2020-01-01' + n / 25000 FROM generate_series(1, 60000) AS n;`)
	stats := run(t, engine(t, db, retention.Rule{Table: "events", Column: "on_day", Keep: day}))
	require.Equal(t, map[string]int64{"events": 60000}, stats.Deleted)
	require.Equal(t, int64(1), stats.Rules)
}

// slowText is a type like text. Comparing two of its values for equality takes 50 ms.
const slowText = `
CREATE TYPE slow;
CREATE FUNCTION slow_in(cstring) RETURNS slow LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION slow_out(slow) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE slow (INPUT = slow_in, OUTPUT = slow_out, LIKE = text);
CREATE FUNCTION slow_eq(slow, slow) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.pg_sleep(0.05); RETURN $1::text OPERATOR(pg_catalog.=) $2::text; END $$;
CREATE FUNCTION slow_lt(slow, slow) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1::text < $2::text';
CREATE FUNCTION slow_cmp(slow, slow) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT pg_catalog.bttextcmp($1::text, $2::text)';
CREATE OPERATOR = (LEFTARG = slow, RIGHTARG = slow, FUNCTION = slow_eq);
CREATE OPERATOR < (LEFTARG = slow, RIGHTARG = slow, FUNCTION = slow_lt);
CREATE OPERATOR <= (LEFTARG = slow, RIGHTARG = slow, FUNCTION = slow_lt);
CREATE OPERATOR > (LEFTARG = slow, RIGHTARG = slow, FUNCTION = slow_lt);
CREATE OPERATOR >= (LEFTARG = slow, RIGHTARG = slow, FUNCTION = slow_lt);
CREATE OPERATOR CLASS slow_ops DEFAULT FOR TYPE slow USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 slow_cmp(slow, slow);`

// If the query of a rule times out, the rule is deferred with the CREATE INDEX statement
// as the reason. Other rules continue.
func TestRuleWithoutIndexIsHeld(t *testing.T) {
	t.Parallel()
	db := setup(t, sessions+slowText+`
		CREATE TABLE events (id bigint, at timestamptz, state slow);
		INSERT INTO events SELECT n, now() - interval '100 days', 'open' FROM generate_series(1, 100) AS n;`)
	e := engine(t, db, retention.Rule{
		Table: "events", Column: "at", Keep: day,
		Conditions: []definitions.Condition{{Column: "state", Value: "done"}},
	}, keep(90))
	e.Session.Limits.StatementTimeout = 2 * time.Second
	stats := run(t, e)
	require.Equal(t, map[string]int64{"sessions": 10}, stats.Deleted)
	require.Len(t, stats.Errors, 1)
	require.Contains(t, db.Rows("SELECT last_error FROM sexton.retention_rules WHERE rule LIKE 'events%'")[0][0],
		`the query for due rows exceeds jobs.statement_timeout: CREATE INDEX CONCURRENTLY ON "public"."events" ("state", "at")`)
}

// A leaf without an index that is too large to scan is held before it is queried. The
// other leaves and rules are processed.
func TestLargeLeafWithoutIndexIsHeld(t *testing.T) {
	t.Parallel()
	db := setup(t, sessions+`
		CREATE TABLE events (id bigint, at timestamptz, part int) PARTITION BY LIST (part);
		CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1);
		CREATE TABLE events_2 PARTITION OF events FOR VALUES IN (2);
		INSERT INTO events SELECT n, now() - interval '100 days', 1 + n % 2 FROM generate_series(1, 100) AS n;
		UPDATE pg_class SET relpages = 24001 WHERE relname = 'events_1';
		UPDATE pg_class SET relpages = 23999 WHERE relname = 'events_2';`)
	e := engine(t, db, retention.Rule{Table: "events", Column: "at", Keep: day}, keep(90))
	e.Session.Limits.StatementTimeout = 2 * time.Second
	stats := run(t, e)
	require.Equal(t, map[string]int64{"sessions": 10, "events": 50}, stats.Deleted)
	require.Equal(t, [][]string{{"50"}}, db.Rows("SELECT count(*) FROM events_1"))
	require.EqualValues(t, 1, stats.Failed)
	require.Contains(t, db.Rows("SELECT last_error FROM sexton.retention_rules WHERE rule LIKE 'events%'")[0][0],
		`the table is too large to scan: CREATE INDEX CONCURRENTLY ON "public"."events_1" ("at")`)
	db.Exec("CREATE INDEX ON events_1 (at)")
	stats = run(t, engine(t, db, retention.Rule{Table: "events", Column: "at", Keep: day}))
	require.Equal(t, map[string]int64{"events": 50}, stats.Deleted)
	require.Equal(t, [][]string{{"0", "NULL", "NULL"}},
		db.Rows("SELECT pending, due_since, last_error FROM sexton.retention_rules WHERE rule LIKE 'events%'"))
}
