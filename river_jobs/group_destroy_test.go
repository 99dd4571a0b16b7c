package riverjobs

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/drain/dml"
	"sexton/internal/groupdelete"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/listen"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

// destroyBundle returns a groupBundle in which both groups are due and group 10 has a
// project with an issue.
func destroyBundle(t *testing.T) bundle {
	b := groupBundle(t)
	b.db.Exec(markedLongAgo)
	b.db.Exec(`DELETE FROM sexton.river_queue;
		INSERT INTO projects (id, group_id, name, path) VALUES (100, 10, 'P', 'p');
		INSERT INTO issues (project_id, title) VALUES (100, 'first')`)
	return b
}

func TestGroupDestroyWorker(t *testing.T) {
	t.Parallel()
	b := destroyBundle(t)
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t,
		GroupDestroyArgs{GroupID: dml.IntegerID(10), UserID: dml.IntegerID(1)}).Kind)
	require.Equal(t, [][]string{{"11"}}, b.db.Rows("SELECT id FROM groups"))
	require.Empty(t, b.db.Rows("SELECT FROM issues"))
	require.Equal(t, [][]string{{"group_destroy", "done", "destroyed", "1"}},
		b.db.Rows("SELECT kind, outcome, stats ->> 'outcome', stats ->> 'projects' FROM sexton.runs"))
	require.Contains(t, b.log.String(),
		"msg=group_processed kind=group_destroy database=main group_id=10 user_id=1 outcome=destroyed groups=1 projects=1")

	require.Equal(t, river.EventKindJobCompleted, b.workOne(t,
		GroupDestroyArgs{GroupID: dml.IntegerID(10), UserID: dml.IntegerID(1)}).Kind,
		"a deleted group is not an error")
	require.Len(t, b.db.Rows("SELECT FROM sexton.events WHERE kind = 'group_destroyed'"), 1)
}

// If two users have requested the deletion, the second job finds the group locked or
// deleted. The deletion is reported once.
func TestGroupDestroyOfTwoUsers(t *testing.T) {
	t.Parallel()
	b := destroyBundle(t)
	client := b.newClient(t, "test")
	events, cancel := client.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed)
	defer cancel()
	for user := range int64(2) {
		b.enqueue(t, GroupDestroyArgs{GroupID: dml.IntegerID(10), UserID: dml.IntegerID(user + 1)})
	}
	require.Len(t, b.db.Rows("SELECT FROM sexton.river_job WHERE kind = 'group_destroy'"), 2)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.WithoutCancel(t.Context()))) }()
	require.Equal(t, river.EventKindJobCompleted, (<-events).Kind)
	b.db.Exec("UPDATE sexton.river_job SET scheduled_at = now(), state = 'available' WHERE state IN ('scheduled', 'retryable')")
	require.Equal(t, river.EventKindJobCompleted, (<-events).Kind)
	require.Equal(t, [][]string{{"11"}}, b.db.Rows("SELECT id FROM groups"))
	require.Len(t, b.db.Rows("SELECT FROM sexton.events WHERE kind = 'group_destroyed'"), 1)
	require.Equal(t, [][]string{{"1"}},
		b.db.Rows("SELECT count(*) FROM sexton.runs WHERE kind = 'group_destroy' AND stats ->> 'outcome' = 'destroyed'"))
}

