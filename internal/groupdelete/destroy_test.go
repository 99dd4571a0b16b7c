package groupdelete_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/groupdelete"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

func TestGroupIsDestroyed(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	stats := b.destroy(t, groupdelete.Destroyed)
	b.requireAsNative(t, issues, someIssues)
	require.EqualValues(t, 4, stats.Groups)
	require.EqualValues(t, 8, stats.Projects)
	require.Equal(t, map[string]int64{
		"groups": 4, "projects": 8, "issues": 16, "notes": 32, "members": 4,
		"group_group_links": 3,
	}, stats.Deleted)
	require.Equal(t, [][]string{{"9"}}, b.Rows("SELECT source_id FROM members"))
	require.Empty(t, b.Rows("SELECT FROM sexton.group_destructions UNION ALL SELECT FROM group_deletion_schedules"))
	require.Empty(t,
		b.Rows("SELECT key FROM sexton.leases WHERE key LIKE 'groups/%' UNION ALL SELECT key FROM sexton.fences WHERE key LIKE 'groups/%'"))
	require.Equal(t, [][]string{
		{"project_destroyed", "11"},
		{"project_destroyed", "12"},
		{"project_destroyed", "21"},
		{"project_destroyed", "22"},
		{"project_destroyed", "31"},
		{"project_destroyed", "32"},
		{"group_destroyed", "3"},
		{"group_destroyed", "2"},
		{"project_destroyed", "41"},
		{"project_destroyed", "42"},
		{"group_destroyed", "4"},
		{"group_destroyed", "1"},
	}, b.events())
	require.Equal(t,
		[][]string{{`{"path": "three", "user_id": 1, "group_id": 3, "full_path": "one/two/three", "parent_id": 2, "destroyed_with": 1}`}},
		b.Rows("SELECT payload FROM sexton.events WHERE kind = 'group_destroyed' AND payload ->> 'group_id' = '3'"))
	require.Equal(t, [][]string{{`{"path": "project-1", "group_id": 3, "project_id": 31, "destroyed_with": 1}`}},
		b.Rows("SELECT payload FROM sexton.events WHERE payload ->> 'project_id' = '31'"))
	b.destroy(t, groupdelete.Gone)
	require.Empty(t, b.Rows("SELECT key FROM sexton.leases UNION ALL SELECT key FROM sexton.fences"),
		"the group does not exist")
}

// arrayLengths records the statements of a connection, each with the length of the
// longest array among its arguments.
type arrayLengths map[string][]int

func (a arrayLengths) record(sql string, args []any) {
	longest := 0
	for _, arg := range args {
		if value := reflect.ValueOf(arg); value.Kind() == reflect.Slice {
			longest = max(longest, value.Len())
		}
	}
	a[sql] = append(a[sql], longest)
}

func (a arrayLengths) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	a.record(query.SQL, query.Args)
	return ctx
}

func (arrayLengths) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (arrayLengths) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (a arrayLengths) TraceBatchQuery(_ context.Context, _ *pgx.Conn, query pgx.TraceBatchQueryData) {
	a.record(query.SQL, query.Args)
}

func (arrayLengths) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// The lengths of array arguments do not depend on the number of sub-groups. If they did,
// 20,000 sub-groups would need 2 GB of arguments.
func TestArgumentsDoNotGrowWithSubgroups(t *testing.T) {
	t.Parallel()
	const subgroups = 30
	b := setup(t, "", "")
	b.Exec("INSERT INTO groups SELECT 1000 + n, 1, n, n FROM generate_series(1, $1::integer) AS n", subgroups)
	engine := b.engine(t, 1)
	require.NoError(t, engine.Session.Conn.Close(t.Context()))
	settings := pgtest.Must(pgx.ParseConfig(b.URL))(t)
	sent := arrayLengths{}
	settings.Tracer = sent
	engine.Session.Conn = pgtest.ConnectAs(t, settings)
	b.run(t, engine, groupdelete.Destroyed)
	require.Equal(t, [][]string{{"9"}}, b.Rows("SELECT id FROM groups"))
	repeated := 0
	for sql, lengths := range sent {
		if len(lengths) < subgroups {
			continue
		}
		repeated++
		require.Less(t, slices.Max(lengths), 10, "%s had arrays of %v", sql, lengths)
	}
	require.Greater(t, repeated, 3, "statements are sent for each sub-group")
}

