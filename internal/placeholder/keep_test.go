package placeholder_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/placeholder"
)

// looking has the placeholders 1 to n, of which the even ones wrote the issue and the note of their number, and an engine that looks.
func looking(t *testing.T, n int64) *bundle {
	b := setup(t)
	var ids []int64
	for id := int64(1); id <= n; id++ {
		ids = append(ids, id)
	}
	b.placeholders(ids...)
	b.Exec(`
		INSERT INTO issues (id, project_id, title, author_id) SELECT id, 1, 'imported', id FROM users WHERE id % 2 = 0;
		INSERT INTO notes (id, project_id, noteable_type, noteable_id, author_id, note) SELECT id, 1, 'Issue', id, id, 'n' FROM users WHERE id % 2 = 0`)
	b.engine.References = b.remover(t).References
	return b
}

// due has all rows wait for long enough.
func (b *bundle) due() {
	b.Exec("UPDATE import_placeholder_user_details SET last_deletion_attempt_at = last_deletion_attempt_at - interval '49 hours'")
}

// What references keep needs no job and takes none of the time between two jobs.
func TestReferencedPlaceholdersAreKeptTogether(t *testing.T) {
	t.Parallel()
	b := looking(t, 250)
	b.Exec("UPDATE users SET user_type = 0 WHERE id = 2")
	stats := b.run(t)
	require.Empty(t, stats.Errors)
	require.EqualValues(t, 124, stats.Kept)
	require.EqualValues(t, 126, stats.Scheduled, "the odd ones, and 2, which is no placeholder any more")
	require.Equal(t, map[string]int64{"issues.author_id": 124, "notes.author_id": 124}, stats.References)
	require.Equal(t, [][]string{{"126", "125"}}, b.Rows("SELECT count(*), max(extract(epoch FROM scheduled_at - $1))::int FROM sexton.river_job", start()))
	require.Equal(t, [][]string{
		{"1", "1", "NULL", "NULL"},
		{"2", "1", "NULL", "NULL"},
		{"3", "1", "NULL", "NULL"},
		{"4", "1", "still referenced by notes.author_id (id 4), issues.author_id (id 4)", "{notes.author_id,issues.author_id}"},
	}, b.Rows("SELECT id, deletion_attempts, last_error, blocked_by FROM import_placeholder_user_details WHERE id < 5 ORDER BY id"))
	require.Len(t, b.attempts(), 250)
	kept := b.items[slices.IndexFunc(b.items, func(i placeholder.Item) bool { return i.Kept })]
	require.Equal(t, placeholder.Item{
		UserID: 4, Attempt: 1, Kept: true,
		Blockers: []placeholder.Blocker{{Column: "notes.author_id", Sample: "id 4"}, {Column: "issues.author_id", Sample: "id 4"}},
	}, kept)
	require.Zero(t, b.run(t).Kept, "the second run finds nothing")
}

// The looks double their distance; the attempts, and the last one's time, are the requirement's.
func TestLooksAtWhatReferencesKeepBackOff(t *testing.T) {
	t.Parallel()
	b := looking(t, 2)
	b.Exec("DELETE FROM import_placeholder_user_details WHERE id = 1")
	var looked []int64
	for attempt := int64(1); attempt <= 15; attempt++ {
		stats := b.run(t)
		require.EqualValues(t, 1, stats.Kept+stats.Counted, "attempt %d", attempt)
		require.Equal(t, attempt == 15, stats.FinalAttempts == 1)
		if stats.Kept == 1 {
			looked = append(looked, attempt)
		}
		_, listed := b.list(t, "", 1)
		require.Equal(t, attempt, listed[0].Attempts)
		require.Equal(t, []string{"notes.author_id", "issues.author_id"}, listed[0].BlockedBy)
		if next := listed[0].NextAttemptAt; attempt < 15 {
			following := map[bool]int64{true: 15, false: 1}[attempt >= 8]
			for following <= attempt {
				following *= 2
			}
			require.Equal(t, time.Duration(following-attempt)*48*time.Hour, next.Sub(*listed[0].LastAttemptAt), "after attempt %d", attempt)
		}
		b.due()
	}
	require.Equal(t, []int64{1, 2, 4, 8, 15}, looked)
	require.Empty(t, b.jobs())
	require.Zero(t, b.run(t).Counted, "given up")
}

// What kept a placeholder may be gone: then the next look offers it. A retry looks at once.
func TestPlaceholderThatIsFreeAgainIsOffered(t *testing.T) {
	t.Parallel()
	b := looking(t, 4)
	b.run(t)
	b.Exec("DELETE FROM notes; DELETE FROM issues")
	b.Exec("UPDATE sexton.river_job SET state = 'completed', finalized_at = now()")
	b.due()
	b.Exec("UPDATE import_placeholder_user_details SET deletion_attempts = 2 WHERE id = 4")
	stats := b.run(t)
	require.EqualValues(t, 1, stats.Counted, "4, whose third attempt does not look")
	require.EqualValues(t, 3, stats.Scheduled)
	b.Exec("UPDATE import_placeholder_user_details SET deletion_attempts = 0, last_deletion_attempt_at = NULL WHERE id = 4")
	require.EqualValues(t, 1, b.run(t).Scheduled)
}

