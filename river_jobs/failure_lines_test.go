package riverjobs

import (
	"strings"
	"testing"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"
)

// TestOneFailureIsLoggedOnce has a pass of each kind fail, and looks at the lines that name the cause: of jobrun, of the kind and of River.
func TestOneFailureIsLoggedOnce(t *testing.T) {
	t.Parallel()
	const noBatch = "ALTER FUNCTION sexton.begin_batch RENAME TO gone"
	for name, c := range map[string]struct {
		args    river.JobArgs
		prepare func(t *testing.T) bundle
		line    string
		cause   string
	}{
		LooseForeignKeys: {LooseForeignKeysCleanupArgs{Database: "main"}, func(t *testing.T) bundle {
			t.Helper()
			b := setup(t)
			b.db.Exec("DELETE FROM parents; " + noBatch)
			return b
		}, "level=ERROR msg=run_failed", "begin_batch"},
		GhostUsers: {MigrateRecordsToGhostUserArgs{}, func(t *testing.T) bundle {
			t.Helper()
			b := ghostBundle(t)
			b.db.Exec("SELECT sexton.delete_user(1, 2, false)")
			b.db.Exec(noBatch)
			return b
		}, "level=ERROR msg=run_failed", "begin_batch"},
		"configuration": {MigrateRecordsToGhostUserArgs{}, func(t *testing.T) bundle {
			t.Helper()
			b := ghostBundle(t)
			b.deps.Config = configuration(t, "SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_GHOST_USERS__MOVE=[{table: isues, columns: [author_id]}]")
			return b
		}, `level=ERROR msg="configuration does not fit the database: the kind waits"`, "isues does not exist"},
		PlaceholderCleanup: {PlaceholderUserCleanupArgs{}, func(t *testing.T) bundle {
			t.Helper()
			b := placeholderBundle(t)
			b.db.Exec(noBatch)
			return b
		}, "level=ERROR msg=run_failed", "begin_batch"},
		DeletePlaceholder: {DeletePlaceholderUserArgs{UserID: 11}, func(t *testing.T) bundle {
			t.Helper()
			b := placeholderBundle(t)
			b.db.Exec("ALTER FUNCTION sexton.application_path RENAME TO gone")
			return b
		}, "level=ERROR msg=run_failed", "application_path"},
		AdjournedGroupDeletion: {AdjournedGroupDeletionArgs{}, func(t *testing.T) bundle {
			t.Helper()
			b := groupBundle(t)
			b.db.Exec(noBatch)
			return b
		}, "level=ERROR msg=run_failed", "begin_batch"},
		GroupDestroy: {GroupDestroyArgs{GroupID: 10, UserID: 1}, func(t *testing.T) bundle {
			t.Helper()
			b := destroyBundle(t)
			b.db.Exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept for ever'; END $$")
			b.db.Exec("CREATE TRIGGER refuse BEFORE DELETE ON groups FOR EACH ROW EXECUTE FUNCTION refuse()")
			return b
		}, "level=ERROR msg=group_stuck", "kept for ever"},
		ScheduleExternalDiffs: {ScheduleExternalDiffsArgs{}, func(t *testing.T) bundle {
			t.Helper()
			b, _ := diffBundle(t)
			b.db.Exec(noBatch)
			return b
		}, "level=ERROR msg=run_failed", "begin_batch"},
		MigrateExternalDiff: {MigrateExternalDiffArgs{DiffID: 1}, func(t *testing.T) bundle {
			t.Helper()
			b, _ := diffBundle(t)
			b.db.Exec("ALTER TABLE merge_request_diff_files RENAME TO gone")
			return b
		}, "level=ERROR msg=run_failed", "merge_request_diff_files"},
		// Behind the run no line of it can tell of the failure.
		"the end of a job": {AdjournedGroupDeletionArgs{}, func(t *testing.T) bundle {
			t.Helper()
			b := groupBundle(t)
			b.db.Exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'never completed'; END $$")
			b.db.Exec("CREATE TRIGGER refuse BEFORE UPDATE ON sexton.river_job FOR EACH ROW WHEN (NEW.state = 'completed') EXECUTE FUNCTION refuse()")
			return b
		}, "level=ERROR msg=job_failed", "never completed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.prepare(t)
			require.Equal(t, river.EventKindJobFailed, b.workOne(t, c.args).Kind)
			var lines []string
			for line := range strings.Lines(b.log.String()) {
				// Statistics are part of the run's line, whatever its outcome.
				line, _, _ = strings.Cut(line, " stats=")
				if strings.Contains(line, c.cause) || strings.Contains(line, "run_failed") || strings.Contains(line, "Job errored") {
					lines = append(lines, line)
				}
			}
			require.Len(t, lines, 1)
			require.Contains(t, lines[0], c.line)
		})
	}
}