// If another session deletes a sub-group while the run holds its lease, the run deletes
// the lease and the fence.
func TestDeletedSubgroupLeavesNoLease(t *testing.T) {
	t.Parallel()
	b := setup(t, "", "")
	engine := b.engine(t, 1)
	deleted := doOnce(engine, isAtStep("projects of group 4"),
		func() { b.Exec("DELETE FROM projects WHERE group_id = 4; DELETE FROM groups WHERE id = 4") })
	b.run(t, engine, groupdelete.Destroyed)
	require.True(t, deleted())
	require.Empty(t, b.Rows("SELECT key FROM sexton.leases UNION ALL SELECT key FROM sexton.fences"))
}

// A group is kept if it may not be deleted. The transaction that begins the destruction
// checks this.
func TestGroupIsKept(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"the group is not marked for deletion: it was restored":                 "SELECT sexton.cancel_group_deletion(1, 1)",
		"the group is marked for deletion, but it is not scheduled":             "DELETE FROM group_deletion_schedules",
		"the application's settings have no period (deletion_adjourned_period)": "UPDATE application_settings SET deletion_adjourned_period = NULL",
		"the group is not due": "UPDATE application_settings SET deletion_adjourned_period = 8",
		"the user who scheduled the group may no longer remove it": "UPDATE users SET admin = false",
	}, func(t *testing.T, want string, change string) {
		b := setup(t, issues, someIssues)
		b.Exec(change)
		before := readRows(b.Database)
		require.Equal(t, want, b.destroy(t, groupdelete.Kept).Reason)
		require.Equal(t, before, readRows(b.Database))
		require.Empty(t, b.Rows("SELECT FROM sexton.group_destructions"))
	})
}

// If another session restores the group and commits while the run waits for its lock on
// the group, the group is kept. The run's first check was before that.
func TestRestoreWinsTheRace(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	restoring := b.Begin(t, "SELECT sexton.cancel_group_deletion(1, 1)")
	wait := runWhile(t, b.engine(t, 1))
	b.AwaitLock(t)
	require.NoError(t, restoring.Commit(t.Context()))
	wait(groupdelete.Kept)
	require.Len(t, b.Rows("SELECT FROM notes"), 40)
}

// A deletion can be canceled until the first row is deleted. The run that is about to
// delete this row fails its transaction and keeps the group.
func TestCancelBeforeTheFirstRow(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"projects of group 1":               "",
		"memberships and shares of group 1": "DELETE FROM projects; DELETE FROM groups WHERE id = 3; DELETE FROM groups WHERE id IN (2, 4)",
		"rows of group 1":                   "DELETE FROM projects; DELETE FROM groups WHERE id = 3; DELETE FROM groups WHERE id IN (2, 4); DELETE FROM members; DELETE FROM group_group_links",
	}, func(t *testing.T, step string, prepare string) {
		b := setup(t, issues, someIssues)
		b.Exec("DELETE FROM notes; DELETE FROM issues; " + prepare)
		before := readRows(b.Database)
		engine := b.engine(t, 1)
		cancelled := doOnce(engine, isAtStep(step), func() { b.Exec("SELECT sexton.cancel_group_deletion(1, 1)") })
		stats := b.run(t, engine, groupdelete.Kept)
		require.True(t, cancelled())
		require.Equal(t, "the deletion was canceled before the first row was deleted", stats.Reason)
		require.Empty(t, stats.Errors)
		require.Equal(t, before, readRows(b.Database))
		require.Empty(t, b.Rows("SELECT FROM sexton.group_destructions UNION ALL SELECT FROM group_deletion_schedules"))
		require.Equal(t, [][]string{{"group_restored", "1"}}, b.events())
	})
}