// References that may go with tombstones are a job's, which waits for them, and whatever goes between two looks is seen.
func TestReferencesThatMayGoAreLeftToAJob(t *testing.T) {
	t.Parallel()
	b := looking(t, 6)
	b.Exec("DELETE FROM notes WHERE id = 2; UPDATE import_placeholder_user_details SET deletion_attempts = 2, blocked_by = '{issues.author_id}' WHERE id = 2")
	var asked [][]string
	b.engine.Pending = func(_ context.Context, columns []string) ([]string, error) {
		asked = append(asked, columns)
		if len(columns) == 2 {
			return nil, nil
		}
		return []string{"public.groups"}, nil
	}
	b.Exec("UPDATE issues SET author_id = 1 WHERE id = 4")
	stats := b.run(t)
	require.Equal(t, [][]string{{"1", "0"}, {"2", "1"}, {"3", "2"}, {"4", "3"}, {"5", "4"}}, b.jobs())
	require.EqualValues(t, 1, stats.Kept, "6, whose issue and note no tombstone takes along")
	require.Len(t, asked, 3, "once for each set of columns")

	b = looking(t, 2)
	b.engine.Pending = func(context.Context, []string) ([]string, error) {
		b.Exec("DELETE FROM notes; DELETE FROM issues")
		return nil, nil
	}
	require.Zero(t, b.run(t).Kept)
	require.Equal(t, [][]string{{"1", "0"}, {"2", "1"}}, b.jobs(), "the tombstones are gone, and the rows with them")
}

// A database that cannot be asked for its tombstones ends no run: each user is left to a job.
func TestReferencesAreLeftToJobsWhileADatabaseIsAway(t *testing.T) {
	t.Parallel()
	b := looking(t, 6)
	b.Exec("DELETE FROM notes WHERE id = 2; UPDATE import_placeholder_user_details SET deletion_attempts = 2, blocked_by = '{issues.author_id}' WHERE id = 4")
	asked := 0
	b.engine.Pending = func(context.Context, []string) ([]string, error) {
		asked++
		return nil, errors.New("database ci: refused")
	}
	stats := b.run(t)
	require.EqualValues(t, 6, stats.Scheduled)
	require.Zero(t, stats.Kept+stats.Counted)
	require.Equal(t, 1, asked)
	require.Equal(t, []batch.FaultCounts{{Message: "database ci: refused", Count: 1}}, stats.Errors)
}

// A look at many that the database refuses leaves each to its job.
func TestLookThatFailsLeavesEachToItsJob(t *testing.T) {
	t.Parallel()
	b := looking(t, 4)
	b.Exec("ALTER TABLE notes RENAME COLUMN author_id TO away")
	stats := b.run(t)
	require.EqualValues(t, 4, stats.Scheduled)
	require.Zero(t, stats.Kept+stats.Failed)
	require.Equal(t, "42703", stats.Errors[0].SQLState)

	b = looking(t, 4)
	b.Exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept'; END $$")
	b.Exec("CREATE TRIGGER refuse BEFORE UPDATE ON import_placeholder_user_details FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION refuse()")
	stats = b.run(t)
	require.EqualValues(t, 1, stats.Failed)
	require.Equal(t, [][]string{{"1", "0"}, {"3", "1"}, {"4", "2"}}, b.jobs(), "one row that refuses spoils no other")
}

func TestReasonsAreCounted(t *testing.T) {
	t.Parallel()
	b := looking(t, 6)
	b.Exec("DELETE FROM notes WHERE id = 6")
	b.run(t)
	b.Exec("UPDATE import_placeholder_user_details SET last_error = 'remove placeholder user 1: no' WHERE id = 1")
	b.Exec("UPDATE import_placeholder_user_details SET deletion_attempts = 15 WHERE id = 4")
	b.Exec("UPDATE import_placeholder_user_details SET deletion_attempts = 4 WHERE id = 6")
	reasons, err := placeholder.ReadReasons(t.Context(), b.Pool(), dbtest.Names(), rules(), 10)
	require.NoError(t, err)
	require.Len(t, reasons, 3)
	for i, want := range []placeholder.Reason{
		{Reason: "issues.author_id", Placeholders: 3, GivenUp: 1}, {Reason: "notes.author_id", Placeholders: 2, GivenUp: 1}, {Reason: placeholder.Refused, Placeholders: 1},
	} {
		require.WithinDuration(t, time.Now().Add(48*time.Hour), *reasons[i].NextAttemptAt, time.Hour)
		reasons[i].NextAttemptAt = nil
		require.Equal(t, want, reasons[i])
	}
}
