package riverjobs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// workDatabase runs one job for a database in a River client, and requires that the job
// has no error. It returns the event of the job's end.
func (b bundle) workDatabase(t *testing.T, database string) *river.Event {
	event := b.workOne(t, LooseForeignKeysCleanupArgs{Database: database})
	require.Empty(t, event.Job.Errors)
	return event
}

func (b bundle) state() [][]string {
	return b.db.Rows(`SELECT 'child', id, parent_id FROM children UNION ALL SELECT 'note', id, parent_id FROM notes ORDER BY 1, 2`)
}

func TestWorkerCleansUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("DELETE FROM parents WHERE id <= 2")

	result := b.workDatabase(t, "main")
	require.Equal(t, river.EventKindJobCompleted, result.Kind)
	require.Equal(t, LooseForeignKeys, result.Job.Queue)
	after := [][]string{
		{"child", "2", "3"},
		{"child", "5", "3"},
		{"note", "1", "NULL"},
		{"note", "2", "NULL"},
		{"note", "3", "3"},
	}
	require.Equal(t, after, b.state())
	require.Zero(t, b.db.Pending(t))
	require.Equal(t, [][]string{{"done", "2", "4", "2"}},
		b.db.Rows("SELECT outcome, stats ->> 'processed', stats ->> 'delete_count', stats ->> 'update_count' FROM sexton.runs"))

	b.workDatabase(t, "main")
	require.Equal(t, after, b.state(), "the second run changes nothing")
	require.Equal(t, [][]string{{"t", "1"}, {"f", "1"}},
		b.db.Rows("SELECT changed, folded FROM sexton.runs ORDER BY id"))
}

// A role that may enqueue can leave its transaction open. Other sessions cannot see that
// job, and an equal job would wait for the transaction. The subscription then inserts a
// second job, which does the work.
func TestOpenEnqueueOfTheSameJobDoesNotBlockWork(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"no other job":    "DELETE FROM sexton.river_job",
		"a scheduled job": "UPDATE sexton.river_job SET state = 'scheduled', scheduled_at = now() + interval '1 hour'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.insertKinds()
			b.enqueue(t, LooseForeignKeysCleanupArgs{Database: "main"})
			b.db.Exec(before)
			open := pgtest.Begin(t, b.db.Pool(),
				`SELECT sexton.enqueue('loose_foreign_keys_cleanup', '{"database": "main"}')`)
			subscription := jobOf(b.deps, LooseForeignKeys).Subscription(b.deps, b.db.Connected)
			b.start(t)
			for parent := range 2 {
				b.db.Exec("DELETE FROM parents WHERE id = $1", parent+1)
				require.Zero(t, pgtest.Must(subscription.Work(t.Context(), b.db.Pool(), true))(t))
				require.Zero(t, b.db.Pending(t))
			}
			_, err := Enqueue(t.Context(), b.db.Pool(), b.db.Connected, LooseForeignKeys,
				LooseForeignKeysCleanupArgs{Database: "main"}, nil)
			require.ErrorContains(t, err, "another open transaction has enqueued the same job")
			require.NoError(t, open.Rollback(t.Context()))
		})
	}
}

func TestWorkerSkipsAHeldLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.db.Exec("INSERT INTO sexton.leases (key, token, holder, acquired_at, expires_at) VALUES ($1, 1, 'other', now(), now() + interval '1 hour')",
		LooseForeignKeysLease("main"))

	result := b.workDatabase(t, "main")
	require.Equal(t, river.EventKindJobCompleted, result.Kind, "the job has succeeded and is not retried")
	require.EqualValues(t, 1, b.db.Pending(t))
	require.Equal(t, [][]string{{"skipped"}}, b.db.Rows("SELECT outcome FROM sexton.runs"))
	require.Contains(t, b.log.String(), "failed to obtain lock")
}

func TestWorkerRefusesAnUnknownDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	result := b.workOne(t, LooseForeignKeysCleanupArgs{Database: "ci"})
	require.Equal(t, `run loose_foreign_keys_cleanup: no database is configured under the name "ci"`,
		result.Job.Errors[0].Error)
	require.Equal(t, river.EventKindJobFailed, result.Kind)
	require.Equal(t, rivertype.JobStateDiscarded, result.Job.State, "the job has one attempt")
	require.Empty(t, b.db.Rows("SELECT FROM sexton.runs"))
}