// A deletion cannot be canceled after a reference was set to NULL.
func TestCancelIsRefusedAfterAChange(t *testing.T) {
	t.Parallel()
	b := setup(t,
		"CREATE TABLE notices (id bigint PRIMARY KEY, group_id bigint REFERENCES groups ON DELETE SET NULL); CREATE INDEX ON notices (group_id);",
		"INSERT INTO notices VALUES (1, 1); DELETE FROM projects; DELETE FROM groups WHERE id = 3; DELETE FROM groups WHERE id IN (2, 4);"+
			"DELETE FROM members; DELETE FROM group_group_links")
	engine := b.engine(t, 1)
	called := doOnce(engine, func(stats *groupdelete.Stats) bool { return len(stats.Nullified) > 0 && stats.Done == 0 },
		func() {
			_, err := b.Pool().Exec(t.Context(), "SELECT sexton.cancel_group_deletion(1, 1)")
			require.ErrorContains(t, err, "has begun")
		})
	b.run(t, engine, groupdelete.Destroyed)
	require.True(t, called())
}

// If a deletion is canceled while its destruction begins, either all rows remain or the
// group is deleted.
func TestCancelWhileTheDestructionBegins(t *testing.T) {
	t.Parallel()
	b := setup(t, "", "DELETE FROM projects WHERE id <> 11")
	projects := b.Rows("SELECT id FROM projects ORDER BY id")
	for round := range 12 {
		b.Exec("SELECT sexton.delete_group_now(1, 1)")
		engine, calls := b.engine(t, 1), 0
		var running sync.WaitGroup
		var cancelErr error
		engine.Progress = func(context.Context, *groupdelete.Stats) {
			if calls++; calls == 1+round%2 {
				running.Go(func() {
					_, cancelErr = b.Pool().Exec(t.Context(),
						"SELECT sexton.cancel_group_deletion(1, 1)")
				})
			}
		}
		stats := pgtest.Must(engine.Run(t.Context()))(t)
		running.Wait()
		release(t, engine)
		if stats.Outcome == groupdelete.Destroyed {
			require.ErrorContains(t, cancelErr, "group 1")
			require.Equal(t, [][]string{{"9"}}, b.Rows("SELECT id FROM groups"))
			return
		}
		require.Equal(t, groupdelete.Kept, stats.Outcome, "%+v", stats)
		require.NoError(t, cancelErr)
		require.Len(t, b.Rows("SELECT FROM groups"), 5)
		require.Equal(t, projects, b.Rows("SELECT id FROM projects ORDER BY id"))
	}
}

// A deletion cannot be canceled after the first row was deleted, even if the mark and the
// schedule are removed.
func TestCancelIsRefusedAfterADeletion(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	engine := b.engine(t, 1)
	ctx, stop := context.WithCancel(t.Context())
	engine.Progress = func(_ context.Context, stats *groupdelete.Stats) {
		if stats.Done > 0 {
			stop()
		}
	}
	stats, err := engine.Run(ctx)
	require.NoError(t, err)
	release(t, engine)
	require.Equal(t, groupdelete.Unfinished, stats.Outcome)
	for group := range 2 {
		_, err = b.Pool().Exec(t.Context(), "SELECT sexton.cancel_group_deletion($1, 1)", group+1)
		require.ErrorContains(t, err, "has begun")
	}
	b.Exec("UPDATE groups SET marked_for_deletion_on = NULL; DELETE FROM group_deletion_schedules")
	b.Exec("UPDATE users SET admin = false")
	b.destroy(t, groupdelete.Destroyed)
}

// A sub-group that is moved out of the group during the run is kept with everything below
// it. This is true even if the run is processing the sub-group or a group below it.
func TestSubgroupIsMovedAway(t *testing.T) {
	t.Parallel()
	for step, kept := range map[string]struct{ above, notes int }{
		"projects of group 2": {2000, 16},
		"projects of group 3": {3000, 8},
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			b := setup(t, issues, someIssues)
			engine := b.engine(t, 1)
			doOnce(engine, isAtStep(step), func() { b.Exec("UPDATE groups SET parent_id = 9 WHERE id = 2") })
			b.run(t, engine, groupdelete.Destroyed)
			require.Equal(t, [][]string{{"2"}, {"3"}, {"9"}}, b.Rows("SELECT id FROM groups ORDER BY id"))
			require.Len(t, b.Rows("SELECT FROM notes WHERE id BETWEEN $1 AND 4000", kept.above), kept.notes)
		})
	}
}