// If a trigger prevents the deletion, the job fails with the reason and is retried.
func TestStuckGroupDestroyFails(t *testing.T) {
	t.Parallel()
	b := destroyBundle(t)
	b.db.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept' USING ERRCODE = 'ZZ001'; END $$;
		CREATE TRIGGER refuse BEFORE DELETE ON projects FOR EACH ROW EXECUTE FUNCTION refuse()`)
	event := b.workOne(t, GroupDestroyArgs{GroupID: dml.IntegerID(10), UserID: dml.IntegerID(1)})
	require.Equal(t, river.EventKindJobFailed, event.Kind)
	require.Equal(t, 25, event.Job.MaxAttempts)
	require.Equal(t, "destroy group 10: projects: SQLSTATE ZZ001: kept", event.Job.Errors[0].Error)
	require.Equal(t, [][]string{{"1", "projects: SQLSTATE ZZ001: kept"}},
		b.db.Rows("SELECT attempts, last_error FROM sexton.group_destructions"))
	require.Contains(t, b.log.String(), "msg=group_stuck")
}

// If another process holds the group's lease, the job is snoozed without counting an
// attempt.
func TestGroupDestroyWaitsForAHeldLease(t *testing.T) {
	t.Parallel()
	b := destroyBundle(t)
	other := lease.Manager{Jobs: b.db.Connected, Holder: "other"}
	pgtest.Must(other.Acquire(t.Context(), groupdelete.LeaseKey(dml.IntegerID(10)), groupdelete.LeaseTTL,
		b.db.Connected))(t)
	require.Equal(t, river.EventKindJobSnoozed, b.workOne(t,
		GroupDestroyArgs{GroupID: dml.IntegerID(10), UserID: dml.IntegerID(1)}).Kind)
	require.Len(t, b.db.Rows("SELECT FROM issues"), 1)
}

// In the foreground, the job deletes the group in the same way. An unfinished deletion
// counts as over the limit, so that a successor continues it.
func TestGroupDestroyInTheForeground(t *testing.T) {
	t.Parallel()
	b := destroyBundle(t)
	index := slices.IndexFunc(Jobs(b.deps.Config), func(job Job) bool { return job.Kind == GroupDestroy })
	args := pgtest.Must(json.Marshal(GroupDestroyArgs{GroupID: dml.IntegerID(10), UserID: dml.IntegerID(1)}))(t)
	report := pgtest.Must(Jobs(b.deps.Config)[index].Run(t.Context(), b.deps, Pass{Database: "main", Args: args}))(t)
	require.Equal(t, jobrun.Done, report.Outcome)
	require.True(t, groupResult(&groupdelete.Stats{Outcome: groupdelete.Unfinished}).Over)
}

// groupBundle returns a bundle of the reference application with an administrator (1),
// Ada (2), and the groups 10 and 11, whose deletion the administrator and Ada have
// scheduled. The queue group_destroy is paused.
func groupBundle(t *testing.T) bundle {
	b := newApplication(t, `
		INSERT INTO application_settings (deletion_adjourned_period) VALUES (30);
		INSERT INTO users (id, username, email, name, admin) VALUES (1, 'admin', 'admin@example.com', 'Admin', true), (2, 'ada', 'ada@example.com', 'Ada', false);
		INSERT INTO groups (id, name, path) VALUES (10, 'Ten', 'ten'), (11, 'Eleven', 'eleven');
		INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (2, 'Namespace', 11, 50);`, "SEXTON_ADJOURNED_GROUPS__ENABLED=true")
	b.db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ('group_destroy', now(), now())")
	b.db.Exec("SELECT sexton.schedule_group_deletion(10, 1), sexton.schedule_group_deletion(11, 2)")
	return b
}

const markedLongAgo = `UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - 31;
	UPDATE group_deletion_schedules SET marked_for_deletion_on = marked_for_deletion_on - 31`

func TestAdjournedGroupsWorker(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	require.False(t, b.due(t, AdjournedGroupDeletion).Now)
	require.Positive(t, b.due(t, AdjournedGroupDeletion).In)
	b.db.Exec(markedLongAgo + "; DELETE FROM members")
	require.True(t, b.due(t, AdjournedGroupDeletion).Now)
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t, AdjournedGroupDeletionArgs{}).Kind)
	require.Equal(t, [][]string{{"10", "1"}},
		b.db.Rows("SELECT args ->> 'group_id', args ->> 'user_id' FROM sexton.river_job WHERE kind = 'group_destroy'"))
	expired := pgtest.Scalar[time.Time](t, b.db.Database, `SELECT (marked_for_deletion_on + 1)::timestamp AT TIME ZONE 'UTC'
		+ make_interval(days => (now() AT TIME ZONE 'UTC')::date - sexton.group_deletion_cutoff()) FROM groups WHERE id = 10`)
	job := rivertype.JobRow{CreatedAt: time.Now(), Metadata: pgtest.Scalar[[]byte](t, b.db.Database,
		"SELECT metadata::text::bytea FROM sexton.river_job WHERE kind = 'group_destroy'")}
	require.True(t, expired.Equal(dueAt(&job)), "%s: latency counts from the end of the period, %s", dueAt(&job), expired)
	job.Metadata = []byte(`{}`)
	require.Equal(t, job.CreatedAt, dueAt(&job))
	require.Equal(t, [][]string{{"eleven"}}, b.db.Rows("SELECT path FROM groups WHERE marked_for_deletion_on IS NULL"))
	require.Equal(t, [][]string{{"done", "1", "1"}},
		b.db.Rows("SELECT outcome, stats ->> 'groups_enqueued', stats ->> 'groups_restored' FROM sexton.runs WHERE changed"))
	require.Regexp(t,
		`level=INFO msg=group_enqueued kind=adjourned_group_deletion database=main group_id=10 namespace=ten-deletion_scheduled-10 user_id=1 destroy_at=`, b.log.String())
	require.Contains(t, b.log.String(),
		"level=INFO msg=group_restored kind=adjourned_group_deletion database=main group_id=11 namespace=eleven-deletion_scheduled-11 user_id=2 reason=not_permitted")
	require.Equal(t, listen.Due{}, b.due(t, AdjournedGroupDeletion))
	b.workOne(t, AdjournedGroupDeletionArgs{})
	require.Len(t, b.db.Rows("SELECT FROM sexton.events WHERE kind = 'group_restored'"), 1,
		"the second run changes nothing")
	require.Len(t, b.db.Rows("SELECT FROM sexton.river_job WHERE kind = 'group_destroy'"), 1)
}

func TestAdjournedGroupsAreNotDueWhilePausedOrDeferred(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	b.db.Exec(markedLongAgo)
	require.True(t, b.due(t, AdjournedGroupDeletion).Now)
	b.db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ($1, now(), now())",
		AdjournedGroupDeletion)
	require.False(t, b.due(t, AdjournedGroupDeletion).Now, "paused")
	b.db.Exec("DELETE FROM sexton.river_queue")
	b.db.Exec(`INSERT INTO sexton.river_job (args, kind, max_attempts, queue, scheduled_at, state)
		VALUES ('{}', $1, 25, $1, now() + interval '10 minutes', 'retryable')`, AdjournedGroupDeletion)
	retryDelay := func() time.Duration {
		return pgtest.Must(adjournedGroups(b.deps.Config).retryDelay(t.Context(), b.deps, b.db.Connected))(t)
	}
	require.InDelta(t, 600, retryDelay().Seconds(), 60, "wake-ups wait for the next attempt")
	b.db.Exec("UPDATE sexton.river_job SET scheduled_at = now() + interval '3 days', attempted_at = now() - interval '10 minutes'")
	require.InDelta(t, 3000, retryDelay().Seconds(), 60, "a job that waits for days would prevent the jobs of ticks")
	b.db.Exec("UPDATE sexton.river_job SET scheduled_at = now()")
	require.Zero(t, retryDelay())
}

func TestFailedPassIsRetried(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	b.db.Exec(markedLongAgo + "; DROP FUNCTION sexton.decide_group_deletion")
	require.Equal(t, river.EventKindJobFailed, b.workOne(t, AdjournedGroupDeletionArgs{}).Kind)
	require.Equal(t, [][]string{{"f", "1", "25"}}, b.db.Rows(
		"SELECT finalized_at IS NOT NULL, attempt, max_attempts FROM sexton.river_job WHERE kind = $1",
		AdjournedGroupDeletion))
	require.Contains(t, b.log.String(), "msg=run_failed")
	require.Empty(t, b.db.Rows("SELECT FROM sexton.group_deletion_failures"), "no group counts as failed")
}

func TestFailedGroupIsLogged(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	b.db.Exec(markedLongAgo + "; DELETE FROM sexton.job_kinds WHERE kind = 'group_destroy'")
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t, AdjournedGroupDeletionArgs{}).Kind)
	require.Contains(t, b.log.String(),
		"level=ERROR msg=group_failed kind=adjourned_group_deletion database=main group_id=10 namespace=\"\" user_id=0 "+
			"sqlstate=22023 error=\"enqueue: there is no kind 'group_destroy'\" stack=\"PL/pgSQL function")
	require.Len(t, b.db.Rows("SELECT FROM sexton.group_deletion_failures"), 2)
	require.InDelta(t, time.Minute, b.due(t, AdjournedGroupDeletion).In, float64(10*time.Second))
}

// If the tables do not fit at the start, each pass checks them again and runs as soon as
// they fit.
func TestWrongTablesAreCheckedAgain(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	b.db.Exec(markedLongAgo + "; ALTER TABLE members RENAME requested_at TO asked_at")
	b.deps.Bindings.SetErrors(AdjournedGroupDeletion, "main", []string{"found at the start"})
	const wrong = "table members has no column requested_at (add it)"
	_, err := run(t.Context(), b.deps, AdjournedGroupDeletionArgs{})
	require.ErrorContains(t, err, wrong)
	require.Len(t, b.deps.Bindings.Held(), 1)
	require.Contains(t, b.deps.Bindings.Held()[0], wrong)
	b.db.Exec("ALTER TABLE members RENAME asked_at TO requested_at")
	b.mustRun(t, AdjournedGroupDeletionArgs{})
	require.Empty(t, b.deps.Bindings.Held())
	require.Len(t, b.db.Rows("SELECT FROM sexton.river_job WHERE kind = 'group_destroy'"), 2)
}

func TestWithoutAPeriodTheJobIsSkipped(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	b.db.Exec(markedLongAgo + "; DELETE FROM application_settings")
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t, AdjournedGroupDeletionArgs{}).Kind)
	require.Equal(t, [][]string{{"skipped"}}, b.db.Rows("SELECT outcome FROM sexton.runs"))
	require.Contains(t, b.log.String(),
		"level=WARN msg=no_group_due")
	require.Empty(t, b.db.Rows("SELECT FROM sexton.river_job WHERE state <> 'completed'"), "no successor")
}

// A mark of a group or schedule wakes the job if its date makes a group due. Other
// changes do not wake the job.
func TestMarksWakeTheJob(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	conn := pgtest.Connect(t, b.db.URL)
	cfg, parents := Tracking(b.deps.Config, b.db.Connected, nil)
	pgtest.Must(triggers.Install(t.Context(), conn, cfg, parents))(t)
	require.Empty(t, pgtest.Must(triggers.Status(t.Context(), conn, cfg, parents))(t))
	pgtest.Exec(t, conn, "LISTEN "+triggers.WakeChannel)
	for _, step := range []struct {
		statement string
		wakes     bool
	}{
		{"INSERT INTO groups (id, name, path) VALUES (12, 'Twelve', 'twelve')", false},
		{"SELECT sexton.schedule_group_deletion(12, 1)", false},
		{"UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - 31 WHERE id = 12", true},
		{"UPDATE groups SET name = 'x' WHERE id = 12", false},
		{
			"UPDATE group_deletion_schedules SET marked_for_deletion_on = marked_for_deletion_on - 31 WHERE group_id = 12",
			true,
		},
		{"SELECT sexton.cancel_group_deletion(12, 1)", false},
		{"SELECT sexton.delete_group_now(12, 1)", true},
		{"INSERT INTO groups (id, name, path, marked_for_deletion_on) VALUES (13, 'Thirteen', 'thirteen', current_date - 99)", true},
	} {
		b.db.Exec(step.statement)
		pgtest.Exec(t, conn, "SELECT pg_notify($1, 'end of step')", triggers.WakeChannel)
		woken := false
		for payload := ""; payload != "end of step"; {
			payload = pgtest.Must(conn.WaitForNotification(t.Context()))(t).Payload
			woken = woken || payload == AdjournedGroupDeletion
		}
		require.Equal(t, step.wakes, woken, step.statement)
	}
	require.EqualValues(t, 3, pgtest.Scalar[int64](t, b.db.Database, "SELECT count(*) FROM group_deletion_schedules"))
}

// An open transaction that has enqueued the deletion of one group counts as no failed
// attempt of that group, and does not prevent the jobs of other groups.
func TestOpenEnqueueOfOneGroupDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	b := groupBundle(t)
	b.db.Exec(markedLongAgo)
	open := pgtest.Begin(t, b.db.Pool(), `SELECT sexton.enqueue('group_destroy', '{"group_id": 10, "user_id": 1}')`)
	for range 2 {
		pgtest.Must(run(t.Context(), b.deps, AdjournedGroupDeletionArgs{}))(t)
		require.Equal(t, [][]string{{"11"}}, b.db.Rows("SELECT args ->> 'group_id' FROM sexton.river_job"))
		require.Equal(t, [][]string{{"10", "0", "t"}}, b.db.Rows(
			"SELECT group_id, attempts, retry_at BETWEEN now() AND now() + interval '1 minute' FROM sexton.group_deletion_failures"))
		b.db.Exec("UPDATE sexton.group_deletion_failures SET retry_at = now()")
	}
	require.NoError(t, open.Rollback(t.Context()))
	pgtest.Must(run(t.Context(), b.deps, AdjournedGroupDeletionArgs{}))(t)
	require.Equal(t, [][]string{{"10"}, {"11"}},
		b.db.Rows("SELECT args ->> 'group_id' FROM sexton.river_job ORDER BY 1"))
}

// Groups of a configured table with uuid keys are deleted by both jobs, and a mark that
// the application sets wakes the first job.
func TestGroupsOfAnotherTable(t *testing.T) {
	t.Parallel()
	const id = "00000000-0000-0000-0000-00000000000a"
	of := migrate.Groups{
		Table: "organizations", Key: "uid", MarkedOn: "deleted_on", MarkedBy: "deleted_by", Period: 30,
		Rename: []string{"slug"},
	}
	db := dbtest.WithOrganizations(t, `
		CREATE TABLE organizations (uid uuid PRIMARY KEY, slug text NOT NULL UNIQUE, deleted_on date, deleted_by bigint);
		CREATE TABLE documents (id bigint PRIMARY KEY, organization uuid REFERENCES organizations ON DELETE CASCADE);
		CREATE INDEX ON documents (organization);
		INSERT INTO organizations VALUES ('`+id+`', 'ten');
		INSERT INTO documents SELECT n, '`+id+`' FROM generate_series(1, 100) AS n`, of)
	const key = "SEXTON_ADJOURNED_GROUPS__"
	b := newBundle(t, db, "SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=false", key+"ENABLED=true", key+"GROUPS__TABLE=organizations",
		key+"GROUPS__KEY=uid",
		key+"GROUPS__MARKED_ON=deleted_on", key+"GROUPS__MARKED_BY=deleted_by", key+"PERIOD=30d", key+"RENAME=slug")
	b.insertKinds()
	conn := pgtest.Connect(t, db.URL)
	cfg, parents := Tracking(b.deps.Config, db.Connected, nil)
	pgtest.Must(triggers.Install(t.Context(), conn, cfg, parents))(t)
	pgtest.Exec(t, conn, "LISTEN "+triggers.WakeChannel)
	db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ('group_destroy', now(), now())")
	require.False(t, b.due(t, AdjournedGroupDeletion).Now)
	db.Exec("UPDATE organizations SET deleted_on = current_date - 40, deleted_by = 7")
	require.Equal(t, AdjournedGroupDeletion, pgtest.Must(conn.WaitForNotification(t.Context()))(t).Payload)
	require.True(t, b.due(t, AdjournedGroupDeletion).Now)
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t, AdjournedGroupDeletionArgs{}).Kind)
	require.Equal(t, [][]string{{`{"user_id": 7, "group_id": "` + id + `"}`}},
		db.Rows("SELECT args FROM sexton.river_job WHERE kind = 'group_destroy'"))
	db.Exec("DELETE FROM sexton.river_job; DELETE FROM sexton.river_queue")
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t,
		GroupDestroyArgs{GroupID: dml.ID{Text: id}, UserID: dml.IntegerID(7)}).Kind)
	require.Empty(t, db.Rows("SELECT FROM organizations UNION ALL SELECT FROM documents"))
	require.Equal(t, [][]string{{`"` + id + `"`, "ten"}},
		db.Rows("SELECT payload -> 'group_id', payload ->> 'path' FROM sexton.events WHERE kind = 'group_destroyed'"))
}
