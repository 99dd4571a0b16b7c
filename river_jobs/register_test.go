package riverjobs

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"sexton/internal/groupdelete"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/metrics"
	"sexton/internal/pgtest"
)

// everyArgs returns the arguments of the kinds that this test registers.
func everyArgs() []river.JobArgs {
	return []river.JobArgs{
		LooseForeignKeysCleanupArgs{Database: "main"},
		MigrateRecordsToGhostUserArgs{},
		AdjournedGroupDeletionArgs{},
		GroupDestroyArgs{},
	}
}

func TestRegisterAddsTheEnabledKindsOnly(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{
		"SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=true", "SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=false",
		"SEXTON_GHOST_USERS__ENABLED=true",
		"SEXTON_ADJOURNED_GROUPS__ENABLED=true",
	} {
		b := setup(t, setting)
		listed := map[string]bool{}
		for _, job := range Jobs(b.deps.Config) {
			listed[job.Kind] = true
		}
		workers := river.NewWorkers()
		Register(workers, b.deps)
		client := pgtest.Must(river.NewClient(riverpgxv5.New(b.db.Pool()),
			&river.Config{Schema: "sexton", Workers: workers, Logger: pgtest.Logger(t)}))(t)
		for _, args := range everyArgs() {
			// A client inserts only jobs of kinds for which it has a worker.
			_, err := client.Insert(t.Context(), args, nil)
			require.Equal(t, listed[args.Kind()], err == nil, "%s with %s: %v", args.Kind(), setting, err)
			delete(listed, args.Kind())
		}
		require.Empty(t, listed, "kinds that this test does not know")
	}
}

func TestJobsAreComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, job := range Jobs(configuration(t, "SEXTON_GHOST_USERS__ENABLED=true",
		"SEXTON_ADJOURNED_GROUPS__ENABLED=true")) {
		require.Equal(t, job.Kind, job.Queue, "one queue per kind")
		require.NotEmpty(t, job.Summary, job.Kind)
		require.NotEmpty(t, job.DeletionTable, job.Kind)
		require.NotEmpty(t, job.Databases, job.Kind)
		require.NotNil(t, job.Run, job.Kind)
		if job.Inserted() {
			require.NotEmpty(t, job.Args, "%s: without arguments all its jobs would be equal", job.Kind)
			continue
		}
		require.Equal(t, job.Kind, job.ArgsOf("main").Kind())
		require.NotNil(t, job.Subscription, job.Kind)
		keys := []string{job.Kind, job.LeaseKey("main")}
		if _, several := job.Args["database"]; several {
			keys = append(keys, job.LeaseKey("ci"))
		}
		for _, key := range keys {
			require.False(t, seen[key], "%s twice", key)
			seen[key] = true
		}
	}
	require.Len(t, seen, 7)
}

// timeout returns the timeout of River for a job of the kind.
func timeout[T river.JobArgs](k kind[T], args T) time.Duration {
	return (&worker[T]{kind: k}).Timeout(&river.Job[T]{Args: args})
}

func TestTimeoutsAreThoseOfTheLeases(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]time.Duration{
		"SEXTON_DATABASES__MAIN__PACE=normal":         40 * time.Second,
		"SEXTON_DATABASES__MAIN__PACE=turbo":          55 * time.Second,
		"SEXTON_DATABASES__MAIN__LIMITS__RUNTIME=50s": 60 * time.Second,
	} {
		c := configuration(t, "SEXTON_DATABASES__MAIN__URL=postgres://nobody@nowhere.invalid/none", setting)
		require.Equal(t, want+slowNetwork, timeout(looseForeignKeys(c), LooseForeignKeysCleanupArgs{Database: "main"}),
			setting)
	}
	c := configuration(t)
	require.Equal(t, time.Minute+slowNetwork, timeout(ghostUsers(c), MigrateRecordsToGhostUserArgs{}),
		"the timeout includes extra time for a slow network")
	require.Equal(t, time.Minute, timeout(placeholderCleanup(c), PlaceholderUserCleanupArgs{}))
	require.Equal(t, time.Minute, timeout(adjournedGroups(c), AdjournedGroupDeletionArgs{}))
	require.Equal(t, groupdelete.LeaseTTL, timeout(groupDestroy(c), GroupDestroyArgs{}))
	require.Zero(t, timeout(deletePlaceholder(c), DeletePlaceholderUserArgs{}), "the kind has no lease and uses River's default")
	require.Zero(t, timeout(scheduleDiffs(c), ScheduleExternalDiffsArgs{}), "the lease is longer than River's default")
	require.Negative(t, timeout(migrateDiff(c), MigrateExternalDiffArgs{}),
		"an upload may last as long as bytes are transferred, so neither River's timeout nor its rescuer may end it")
}