// If a group or project is moved out of the group while the rows below it are being
// deleted, most of these rows are kept.
func TestMoveDuringTheDeletion(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"project":     "UPDATE projects SET group_id = 9 WHERE id = 31",
		"group":       "UPDATE groups SET parent_id = 9 WHERE id = 3",
		"group above": "UPDATE groups SET parent_id = 9 WHERE id = 2",
	}, func(t *testing.T, _, move string) {
		b := setup(t, issues, someIssues)
		b.Exec("INSERT INTO notes SELECT n, 311 FROM generate_series(1000001, 1000100) AS n")
		engine := b.engine(t, 1)
		engine.Sizes = groupdelete.Sizes{Rows: 1, Target: time.Nanosecond}
		moved := doOnce(engine,
			func(*groupdelete.Stats) bool { return len(b.Rows("SELECT FROM notes WHERE issue_id = 311")) < 101 }, func() { b.Exec(move) })
		b.run(t, engine, groupdelete.Destroyed)
		require.True(t, moved())
		require.Greater(t, len(b.Rows("SELECT FROM notes WHERE issue_id = 311")), 80)
		require.Equal(t, [][]string{{"31"}}, b.Rows("SELECT id FROM projects WHERE id = 31"))
		require.Empty(t, b.Rows("SELECT FROM groups WHERE id = 1"))
	})
}

// Each row is deleted by a statement on its own table, and not by a cascade.
func TestNoCascade(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, forest)
	b.recordDeletions()
	engine := b.engine(t, 1)
	engine.Sizes.Rows = 1
	b.run(t, engine, groupdelete.Destroyed)
	require.Equal(t, [][]string{{"f"}}, b.Rows("SELECT DISTINCT cascade FROM deletions"))
	require.Equal(t, [][]string{{"groups", "5"}, {"issues", "116"}, {"notes", "232"}, {"projects", "58"}},
		b.Rows("SELECT at_table, sum(n) FROM deletions GROUP BY 1 ORDER BY 1"))
}

// recordDeletions records the number of rows that each statement deletes, and whether a
// cascade deletes them.
func (b bundle) recordDeletions() { b.recordDeletionsOf("groups", "projects", "issues", "notes") }

func (b bundle) recordDeletionsOf(tables ...string) {
	b.Exec(`CREATE TABLE deletions (at_table text, cascade boolean, n bigint);
		CREATE FUNCTION record_deletion() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO deletions SELECT TG_TABLE_NAME, current_query() NOT LIKE '%DELETE FROM %"' || TG_TABLE_NAME || '" AS target%', count(*)
			FROM removed HAVING count(*) > 0; RETURN NULL; END $$`)
	for _, table := range tables {
		b.Exec("CREATE TRIGGER record_deletion AFTER DELETE ON " + table +
			" REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION record_deletion()")
	}
}

