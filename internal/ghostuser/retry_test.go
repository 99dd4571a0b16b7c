package ghostuser_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/ghostuser"
)

func TestRetryOfUsersThatFailed(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application)
	db.Exec(`INSERT INTO users_ghost_user_migrations (user_id, consume_after, attempts, last_error) VALUES
		(1, now() + interval '20 minutes', 2, 'posts: 23503'), (2, now() - interval '1 minute', 0, NULL), (3, now() + interval '30 minutes', 1, 'likes: 23505'),
		(4, now() + interval '1 hour', 0, NULL)`)
	names := dbtest.Names()
	failed, err := ghostuser.ReadFailed(t.Context(), db.Pool(), names, 10)
	require.NoError(t, err)
	require.Len(t, failed, 2)
	require.EqualValues(t, 1, failed[0].UserID)
	require.Equal(t, "posts: 23503", failed[0].LastError)
	require.EqualValues(t, 3, failed[1].UserID)
	failed, err = ghostuser.ReadFailed(t.Context(), db.Pool(), names, 1)
	require.NoError(t, err)
	require.Len(t, failed, 1)

	retry := func(user *int64) (count int64) {
		require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool(), func(tx pgx.Tx) (err error) {
			count, err = ghostuser.Retry(t.Context(), tx, names, user)
			return err
		}))
		return count
	}
	// A worker has the third in hand.
	busy := db.Begin(t, "SELECT FROM users_ghost_user_migrations WHERE user_id = 3 FOR UPDATE")
	two := int64(2)
	require.Zero(t, retry(&two), "it has not failed")
	require.EqualValues(t, 1, retry(nil))
	require.Zero(t, retry(nil), "again changes nothing more")
	require.NoError(t, busy.Rollback(t.Context()))
	three := int64(3)
	require.EqualValues(t, 1, retry(&three))
	require.Equal(t, [][]string{{"1", "t", "0", "posts: 23503"}, {"2", "t", "0", "NULL"}, {"3", "t", "0", "likes: 23505"}, {"4", "f", "0", "NULL"}},
		db.Rows("SELECT user_id, consume_after <= now(), attempts, last_error FROM users_ghost_user_migrations ORDER BY user_id"))
}