// If a column of one child table is renamed, its tombstones are deferred. Other tables
// and other parents are processed.
func TestWorkerSkipsADefinitionThatNoLongerFits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.db.Exec("ALTER TABLE notes RENAME parent_id TO parent")

	b.workDatabase(t, "main")
	const reason = "table notes has no column parent_id"
	b.db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.workDatabase(t, "main")
	require.Equal(t, 1, strings.Count(b.log.String(), "definitions.yml:5:30: notes[0].column: "+reason+
		" (did you mean parent?)"), "the error is logged once")
	require.Equal(t, [][]string{{"done", "notes", reason}},
		b.db.Rows("SELECT DISTINCT outcome, stats -> 'errors' -> 0 ->> 'table', stats -> 'errors' -> 0 ->> 'message' FROM sexton.runs"))
	require.Empty(t, b.db.Rows("SELECT FROM children WHERE parent_id = 1"), "rows of the other table are deleted")
	require.Equal(t, [][]string{{"0", "t", "notes: " + reason}},
		b.db.Rows("SELECT cleanup_attempts, consume_after > now(), last_error FROM loose_foreign_keys_deleted_records"),
		"the tombstone is deferred without a counted attempt")

	b.db.Exec("ALTER TABLE notes RENAME parent TO parent_id; UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.workDatabase(t, "main")
	require.Zero(t, b.db.Pending(t))
	require.Empty(t, b.db.Rows("SELECT FROM notes WHERE parent_id = 1"))
}

func TestWorkerTracksNewPartitions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec(`
		DROP TABLE parents;
		CREATE TABLE parents (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE parents_1 PARTITION OF parents FOR VALUES FROM (1) TO (10);`)
	b.db.Track(t, "parents")
	b.db.Exec("CREATE TABLE parents_2 PARTITION OF parents FOR VALUES FROM (10) TO (20)")

	b.workDatabase(t, "main")
	require.Contains(t, b.log.String(), "partition_triggers_installed")
	require.Contains(t, b.log.String(), "parents_2")
	b.db.Exec("INSERT INTO parents VALUES (11); INSERT INTO children VALUES (7, 11); DELETE FROM parents_2 WHERE id = 11")
	require.Equal(t, [][]string{{"public.parents", "11"}},
		b.db.Rows("SELECT fully_qualified_table_name, primary_key_value FROM loose_foreign_keys_deleted_records"))
	b.workDatabase(t, "main")
	require.NotContains(t, b.state(), []string{"child", "7", "11"})
}

// A tombstone that is inserted while a job ends does not wait for the next tick. The job
// queries again at its end and inserts a successor.
func TestSuccessorIsInsertedIfRowsAreDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// The trigger inserts a tombstone after the last query of the pass.
	b.db.Exec(`CREATE SEQUENCE once;
		CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('public.once') = 1 THEN
				INSERT INTO public.loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.parents', 2);
			END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER late AFTER UPDATE OF ended_at ON sexton.runs FOR EACH ROW EXECUTE FUNCTION late()`)
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.workDatabase(t, "main")
	require.GreaterOrEqual(t, pgtest.Scalar[int64](t, b.db.Database, "SELECT count(*) FROM sexton.river_job"), int64(2))
	require.Empty(t, b.db.Rows("SELECT FROM sexton.runs WHERE error IS NOT NULL"))
	require.Equal(t, "loose_foreign_keys_cleanup true",
		pgtest.Scalar[string](t, b.db.Database, `SELECT concat_ws(' ', job.metadata -> 'output' ->> 'kind', (job.metadata -> 'output' ? 'run_id')::text,
			job.metadata -> 'output' ->> 'stats') FROM sexton.river_job AS job ORDER BY job.id LIMIT 1`), "only the history contains the statistics")
}

// If another client has reclaimed a job, this worker neither completes the job nor
// inserts a successor.
func TestReclaimedJobIsNotFinished(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec(`CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			UPDATE sexton.river_job SET attempted_by = array_append(attempted_by, 'other');
			RETURN NULL;
		END $$;
		CREATE TRIGGER take AFTER DELETE ON children FOR EACH STATEMENT EXECUTE FUNCTION take()`)
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	done := make(chan struct{})
	b.deps.Working = func(int64) func() { return func() { close(done) } }
	client, stop := b.start(t)
	pgtest.Must(client.Insert(t.Context(), LooseForeignKeysCleanupArgs{Database: "main"}, nil))(t)
	<-done
	stop()
	require.Equal(t, [][]string{{"running", "{test,other}"}},
		b.db.Rows("SELECT state, attempted_by FROM sexton.river_job"), "the job is still running, without a successor")
}