// If a transaction that has inserted many rows commits while the run waits for the row
// above them, no cascade deletes these rows.
func TestRowsCommittedDuringTheRun(t *testing.T) {
	t.Parallel()
	type example struct {
		insert string
		// projects is the number of projects deleted before the run waits for the locked
		// row.
		projects, rows int64
	}
	pgtest.Each(t, map[string]example{
		"issues": {"INSERT INTO issues SELECT n, 11 FROM generate_series(100001, 103000) AS n", 7, 3016},
		"notes":  {"INSERT INTO notes SELECT n, 111 FROM generate_series(100001, 103000) AS n", 0, 3032},
	}, func(t *testing.T, table string, c example) {
		b := setup(t, issues, someIssues)
		b.recordDeletions()
		other := b.Begin(t, c.insert)
		engine := b.engine(t, 1)
		// The first wait for the lock must last until the commit.
		engine.Sizes.Target = time.Second
		deleted := make(chan struct{})
		doOnce(engine, func(stats *groupdelete.Stats) bool { return stats.Projects == c.projects },
			func() { close(deleted) })
		wait := runWhile(t, engine)
		<-deleted
		b.AwaitLock(t)
		require.NoError(t, other.Commit(t.Context()))
		wait(groupdelete.Destroyed)
		require.Equal(t, [][]string{{"f"}}, b.Rows("SELECT DISTINCT cascade FROM deletions"))
		require.Equal(t, [][]string{{fmt.Sprint(c.rows)}},
			b.Rows("SELECT sum(n) FROM deletions WHERE at_table = $1", table))
	})
}

// A member is deleted if another session commits it after the worker's statement began
// and before the worker locks the project. No foreign key refers from members to
// projects.
func TestMemberCommittedWhileLockedRowsAreSkipped(t *testing.T) {
	t.Parallel()
	// deletionBegun and writerEnded are keys of advisory locks.
	const deletionBegun, writerEnded = 71, 72
	b := setup(t, fmt.Sprintf(`CREATE FUNCTION await_writer() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
		PERFORM pg_catalog.pg_advisory_xact_lock(%d);
		WHILE NOT pg_catalog.pg_try_advisory_xact_lock(%d) LOOP PERFORM pg_catalog.pg_sleep(0.001); END LOOP;
		RETURN old;
	END$$;
	CREATE TRIGGER await_writer BEFORE DELETE ON projects FOR EACH ROW WHEN (old.id = 11) EXECUTE FUNCTION await_writer();`, deletionBegun, writerEnded), "")
	writer := b.Begin(t, "SELECT FROM projects WHERE id = 12 FOR KEY SHARE",
		fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", writerEnded),
		"INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (2, 'Project', 12, 30)")
	engine := b.engine(t, 1)
	engine.Sizes.Target = 10 * time.Second // The statement must not time out before the commit.
	wait := runWhile(t, engine)
	pgtest.Await(t, b.Pool(), "the deletion of project 11 to begin", `SELECT EXISTS (SELECT FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND objid = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`, deletionBegun)
	require.NoError(t, writer.Commit(t.Context()))
	wait(groupdelete.Destroyed)
	release(t, engine)
	require.Empty(t, b.Rows("SELECT source_id FROM members WHERE source_type = 'Project'"))
}

// Rows that are inserted during the run are deleted before the rows that they refer to.
func TestRowsInsertedDuringTheRun(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	engine := b.engine(t, 1)
	late := int64(100_000)
	engine.Progress = func(context.Context, *groupdelete.Stats) {
		if late++; late < 100_050 {
			b.Exec("INSERT INTO issues SELECT $1, max(id) FROM projects WHERE id < 90 HAVING max(id) > 0", late)
		}
	}
	b.run(t, engine, groupdelete.Destroyed)
	require.Empty(t, b.Rows("SELECT FROM issues WHERE project_id < 90"))
	require.Greater(t, late, int64(100_020))
}

// Triggers see no planner settings of the run. The test has a cycle of rows and pins,
// because separate statements delete rows of a cycle and set columns to NULL.
func TestTriggersSeeNoPlannerSettings(t *testing.T) {
	t.Parallel()
	const pins = "CREATE TABLE pins (id bigint PRIMARY KEY, issue_id bigint REFERENCES issues ON DELETE SET NULL); CREATE INDEX ON pins (issue_id);"
	cycle := shapes["cycle through a project"]
	b := setup(t, cycle.tables+issues+pins, cycle.rows+someIssues+"INSERT INTO pins SELECT id, id FROM issues;")
	tables := []string{
		"groups", "projects", "issues", "notes", "members", "group_group_links",
		"group_deletion_schedules", "pins",
	}
	b.RecordPlannerSettings(tables...)
	b.destroy(t, groupdelete.Destroyed)
	b.RequireDefaultPlannerSettings(t, tables...)
}

