package retention_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
	"sexton/internal/retention"
)

func TestInvalidRulesAreRefused(t *testing.T) {
	t.Parallel()
	db := setup(t, sessions+`
		CREATE TABLE events (id bigint, at timestamptz, n bigint, word text) PARTITION BY RANGE (at);
		CREATE TABLE events_1 PARTITION OF events DEFAULT;
		CREATE VIEW seen AS SELECT * FROM events;`)
	of := func(table, column string, keep time.Duration) retention.Rule {
		return retention.Rule{Table: table, Column: column, Keep: keep}
	}
	with := func(r retention.Rule, value string) retention.Rule {
		r.Conditions = []definitions.Condition{{Column: "word", Value: "a"}}
		if value != "a" {
			r.Conditions[0].Column = value
		}
		return r
	}
	pgtest.Each(t, map[string]struct {
		rules []retention.Rule
		want  []string
	}{
		"no table": {
			[]retention.Rule{of("nowhere", "at", day)},
			[]string{"retention.rules[0].table: table nowhere does not exist (create it, or remove the entry)"},
		},
		"a view": {
			[]retention.Rule{of("seen", "at", day)},
			[]string{"retention.rules[0].table: seen is not a table (use a table)"},
		},
		"partition": {
			[]retention.Rule{of("events_1", "at", day)},
			[]string{"retention.rules[0].table: events_1 is a partition (name the partitioned table)"},
		},
		"table of Sexton in the application's schema": {
			[]retention.Rule{of("loose_foreign_keys_deleted_records", "created_at", day)},
			[]string{"retention.rules[0].table: loose_foreign_keys_deleted_records is a table of Sexton (remove the entry)"},
		},
		"table of Sexton": {
			[]retention.Rule{of("sexton.runs", "started_at", day)},
			[]string{"retention.rules[0].table: sexton.runs is a table of Sexton (remove the entry)"},
		},
		"no column": {
			[]retention.Rule{keep(1), of("events", "att", day)},
			[]string{"retention.rules[1].column: table events has no column att (did you mean at?)"},
		},
		"type": {[]retention.Rule{of("events", "word", day)}, []string{
			"retention.rules[0].column: events.word is of type text (name a column of type timestamptz, timestamp, date, integer or bigint)",
		}},
		"no unit": {
			[]retention.Rule{of("events", "n", day)},
			[]string{"retention.rules[0].column: events.n is of type bigint and needs a unit (set unit to s or ms)"},
		},
		"unit": {[]retention.Rule{{Table: "events", Column: "at", Unit: "s"}}, []string{
			"retention.rules[0].unit: events.at is of type timestamp with time zone, which has no unit (remove it)",
		}},
		"two units": {[]retention.Rule{
			{Table: "events", Column: "n", Unit: "s"},
			{Table: "events", Column: "n", Unit: "ms", Keep: day},
		}, []string{
			"retention.rules[0].unit: retention.rules[1] has another unit for the same column (a column has one unit)",
			"retention.rules[1].unit: retention.rules[0] has another unit for the same column (a column has one unit)",
		}},
		"same rows twice": {[]retention.Rule{of("events", "at", day), of("public.events", "at", 2*day)}, []string{
			"retention.rules[1]: keeps rows of events for 48h0m0s, but retention.rules[0] deletes the same rows after 24h0m0s (remove one of them)",
		}},
		"subset kept longer": {[]retention.Rule{with(of("events", "at", 2*day), "a"), of("events", "at", day)}, []string{
			"retention.rules[0]: keeps rows of events for 48h0m0s, but retention.rules[1] deletes the same rows after 24h0m0s (remove one of them)",
		}},
		"subset kept shorter": {[]retention.Rule{with(of("events", "at", day), "a"), of("events", "at", 2*day)}, nil},
		"condition": {[]retention.Rule{with(of("events", "at", day), "nothing")}, []string{
			"retention.rules[0].conditions[0].column: table events has no column nothing (correct the name)",
		}},
		"value": {[]retention.Rule{with(of("events", "at", day), "n")}, []string{
			`retention.rules[0].conditions[0].value: value "a" does not fit column n of type bigint (give a value of that type)`,
		}},
		"event": {[]retention.Rule{{Table: "events", Column: "at", Event: true}}, []string{
			"retention.rules[0].event: table events has no primary key to identify its rows (add a primary key, or remove event)",
		}},
	}, func(t *testing.T, _ string, test struct {
		rules []retention.Rule
		want  []string
	},
	) {
		_, problems := resolve(t, db, test.rules...)
		var messages []string
		for _, p := range problems.Only("error") {
			messages = append(messages, p.String())
		}
		require.Equal(t, test.want, messages)
	})
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	db := setup(t, sessions+`
		CREATE TABLE pages (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions);
		CREATE TABLE clicks (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions ON DELETE CASCADE);`)
	plan, problems := resolve(t, db, keep(90))
	require.NotNil(t, plan)
	var messages []string
	for _, p := range problems {
		messages = append(messages, p.Message)
	}
	require.ElementsMatch(t, []string{
		"rows with references are kept: pages.session_id refers to sessions, and foreign key pages_session_id_fkey has no ON DELETE action",
		"no index of pages begins with session_id, so every batch reads the whole table",
		"no index of clicks begins with session_id, so every batch reads the whole table",
	}, messages)
}

