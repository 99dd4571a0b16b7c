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

// everyArgs has the arguments of every kind that this package knows.
func everyArgs() []river.JobArgs {
	return []river.JobArgs{
		LooseForeignKeysCleanupArgs{Database: "main"},
		MigrateRecordsToGhostUserArgs{},
		AdjournedGroupDeletionArgs{},
		GroupDestroyArgs{},
	}
}

func TestRegisterAddsExactlyTheJobs(t *testing.T) {
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
			// A client takes only kinds that it has a worker for.
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
			require.NotEmpty(t, job.Args, "%s: all its jobs would be one", job.Kind)
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

// timeout is when River ends a job of the kind.
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
		"a slow network comes on top")
	require.Equal(t, time.Minute, timeout(placeholderCleanup(c), PlaceholderUserCleanupArgs{}))
	require.Equal(t, time.Minute, timeout(adjournedGroups(c), AdjournedGroupDeletionArgs{}))
	require.Equal(t, groupdelete.LeaseTTL, timeout(groupDestroy(c), GroupDestroyArgs{}))
	require.Zero(t, timeout(deletePlaceholder(c), DeletePlaceholderUserArgs{}), "River's own: it has no lease")
	require.Zero(t, timeout(scheduleDiffs(c), ScheduleExternalDiffsArgs{}), "its lease is longer than any job")
	require.Negative(t, timeout(migrateDiff(c), MigrateExternalDiffArgs{}),
		"an upload is as long as bytes move: neither River's limit nor its rescuer may end it")
}

// Every count of a pass has a metric with its labels: what has none is only logged.
func TestPassesMoveTheCounters(t *testing.T) {
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

// observed keeps what it is told.
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
		b.ran(t, LooseForeignKeysCleanupArgs{Database: "main"})
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

	// At the third attempt it is put off.
	pass()
	pass()
	require.EqualValues(t, 1, o.ended[2].Counts[metrics.RescheduledRecords]["parents"])
}

// A run that gets nothing done although there is work is no success, whatever its
// outcome; one without work is.
func TestRunWithoutProgressIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var o observed
	b.deps.Runner.Observer = &o
	pass := func() {
		b.ran(t, LooseForeignKeysCleanupArgs{Database: "main"})
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

func TestGhostUsersAreTriedOnceUnderTheirLease(t *testing.T) {
	t.Parallel()
	c := configuration(t, "SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=false")
	job := Jobs(c)[0]
	require.Equal(t, "users/migrate_records_to_ghost_user_in_batches_worker", job.LeaseKey("main"))
	require.Equal(t, "*/2 * * * *", job.Schedule)
	require.Equal(t, 1, MigrateRecordsToGhostUserArgs{}.InsertOpts().MaxAttempts)
	require.Len(t, pgtest.Must(Ticks(c))(t), 1)
}