// When memberships are deleted, project bots are queued for deletion. Detail rows of
// placeholders lose their namespace.
func TestBotsAndPlaceholders(t *testing.T) {
	t.Parallel()
	b := bundle{dbtest.Reference(t)}
	b.Exec(`INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO users (id, username, email, name, user_type, admin) SELECT n, 'u' || n, n || '@example.com', 'U', CASE WHEN n BETWEEN 10 AND 160 THEN 6 ELSE 0 END, n = 1
			FROM generate_series(1, 170) AS n;
		INSERT INTO groups (id, parent_id, name, path) VALUES (1, NULL, 'one', 'one'), (2, 1, 'two', 'two'), (9, NULL, 'nine', 'nine');
		INSERT INTO members (user_id, source_type, source_id, access_level) SELECT id, 'Namespace', 1, 30 FROM users WHERE id < 160;
		INSERT INTO members (user_id, source_type, source_id, access_level) SELECT id, 'Namespace', 9, 30 FROM users WHERE id >= 160;
		INSERT INTO projects (id, group_id, name, path) VALUES (21, 2, 'p', 'p'), (91, 9, 'q', 'q');
		INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (12, 'Namespace', 2, 30), (12, 'Project', 1, 30),
			(160, 'Project', 21, 30), (161, 'Project', 21, 30), (13, 'Project', 21, 30), (162, 'Project', 91, 30);
		UPDATE users SET user_type = 6 WHERE id = 162;
		INSERT INTO import_placeholder_user_details (placeholder_user_id, namespace_id, organization_id) VALUES (3, 1, 1), (4, 9, 1)`)
	b.mark(1, 40)
	b.Exec("INSERT INTO application_settings DEFAULT VALUES")
	stats := b.run(t, b.engineOf(t, 1, &lease.Manager{Jobs: b.Connected, Holder: "b"}, true), groupdelete.Destroyed)
	require.EqualValues(t, 153, stats.Bots,
		"memberships of bots: 150 in group 1, one in group 2, two in project 21")
	require.Equal(t, [][]string{{"151", "10", "160", "1", "1"}},
		b.Rows("SELECT count(*), min(user_id), max(user_id), min(initiator_user_id), max(initiator_user_id) FROM users_ghost_user_migrations"))
	require.Equal(t, [][]string{{"151"}}, b.Rows("SELECT count(*) FROM users WHERE state = 'blocked'"))
	require.Equal(t, [][]string{{"Namespace", "9", "11"}, {"Project", "1", "1"}, {"Project", "91", "1"}},
		b.Rows("SELECT source_type, source_id, count(*) FROM members GROUP BY 1, 2 ORDER BY 1, 2"))
	require.Equal(t, [][]string{{"3", "NULL"}, {"4", "9"}},
		b.Rows("SELECT placeholder_user_id, namespace_id FROM import_placeholder_user_details ORDER BY 1"))
}

// Deleted rows of tracked tables leave tombstones.
func TestDeletedRowsLeaveTombstones(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	b.Track(t, "issues", "projects")
	b.destroy(t, groupdelete.Destroyed)
	require.Equal(t, [][]string{{"public.issues", "16"}, {"public.projects", "8"}},
		b.Rows("SELECT fully_qualified_table_name, count(*) FROM loose_foreign_keys_deleted_records GROUP BY 1 ORDER BY 1"))
}

// When a run ends, the number of deleted rows is in the database. The total is the
// estimate that was made when the destruction began.
func TestProgressIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, forest)
	b.failDeletions("groups", "OLD.id = 1")
	b.destroy(t, groupdelete.Stuck)
	deleted := int64(4 + 58 + 116 + 232 + 4 + 3)
	require.Equal(t, deleted, pgtest.Scalar[int64](t, b.Database, "SELECT done FROM sexton.group_destructions"))
	require.InDelta(t, deleted, pgtest.Scalar[int64](t, b.Database, "SELECT total FROM sexton.group_destructions"), 20)
}