// A rule that deletes needs privileges on all tables that its deletion changes. A rule
// with dry_run needs only SELECT on its own table.
func TestMissingPrivileges(t *testing.T) {
	t.Parallel()
	db := setup(t, sessions+`
		CREATE TABLE pages (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions ON DELETE CASCADE);
		CREATE INDEX ON pages (session_id);`)
	role := db.CreateRole()
	missing := func(dryRun bool) (messages []string) {
		rule := keep(90)
		rule.DryRun = dryRun
		plan, _ := resolve(t, db, rule)
		for _, p := range pgtest.Must(retention.MissingPrivileges(t.Context(), pgcatalog.As{Beginner: db.Pool(), Role: role}, plan))(t) {
			_, what, _ := strings.Cut(p.Message, "lacks ")
			messages = append(messages, what)
		}
		return messages
	}
	require.Equal(t, []string{"SELECT on table public.sessions"}, missing(true))
	require.Equal(t, []string{
		"DELETE, SELECT, UPDATE on table public.sessions", "DELETE, SELECT, UPDATE on table public.pages",
	}, missing(false))
}

// Foresee returns the counts, the index and the old partitions of each rule, and Findings
// warns about partitions and tables that are due completely.
func TestForesee(t *testing.T) {
	t.Parallel()
	db := setup(t, sessions+`
		CREATE TABLE pages (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions ON DELETE CASCADE); CREATE INDEX ON pages (session_id);
		CREATE TABLE events (id bigint, at timestamptz) PARTITION BY RANGE (at);
		CREATE TABLE events_old PARTITION OF events FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
		CREATE TABLE events_new PARTITION OF events FOR VALUES FROM ('2020-01-01') TO (MAXVALUE);
		INSERT INTO events VALUES (1, '2019-05-01 00:00 UTC'), (2, now());
		CREATE TABLE marks (id bigint, deleted_at timestamp);
		CREATE INDEX marks_deleted ON marks (deleted_at) WHERE deleted_at IS NOT NULL;
		INSERT INTO marks VALUES (1, '2019-05-01'), (2, NULL);`)
	plan, _ := resolve(t, db, keep(90), retention.Rule{Table: "events", Column: "at", Keep: day},
		retention.Rule{Table: "marks", Column: "deleted_at", Keep: day})
	seen := pgtest.Must(plan.Foresee(t.Context(), db.Pool(), 5*time.Second))(t)
	require.Len(t, seen, 3)
	require.Equal(t, []any{int64(10), false, "sessions_at_idx", []string{"pages"}, false},
		[]any{seen[0].Due, seen[0].Capped, seen[0].Index, seen[0].Below, seen[0].Whole})
	require.Equal(t, "2019-05-01T00:00:00Z", seen[1].Oldest)
	require.Equal(t, []retention.OldLeaf{{
		Partition: "events_old",
		SQL:       "ALTER TABLE public.events DETACH PARTITION public.events_old CONCURRENTLY; DROP TABLE public.events_old",
	}}, seen[1].OldLeaves)
	require.Equal(t, []any{"marks_deleted", "2019-05-01T00:00:00Z"}, []any{seen[2].Index, seen[2].Oldest})
	var messages []string
	for _, p := range retention.Findings(seen) {
		messages = append(messages, p.String())
	}
	require.Equal(t, []string{
		"retention.rules[1]: events.at: every row of partition events_old is due, and dropping it is cheaper " +
			"(ALTER TABLE public.events DETACH PARTITION public.events_old CONCURRENTLY; DROP TABLE public.events_old; this fires no triggers)",
		`retention.rules[1]: events.at: no index returns due rows in order, so each query reads the whole table (CREATE INDEX CONCURRENTLY ON "public"."events_old" ("at"))`,
		`retention.rules[1]: events.at: no index returns due rows in order, so each query reads the whole table (CREATE INDEX CONCURRENTLY ON "public"."events_new" ("at"))`,
	}, messages)
	db.Exec("DELETE FROM sessions WHERE id <= 90")
	seen = pgtest.Must(plan.Foresee(t.Context(), db.Pool(), 5*time.Second))(t)
	require.True(t, seen[0].Whole)
}
