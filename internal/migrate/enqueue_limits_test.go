package migrate_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// limited has a kind whose argument names a row of the application's, and one with free arguments.
func limited(t *testing.T) (d *pgtest.Database, application string) {
	t.Helper()
	d = pgtest.New(t)
	application = d.CreateRole()
	d.Exec("CREATE TABLE things (id bigint); INSERT INTO things VALUES (7); GRANT SELECT ON things TO PUBLIC")
	db := everything(t, d)
	db.Kinds = []migrate.Kind{
		{Kind: "named", Queue: "named", Args: map[string]string{"thing": migrate.Bigint}, MaxAttempts: 1, Row: migrate.Row{Table: "things", Column: "id", Argument: "thing"}},
		{Kind: "free", Queue: "free", Args: map[string]string{"text": migrate.Text}, MaxAttempts: 1},
	}
	up(t, db)
	allowCalls(d, application)
	return d, application
}

func TestEnqueueNamesARowThatExists(t *testing.T) {
	t.Parallel()
	d, application := limited(t)
	require.NoError(t, as(t, d, application, `SELECT sexton.enqueue('named', '{"thing": 7}')`))
	var pgErr *pgconn.PgError
	require.ErrorAs(t, as(t, d, application, `SELECT sexton.enqueue('named', '{"thing": 8}')`), &pgErr)
	require.Equal(t, "22023", pgErr.Code)
	require.Equal(t, "enqueue named: there is no row of things with the id of 8", pgErr.Message)
	// Its own transaction sees what it has inserted.
	d.Exec("GRANT INSERT ON things TO PUBLIC")
	require.NoError(t, as(t, d, application, `BEGIN; INSERT INTO things VALUES (8); SELECT sexton.enqueue('named', '{"thing": 8}'); COMMIT`))
	require.Len(t, d.Rows("SELECT FROM sexton.river_job"), 2)
}

func TestEnqueueLimitsWhatWaits(t *testing.T) {
	t.Parallel()
	d, application := limited(t)
	d.Exec(`INSERT INTO sexton.river_job (args, kind, max_attempts, queue, state) SELECT '{}', 'free', 1, 'free', 'available' FROM generate_series(1, 9999)`)
	require.NoError(t, as(t, d, application, `SELECT sexton.enqueue('free', '{"text": "one"}')`))
	var pgErr *pgconn.PgError
	require.ErrorAs(t, as(t, d, application, `SELECT sexton.enqueue('free', '{"text": "two"}')`), &pgErr)
	require.Equal(t, "53400", pgErr.Code)
	require.NoError(t, as(t, d, application, `SELECT sexton.enqueue('free', '{"text": "one"}')`), "it waits already")
	require.NoError(t, as(t, d, application, `SELECT sexton.enqueue('named', '{"thing": 7}')`), "another kind is not concerned")
	d.Exec(`SELECT sexton.enqueue('free', '{"text": "two"}')`) // Whoever may write to the table is not held up.
	require.EqualValues(t, 10001, pgtest.Scalar[int64](t, d, "SELECT count(*) FROM sexton.river_job WHERE kind = 'free'"))
}
