package operator

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/components"
	"sexton/internal/pgtest"
)

// The backlog counts deferred rows by the cause of their last error.
func TestDeferredRowsAreCountedByReason(t *testing.T) {
	t.Parallel()
	db, all := failingSite(t)
	db.Exec(`DELETE FROM users_ghost_user_migrations;
		INSERT INTO users (id, username, email, name) SELECT id, 'q' || id, id || '@example.com', 'Q' FROM generate_series(21, 28) AS id;
		INSERT INTO users_ghost_user_migrations (user_id, consume_after, attempts, last_error)
		SELECT id, now() + id * interval '1 minute', 1, CASE
			WHEN id < 23 THEN 'issues: SQLSTATE 55P03: canceling statement due to lock timeout'
			WHEN id < 26 THEN 'notes: SQLSTATE 23503: Key (id)=(' || id || ') is still referenced'
			WHEN id < 27 THEN 'todos: SQLSTATE 23514: of another kind'
			WHEN id < 28 THEN 'events: SQLSTATE 23514: of a fourth kind' END
		FROM generate_series(21, 28) AS id`)
	reading := pgtest.Must(Read(t.Context(), Noted(all, nil)))(t)
	at := slices.IndexFunc(reading.DeletionTables,
		func(b components.Backlog) bool { return b.Table == "users_ghost_user_migrations" })
	require.GreaterOrEqual(t, at, 0)
	require.Equal(t,
		"3 x notes: SQLSTATE 23503: Key (id)=(23) is still referenced; 2 x issues: SQLSTATE 55P03: canceling statement due to lock timeout; "+
			"1 x events: SQLSTATE 23514: of a fourth kind; 1 x something else",
		reading.DeletionTables[at].DeferredReason)
	found := pgtest.Must(ReadFailures(t.Context(), all, 50))(t)
	at = slices.IndexFunc(found.Failures, func(f components.Failure) bool { return f.ID == "22" })
	require.GreaterOrEqual(t, at, 0)
	require.Contains(t, string(pgtest.Must(json.Marshal(found.Failures[at]))(t)), `"locked":true`)

	// If a source has more failures than are read, its name is in Capped, and its reasons
	// have More set.
	all.Config.LooseForeignKeys.Enabled = true
	db.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, consume_after, cleanup_attempts, last_error)
		SELECT 'public.projects', n, now() + interval '1 hour', 3, 'issues: SQLSTATE 23514: no ' || n FROM generate_series(1, 501) AS n`)
	found = pgtest.Must(ReadFailures(t.Context(), all, components.FailureWindow))(t)
	require.True(t, found.More)
	require.Equal(t, []string{"tombstones"}, found.Capped)
	first := found.Reasons()[0]
	require.Len(t, first.Failures, components.FailureWindow)
	require.True(t, first.More)
}

// A count has a plus sign only if the actual number may be larger.
func TestCountsOfDeferredRowsAreExactIfAllWereRead(t *testing.T) {
	t.Parallel()
	db, all := failingSite(t)
	backlog := func(name string) components.Backlog {
		return pgtest.Must(components.ReadBacklog(t.Context(), all.Jobs(), name))(t)
	}
	const add = `INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, consume_after, cleanup_attempts, last_error)
		SELECT parent, n, now() + interval '1 hour', 3, CASE WHEN n = 1 THEN 'one' ELSE 'another' END
		FROM unnest(ARRAY['public.projects', 'public.users']) AS parent, generate_series(1, $1::bigint) AS n`
	db.Exec("DELETE FROM loose_foreign_keys_deleted_records")
	db.Exec(add, 300)
	require.Equal(t, "598 x another; 2 x one", backlog("loose_foreign_keys").DeferredReason)
	db.Exec(add, 201)
	require.Regexp(t, `^99\d\+ x another; \d\+ x one$`, backlog("loose_foreign_keys").DeferredReason)

	const queue = `INSERT INTO users (id, username, email, name) SELECT id, 'q' || id, id, 'Q' FROM generate_series($1::bigint, $2) AS id`
	db.Exec("DELETE FROM users_ghost_user_migrations")
	for _, to := range []struct {
		first, last int
		shown       string
	}{{1001, 11000, "10,000"}, {11001, 11001, "10,000+"}} {
		db.Exec(queue, to.first, to.last)
		db.Exec(`INSERT INTO users_ghost_user_migrations (user_id, consume_after, attempts)
			SELECT id, now() + interval '1 hour', 1 FROM generate_series($1::bigint, $2) AS id`, to.first, to.last)
		users := backlog("ghost_users")
		require.Equal(t, to.shown, users.DeferredText())
		require.Equal(t, to.last == 11001, users.DeferredCapped, "the JSON has the same count")
		require.True(t, users.AllDeferred())
	}
}

// The count of deferred rows (SQL) and the list of failures (Go) derive the same cause
// from an error.
func TestCausesAreTheSameInSQLAndGo(t *testing.T) {
	t.Parallel()
	db, _ := failingSite(t)
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"t: SQLSTATE 23514: refused", "t: SQLSTATE 55P03: refused", false},
		{"t: SQLSTATE 23503: Key (id)=(12345) is kept", "t: SQLSTATE 23503: Key (id)=(54321) is kept", true},
		{"t: SQLSTATE 23503: Key (id)=(1f2e-77, 12)", "t: SQLSTATE 23503: Key (id)=(ab-9, 1)", true},
		{"t_1: SQLSTATE 23514: refused", "t_2: SQLSTATE 23514: refused", false},
		{"no answer of 7 (SQLSTATE 57014)", "no answer of 8 (SQLSTATE 57014)", true},
		{"no answer of 7 (SQLSTATE 57014)", "no answer of 7 (SQLSTATE 55P03)", false},
		{"group 7 is kept", "group 8 is left", false},
	} {
		want := min(c.a, c.b)
		if !c.same {
			want = "1 x " + want + "; 1 x " + max(c.a, c.b)
		}
		require.Equal(t, want, db.Rows("SELECT sexton.reasons(ARRAY[$1, $2])", c.a, c.b)[0][0])
		require.Equal(t, c.same, cause(c.a) == cause(c.b), "%s; %s", c.a, c.b)
	}
}

func TestDeferredPlaceholdersAreCountedByReason(t *testing.T) {
	t.Parallel()
	db, all := failingSite(t)
	db.Exec(`DELETE FROM import_placeholder_user_details;
		INSERT INTO users (id, username, email, name, user_type) SELECT id, 'q' || id, id || '@example.com', 'Q', 15 FROM generate_series(1001, 1301) AS id;
		INSERT INTO import_placeholder_user_details (placeholder_user_id, organization_id, deletion_attempts, last_deletion_attempt_at, last_error)
			SELECT id, 1, 1, now(), CASE id WHEN 1301 THEN 'todos: other' ELSE 'kept by a note' END FROM generate_series(1001, 1301) AS id`)
	reading := pgtest.Must(Read(t.Context(), Noted(all, nil)))(t)
	at := slices.IndexFunc(reading.DeletionTables,
		func(b components.Backlog) bool { return b.Table == "import_placeholder_user_details" })
	require.GreaterOrEqual(t, at, 0)
	require.Equal(t, "300 x kept by a note; 1 x todos: other", reading.DeletionTables[at].DeferredReason)
}

// The backlog of group deletion schedules has the reason and the end of the deferral of
// groups, and the age of the oldest group.
func TestDeferredGroupsHaveAReasonAndAnEnd(t *testing.T) {
	t.Parallel()
	_, all := failingSite(t)
	reading := pgtest.Must(Read(t.Context(), Noted(all, nil)))(t)
	at := slices.IndexFunc(reading.DeletionTables,
		func(b components.Backlog) bool { return b.Table == "group_deletion_schedules" })
	require.GreaterOrEqual(t, at, 0)
	groups := reading.DeletionTables[at]
	require.EqualValues(t, 1, groups.Deferred)
	require.Equal(t, "nothing can be decided", groups.DeferredReason)
	require.WithinDuration(t, time.Now().Add(2*time.Hour), *groups.DeferredUntil, 10*time.Minute)
	require.InDelta(t, 22*24*3600, groups.OldestAgeSeconds, 24*3600)
}
