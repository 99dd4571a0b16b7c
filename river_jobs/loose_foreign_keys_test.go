package riverjobs

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertest"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"sexton/internal/jobrun"
	"sexton/internal/pgtest"
)

// work lets the worker do one job, as River's executor would. The transaction is River's own and holds
// nothing but the job's row.
func (b bundle) work(t *testing.T, database string) (*rivertest.WorkResult, error) {
	t.Helper()
	worker := rivertest.NewWorker(t, riverpgxv5.New(b.db.Pool()),
		&river.Config{Schema: "sexton", Logger: pgtest.Logger(t)}, &LooseForeignKeysCleanupWorker{deps: b.deps})
	tx, err := b.db.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	return worker.Work(t.Context(), t, tx, LooseForeignKeysCleanupArgs{Database: database}, nil)
}

func (b bundle) state() [][]string {
	return b.db.Rows(`SELECT 'child', id, parent_id FROM children UNION ALL SELECT 'note', id, parent_id FROM notes ORDER BY 1, 2`)
}

func TestWorkerCleansUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("DELETE FROM parents WHERE id <= 2")

	result, err := b.work(t, "main")
	require.NoError(t, err)
	require.Equal(t, river.EventKindJobCompleted, result.EventKind)
	require.Equal(t, looseForeignKeysKind, result.Job.Queue)
	after := [][]string{{"child", "2", "3"}, {"child", "5", "3"}, {"note", "1", "NULL"}, {"note", "2", "NULL"}, {"note", "3", "3"}}
	require.Equal(t, after, b.state())
	require.Zero(t, b.db.Pending(t))
	require.Equal(t, [][]string{{"done", "2", "4", "2"}},
		b.db.Rows("SELECT outcome, stats ->> 'processed', stats ->> 'delete_count', stats ->> 'update_count' FROM sexton.runs"))

	_, err = b.work(t, "main")
	require.NoError(t, err)
	require.Equal(t, after, b.state(), "the second run changes nothing")
	require.Equal(t, [][]string{{"t", "1"}, {"f", "1"}}, b.db.Rows("SELECT changed, folded FROM sexton.runs ORDER BY id"))
}

func TestWorkerLeavesALeaseThatIsTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.db.Exec("INSERT INTO sexton.leases (key, token, holder, acquired_at, expires_at) VALUES ($1, 1, 'other', now(), now() + interval '1 hour')",
		looseForeignKeysLease("main"))

	result, err := b.work(t, "main")
	require.NoError(t, err)
	require.Equal(t, river.EventKindJobCompleted, result.EventKind, "the job has succeeded and is not tried again")
	require.EqualValues(t, 1, b.db.Pending(t))
	require.Equal(t, [][]string{{"skipped"}}, b.db.Rows("SELECT outcome FROM sexton.runs"))
	require.Contains(t, b.log.String(), "failed to obtain lock")
}

func TestWorkerRefusesAnUnknownDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	result, err := b.work(t, "ci")
	require.EqualError(t, err, `run loose_foreign_keys_cleanup: no database is configured under the name "ci"`)
	require.Equal(t, river.EventKindJobFailed, result.EventKind)
	require.Equal(t, rivertype.JobStateDiscarded, result.Job.State, "one try and no more")
	require.Empty(t, b.db.Rows("SELECT FROM sexton.runs"))
}

func TestWorkerReportsDefinitionsThatNoLongerFit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.db.Exec("ALTER TABLE notes RENAME parent_id TO parent")

	_, err := b.work(t, "main")
	require.ErrorContains(t, err, "definitions.yml:5:30: notes[0].column: table notes has no column parent_id (did you mean parent?)")
	require.Equal(t, [][]string{{"failed", err.Error()}}, b.db.Rows("SELECT outcome, error FROM sexton.runs"))
	require.EqualValues(t, 1, b.db.Pending(t), "the work waits for better definitions")
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

	_, err := b.work(t, "main")
	require.NoError(t, err)
	require.Contains(t, b.log.String(), "triggers installed on new partitions")
	require.Contains(t, b.log.String(), "parents_2")
	b.db.Exec("INSERT INTO parents VALUES (11); INSERT INTO children VALUES (7, 11); DELETE FROM parents_2 WHERE id = 11")
	require.Equal(t, [][]string{{"public.parents", "11"}},
		b.db.Rows("SELECT fully_qualified_table_name, primary_key_value FROM loose_foreign_keys_deleted_records"))
	_, err = b.work(t, "main")
	require.NoError(t, err)
	require.NotContains(t, b.state(), []string{"child", "7", "11"})
}

