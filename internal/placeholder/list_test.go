package placeholder_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
	"sexton/internal/placeholder"
)

// states has one placeholder in each state, and one with an owner.
func states(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	b.placeholders(1, 2, 3, 4, 5, 6, 7, 8, 9)
	b.Exec(`
		UPDATE import_placeholder_user_details SET created_at = now() - interval '2 hours';
		UPDATE import_placeholder_user_details SET namespace_id = 1 WHERE id = 9;
		-- tried an hour ago; tried too often, and why; the same, but its last job runs
		UPDATE import_placeholder_user_details SET deletion_attempts = 2, last_deletion_attempt_at = now() - interval '1 hour', last_error = 'two' WHERE id = 2;
		UPDATE import_placeholder_user_details SET deletion_attempts = 15, last_deletion_attempt_at = now() - interval '9 days', last_error = 'three' WHERE id = 3;
		UPDATE import_placeholder_user_details SET deletion_attempts = 15, last_deletion_attempt_at = now() WHERE id = 4;
		UPDATE import_placeholder_user_details SET deletion_attempts = 15, last_deletion_attempt_at = now() WHERE id IN (5, 6);
		-- due again for three hours
		UPDATE import_placeholder_user_details SET deletion_attempts = 1, last_deletion_attempt_at = now() - interval '51 hours', last_error = 'seven' WHERE id = 7;
		SELECT sexton.enqueue('import_delete_placeholder_user', '{"user_id": 4}');
		SELECT sexton.enqueue('import_delete_placeholder_user', '{"user_id": 8}', now() + interval '1 hour');
		SELECT sexton.delete_user(5, 5);
		UPDATE users SET user_type = 0 WHERE id = 6;`)
	return b
}

func (b *bundle) list(t *testing.T, state placeholder.State, limit int) (ids []int64, listed []placeholder.Placeholder) {
	t.Helper()
	listed = pgtest.Must(placeholder.List(t.Context(), b.Pool(), dbtest.Names(), rules(), state, limit))(t)
	for _, p := range listed {
		ids = append(ids, p.UserID)
	}
	return ids, listed
}

func TestListSaysWhereEachStands(t *testing.T) {
	t.Parallel()
	b := states(t)
	_, listed := b.list(t, "", 100)
	got := map[int64]placeholder.State{}
	for _, p := range listed {
		got[p.UserID] = p.State
	}
	require.Equal(t, map[int64]placeholder.State{
		1: placeholder.Due, 2: placeholder.PutOff, 3: placeholder.GivenUp, 4: placeholder.Scheduled, 5: placeholder.InQueue,
		6: placeholder.Obsolete, 7: placeholder.Due, 8: placeholder.Scheduled,
	}, got)
	require.Equal(t, "two", listed[1].LastError)
	require.EqualValues(t, 2, listed[1].Attempts)
	require.WithinDuration(t, listed[1].LastAttemptAt.Add(48*time.Hour), *listed[1].NextAttemptAt, time.Millisecond)
	require.Nil(t, listed[0].LastAttemptAt)
	require.Nil(t, listed[2].NextAttemptAt)

	ids, _ := b.list(t, placeholder.GivenUp, 100)
	require.Equal(t, []int64{3}, ids)
	ids, _ = b.list(t, "", 2)
	require.Equal(t, []int64{1, 2}, ids)
	b.Exec("UPDATE import_placeholder_user_details SET last_deletion_attempt_at = 'infinity' WHERE id = 2")
	b.Exec("UPDATE import_placeholder_user_details SET last_deletion_attempt_at = '-infinity', created_at = '-infinity' WHERE id IN (1, 7)")
	_, listed = b.list(t, "", 2)
	require.Equal(t, placeholder.PutOff, listed[1].State, "for ever")
	require.Nil(t, listed[1].NextAttemptAt)
	pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)

	stuck := pgtest.Must(placeholder.ReadKept(t.Context(), b.Pool(), dbtest.Names(), rules(), 2))(t)
	require.Len(t, stuck, 2)
	require.Equal(t, placeholder.GivenUp, stuck[0].State)
	require.Equal(t, "two", stuck[1].LastError)
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	backlog := pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)
	require.Equal(t, placeholder.Backlog{}, backlog)

	b = states(t)
	backlog = pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)
	require.EqualValues(t, 4, backlog.Pending, "1, 2, 7 and 8")
	require.EqualValues(t, 1, backlog.Deferred)
	require.EqualValues(t, 1, backlog.GivenUp)
	require.Equal(t, "two", backlog.DeferredReason)
	require.WithinDuration(t, time.Now().Add(47*time.Hour), *backlog.DeferredUntil, time.Minute)
	require.InDelta(t, 3*3600, backlog.OldestAgeSeconds, 60, "of the one that could be tried again three hours ago")
	b.Exec("UPDATE import_placeholder_user_details SET deletion_attempts = 2, last_deletion_attempt_at = 'infinity' WHERE id = 1")
	until := *backlog.DeferredUntil
	backlog = pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)
	require.EqualValues(t, 2, backlog.Deferred, "1 for ever")
	require.Equal(t, until, *backlog.DeferredUntil)
	b.Exec("UPDATE import_placeholder_user_details SET deletion_attempts = 0, last_deletion_attempt_at = NULL WHERE id = 1")
	b.Exec("DELETE FROM import_placeholder_user_details WHERE id = 7")
	backlog = pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)
	require.InDelta(t, 2*3600, backlog.OldestAgeSeconds, 60, "of the one that was never tried")
}