func TestArgsAreFrozen(t *testing.T) {
	t.Parallel()
	args := LooseForeignKeysCleanupArgs{Database: "main"}
	require.Equal(t, "loose_foreign_keys_cleanup", args.Kind())
	require.JSONEq(t, `{"database":"main"}`, string(pgtest.Must(json.Marshal(args))(t)))
	require.Equal(t, "loose_foreign_keys/cleanup_worker:main", LooseForeignKeysLease("main"))
}

func TestJobsAreUniquePerDatabaseUntilCompleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client := pgtest.Must(river.NewClient(riverpgxv5.New(b.db.Pool()),
		&river.Config{Schema: "sexton", Logger: pgtest.Logger(t)}))(t)
	insert := func(database string) *rivertype.JobInsertResult {
		return pgtest.Must(client.Insert(t.Context(), LooseForeignKeysCleanupArgs{Database: database}, nil))(t)
	}
	first := insert("main")
	require.False(t, first.UniqueSkippedAsDuplicate)
	require.True(t, insert("main").UniqueSkippedAsDuplicate)
	require.False(t, insert("ci").UniqueSkippedAsDuplicate)

	b.db.Exec("UPDATE sexton.river_job SET state = 'completed', finalized_at = now() WHERE id = $1", first.Job.ID)
	require.False(t, insert("main").UniqueSkippedAsDuplicate)
}

// At its limit, undo saves no more rows, or the worker waits if it is configured so.
// Saved rows expire after undo was switched off.
func TestWorkerLimitsTheUndoSize(t *testing.T) {
	t.Parallel()
	const undo, on = "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__", "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__KEEP=72h"
	undoState := func(b bundle) [][]string {
		return b.db.Rows("SELECT sum(rows)::text, sum(left_out)::text, (SELECT (full_since IS NOT NULL)::text FROM sexton.undo_state) FROM sexton.undo")
	}
	with := func(b bundle, environ ...string) bundle {
		b.deps.Config, b.deps.Bindings = configuration(t, environ...), &Bindings{}
		return b
	}
	b := withDefinitions(t, dbtest.TrackedWithUndo(t, tables, "parents"), on, undo+"MAX_SIZE=1")
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.workDatabase(t, "main")
	b.db.Exec("DELETE FROM parents WHERE id = 2")
	require.Equal(t, [][]string{{"1", "4", "true"}}, undoState(b), "the children and the note of the first parent, and the second parent, are not kept")
	require.Contains(t, b.log.String(), "undo_max_size_reached")

	waiting := with(b, on, undo+"MAX_SIZE=1", undo+"WHEN_FULL=wait")
	event := waiting.workOne(t, LooseForeignKeysCleanupArgs{Database: "main"})
	require.Contains(t, event.Job.Errors[0].Error, "raise it, lower undo.keep, or set undo.when_full to left_out")
	require.EqualValues(t, 1, b.db.Pending(t))
	with(b, on).workDatabase(t, "main")
	require.Zero(t, b.db.Pending(t))
	require.Equal(t, "false", undoState(b)[0][2], "the mark is removed without a limit")

	b.db.Exec("UPDATE sexton.undo_state SET keep = '-3 days'")
	with(b).workDatabase(t, "main")
	require.Equal(t, [][]string{{"sexton.undo_rest"}},
		b.db.Rows("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'sexton.undo'::regclass"))
}

func TestInsertOptions(t *testing.T) {
	t.Parallel()
	options := LooseForeignKeysCleanupArgs{}.InsertOpts()
	require.Equal(t, "loose_foreign_keys_cleanup", options.Queue)
	require.Equal(t, 1, options.MaxAttempts)
	require.True(t, options.UniqueOpts.ByArgs)
	require.ElementsMatch(t, []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateRetryable,
		rivertype.JobStateScheduled,
	}, options.UniqueOpts.ByState, "a completed job must not keep the next one away")
}