// Each count of a pass increases a metric. A count without a metric would only be logged.
func TestPassesIncreaseTheCounters(t *testing.T) {
	t.Parallel()
	m := pgtest.Must(metrics.New(metrics.Options{CleanUp: LooseForeignKeys, Logger: slog.New(slog.DiscardHandler)}))(t)
	m.RunEnded(jobrun.Ended{
		Kind: LooseForeignKeys, Database: "main", Outcome: jobrun.Done,
		Counts: countsOf(&loosefk.Stats{
			DeleteCountByTable: map[string]int64{"children": 1, "others": 2, "none": 0},
			UpdateCountByTable: map[string]int64{"notes": 3},
			ByParent: map[string]loosefk.ParentCounts{"parents": {
				Processed: 4, Rescheduled: 5,
				Incremented: 6,
			}},
			Confirmed: 7, LateChildren: 9,
		}),
	})
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	text := recorder.Body.String()
	for _, want := range []string{
		`deletions_total{database="main",table="children"} 1`, `deletions_total{database="main",table="others"} 2`,
		`updates_total{database="main",table="notes"} 3`,
		`processed_deleted_records_total{database="main",table="parents"} 4`,
		`rescheduled_deleted_records_total{database="main",table="parents"} 5`,
		`incremented_deleted_records_total{database="main",table="parents"} 6`,
		`confirmed_deleted_records_total{database="main"} 7`,
		`late_children_total{database="main"} 9`,
	} {
		require.Contains(t, text, "\nsexton_loose_foreign_key_"+want+"\n")
	}
	require.NotContains(t, text, `table="none"`)
}

// observed is an Observer that stores the passes it receives.
type observed struct{ ended []jobrun.Ended }

func (o *observed) RunEnded(ended jobrun.Ended) { o.ended = append(o.ended, ended) }

func TestPassIsObserved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var o observed
	b.deps.Runner.Observer = &o
	b.db.Exec("DELETE FROM parents WHERE id <= 2")
	b.db.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept' USING ERRCODE = 'ZZ001'; END $$`)
	b.db.Exec("CREATE TRIGGER refuse BEFORE UPDATE ON notes FOR EACH ROW WHEN (OLD.parent_id = 2) EXECUTE FUNCTION refuse()")
	pass := func() {
		b.mustRun(t, LooseForeignKeysCleanupArgs{Database: "main"})
	}
	pass()
	require.Len(t, o.ended, 1)
	ended := o.ended[0]
	require.Equal(t, jobrun.Done, ended.Outcome)
	require.NoError(t, ended.Err)
	require.Positive(t, ended.Duration)
	require.Subset(t, ended.Counts, jobrun.Counts{
		metrics.Deletions: {"children": 2}, metrics.Updates: {"notes": 1},
		metrics.ProcessedRecords: {"parents": 1}, metrics.IncrementedRecords: {"parents": 1},
	})
	require.Len(t, ended.Faults, 1)
	require.Equal(t, "ZZ001", ended.Faults[0].SQLState)
	require.Equal(t, "notes", ended.Faults[0].Table)

	// After the third failed attempt the tombstone is deferred.
	pass()
	pass()
	require.EqualValues(t, 1, o.ended[2].Counts[metrics.RescheduledRecords]["parents"])
}

// A run that changes nothing although rows are due does not count as a success, whatever
// its outcome. A run without due rows counts as a success.
func TestRunWithoutProgressIsNotASuccess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var o observed
	b.deps.Runner.Observer = &o
	pass := func() {
		b.mustRun(t, LooseForeignKeysCleanupArgs{Database: "main"})
	}
	successes := func() (last []float64) {
		found, err := b.deps.jobsDB().Queries().RunsLastSuccess(t.Context(),
			[]string{LooseForeignKeys}, []string{"main"}, 10)
		require.NoError(t, err)
		for _, one := range found {
			last = append(last, one.EndedEpoch)
		}
		return last
	}
	b.db.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept' USING ERRCODE = 'ZZ001'; END $$`)
	b.db.Exec("CREATE TRIGGER refuse BEFORE DELETE OR UPDATE ON children FOR EACH ROW EXECUTE FUNCTION refuse()")
	b.db.Exec("CREATE TRIGGER refuse BEFORE DELETE OR UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION refuse()")
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	pass()
	require.Equal(t, jobrun.Done, o.ended[0].Outcome)
	require.Contains(t, o.ended[0].Held, "ZZ001: kept")
	require.Equal(t, o.ended[0].Held, b.db.Rows("SELECT held FROM sexton.runs")[0][0])
	require.Empty(t, successes())

	b.db.Exec("DROP TRIGGER refuse ON children; DROP TRIGGER refuse ON notes")
	pass()
	require.Empty(t, o.ended[1].Held)
	changed := successes()
	require.Len(t, changed, 1)
	pass()
	require.Empty(t, o.ended[2].Held, "nothing to do")
	require.Greater(t, successes()[0], changed[0])
}

func TestGhostUsersJobHasOneAttemptAndALease(t *testing.T) {
	t.Parallel()
	c := configuration(t, "SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=false")
	job := Jobs(c)[0]
	require.Equal(t, "users/migrate_records_to_ghost_user_in_batches_worker", job.LeaseKey("main"))
	require.Equal(t, "*/2 * * * *", job.Schedule)
	require.Equal(t, 1, MigrateRecordsToGhostUserArgs{}.InsertOpts().MaxAttempts)
	require.Len(t, pgtest.Must(Ticks(c))(t), 1)
}