func TestBacklogStopsCounting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1)
	b.Exec(`INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id, deletion_attempts, last_deletion_attempt_at)
		SELECT n, 1, 1, n % 2 * 15, CASE WHEN n % 2 = 1 THEN now() - interval '9 days' END FROM generate_series(1000, 21999) AS n`)
	backlog := pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)
	require.EqualValues(t, 10_000, backlog.Pending)
	require.True(t, backlog.Capped)
	require.EqualValues(t, 10_000, backlog.GivenUp)
}

func TestRetryGivesAttemptsBack(t *testing.T) {
	t.Parallel()
	b := states(t)
	b.Exec("INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id, deletion_attempts) VALUES (30, 3, 1, 15)")
	retry := func(id int64) (state placeholder.State, err error) {
		err = pgx.BeginFunc(t.Context(), b.Pool(), func(tx pgx.Tx) (err error) {
			state, err = placeholder.Retry(t.Context(), tx, dbtest.Names(), id)
			return err
		})
		return state, err
	}
	require.Equal(t, placeholder.Due, pgtest.Must(retry(3))(t))
	require.Equal(t, [][]string{{"3", "0", "NULL", "three"}, {"30", "0", "NULL", "NULL"}}, b.Rows(`
		SELECT id, deletion_attempts, last_deletion_attempt_at, last_error FROM import_placeholder_user_details WHERE placeholder_user_id = 3 ORDER BY id`))
	ids, _ := b.list(t, placeholder.Due, 100)
	require.Equal(t, []int64{1, 3, 7, 3}, ids)
	for id, refusal := range map[int64]error{
		99: placeholder.ErrUnknown, 9: placeholder.ErrOwned, 5: placeholder.ErrQueued, 6: placeholder.ErrObsolete,
	} {
		_, err := retry(id)
		require.ErrorIs(t, err, refusal, id)
	}
	require.Equal(t, [][]string{{"15"}}, b.Rows("SELECT deletion_attempts FROM import_placeholder_user_details WHERE id = 5"))
}

// A job that waits, perhaps for weeks after an error, would keep a placeholder from being offered: it is what starts at once.
func TestRetryStartsTheJobThatWaits(t *testing.T) {
	t.Parallel()
	b := states(t)
	b.Exec("UPDATE sexton.river_job SET state = 'retryable', scheduled_at = now() + interval '9 days' WHERE args = '{\"user_id\": 4}'")
	for _, id := range []int64{4, 8} {
		err := pgx.BeginFunc(t.Context(), b.Pool(), func(tx pgx.Tx) error {
			state, err := placeholder.Retry(t.Context(), tx, dbtest.Names(), id)
			require.Equal(t, placeholder.Scheduled, state)
			return err
		})
		require.NoError(t, err)
	}
	require.Equal(t, [][]string{{"4", "available", "t"}, {"8", "available", "t"}}, b.Rows(`
		SELECT args ->> 'user_id', state, scheduled_at <= now() FROM sexton.river_job ORDER BY 1`))
	require.Equal(t, [][]string{{"4", "1", "t"}, {"8", "1", "t"}}, b.Rows(`
		SELECT id, deletion_attempts, last_deletion_attempt_at > now() - interval '1 minute'
		FROM import_placeholder_user_details WHERE id IN (4, 8) ORDER BY id`), "an attempt is a job")
}