func TestArgsAreFrozen(t *testing.T) {
	t.Parallel()
	args := LooseForeignKeysCleanupArgs{Database: "main"}
	require.Equal(t, "loose_foreign_keys_cleanup", args.Kind())
	encoded, err := json.Marshal(args)
	require.NoError(t, err)
	require.JSONEq(t, `{"database":"main"}`, string(encoded))
	require.Equal(t, "loose_foreign_keys/cleanup_worker:main", looseForeignKeysLease("main"))
}

func TestInsertOptions(t *testing.T) {
	t.Parallel()
	options := LooseForeignKeysCleanupArgs{}.InsertOpts()
	require.Equal(t, "loose_foreign_keys_cleanup", options.Queue)
	require.Equal(t, 1, options.MaxAttempts)
	require.True(t, options.UniqueOpts.ByArgs)
	require.ElementsMatch(t, []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateRetryable, rivertype.JobStateScheduled,
	}, options.UniqueOpts.ByState, "a completed job must not keep the next one away")
}

func TestJobsAreUniquePerDatabaseUntilCompleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, err := river.NewClient(riverpgxv5.New(b.db.Pool()), &river.Config{Schema: "sexton", Logger: pgtest.Logger(t)})
	require.NoError(t, err)
	insert := func(database string) *rivertype.JobInsertResult {
		result, err := client.Insert(t.Context(), LooseForeignKeysCleanupArgs{Database: database}, nil)
		require.NoError(t, err)
		return result
	}
	first := insert("main")
	require.False(t, first.UniqueSkippedAsDuplicate)
	require.True(t, insert("main").UniqueSkippedAsDuplicate)
	require.False(t, insert("ci").UniqueSkippedAsDuplicate)

	b.db.Exec("UPDATE sexton.river_job SET state = 'completed', finalized_at = now() WHERE id = $1", first.Job.ID)
	require.False(t, insert("main").UniqueSkippedAsDuplicate)
}

func TestTimeoutIsTheLease(t *testing.T) {
	t.Parallel()
	job := &river.Job[LooseForeignKeysCleanupArgs]{Args: LooseForeignKeysCleanupArgs{Database: "main"}}
	for setting, want := range map[string]time.Duration{
		"SEXTON_DATABASES__MAIN__PACE=normal":         40 * time.Second,
		"SEXTON_DATABASES__MAIN__PACE=turbo":          55 * time.Second,
		"SEXTON_DATABASES__MAIN__LIMITS__RUNTIME=50s": 60 * time.Second,
	} {
		url := "SEXTON_DATABASES__MAIN__URL=postgres://nobody@nowhere.invalid/none"
		worker := &LooseForeignKeysCleanupWorker{deps: Deps{Config: configuration(t, url, setting)}}
		require.Equal(t, want, worker.Timeout(job), setting)
	}
}

func TestRunReportsThePass(t *testing.T) {
	t.Parallel()
	b := setup(t, "SEXTON_DATABASES__MAIN__URL=postgres://nobody@nowhere.invalid/none", "SEXTON_DATABASES__MAIN__LIMITS__DELETES=1")
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	report, err := Jobs(b.deps.Config)[0].Run(t.Context(), b.deps, "main")
	require.NoError(t, err)
	require.Equal(t, jobrun.OverLimit, report.Outcome)
	require.Equal(t, "main", report.Database)
}
