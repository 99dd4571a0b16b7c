package batch_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func setup(t *testing.T) (*dbtest.DB, *batch.Session) {
	db := dbtest.New(t)
	db.Exec("CREATE TABLE items (id bigint PRIMARY KEY, parent bigint)")
	db.Exec("INSERT INTO items SELECT n, n FROM generate_series(1, 10) AS n")
	manager := lease.Manager{Jobs: db.Connected, Holder: "test"}
	granted := pgtest.Must(manager.Acquire(t.Context(), "items", time.Minute, db.Connected))(t)
	return db, &batch.Session{
		Conn: pgtest.Acquire(t, db.Pool()).Conn(), Names: dbtest.Names(), Fence: granted,
		Limits: batch.Limits{StatementTimeout: 10 * time.Second, LockTimeout: 10 * time.Second},
	}
}

func count(t *testing.T, db *dbtest.DB) int64 {
	return pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM items")
}

func TestRunReturnsRowsPerStatement(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	var ids []int64
	affected := pgtest.Must(session.Run(t.Context(),
		batch.Statement{SQL: "DELETE FROM items WHERE id <= $1", Args: []any{3}},
		batch.Statement{
			SQL: "DELETE FROM items WHERE id = $1 RETURNING id", Args: []any{4},
			Scan: func(rows pgx.Rows) (err error) {
				ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
				return err
			},
		}))(t)
	require.Equal(t, []int64{3, 1}, affected)
	require.Equal(t, []int64{4}, ids)
	require.EqualValues(t, 6, count(t, db))
}

func TestFailedBatchRollsBackAndNamesItsStatement(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	tests := map[string]struct {
		statement string
		index     int
		code      string
	}{
		"error at run time":   {"SELECT 1 / (id - 10) FROM items", 1, "22012"},
		"error of the parser": {"DELETE FROM no_such_table", 1, "42P01"},
		"deferred constraint": {"INSERT INTO checked VALUES (1)", 2, "23503"},
		"raised in PL/pgSQL":  {"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'P0001'; END $$", 1, "P0001"},
	}
	db.Exec("CREATE TABLE checked (id bigint REFERENCES items DEFERRABLE INITIALLY DEFERRED)")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM items WHERE id < 10"},
				batch.Statement{SQL: test.statement})
			var failed *batch.StatementError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, test.index, failed.Index)
			var pgErr *pgconn.PgError
			require.ErrorAs(t, err, &pgErr)
			require.Equal(t, test.code, pgErr.Code)
			require.EqualValues(t, 10, count(t, db), "a failed batch changed rows")
			_, err = session.Run(t.Context(), batch.Statement{SQL: "SELECT 1"})
			require.NoError(t, err, "the session works after an error")
		})
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	session.Limits.StatementTimeout = 20 * time.Millisecond
	_, err := session.Run(t.Context(), batch.Statement{SQL: "SELECT pg_sleep(60)"})
	requireCode(t, err, "57014")

	session.Limits = batch.Limits{StatementTimeout: 30 * time.Second, LockTimeout: 20 * time.Millisecond}
	pgtest.Begin(t, db.Pool(), "SELECT FROM items WHERE id = 1 FOR UPDATE")
	_, err = session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM items WHERE id = 1"})
	requireCode(t, err, "55P03")
}

// The limits of RunWithin apply only to its own transaction, whether they are lower or
// higher than the session's limits.
func TestRunWithinAppliesItsLimits(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	settings := func(limits batch.Limits) (got []string) {
		pgtest.Must(session.RunWithin(t.Context(), limits, batch.Statement{
			SQL: "SELECT current_setting(name) FROM unnest(ARRAY['statement_timeout', 'lock_timeout', 'synchronous_commit']) AS name",
			Scan: func(rows pgx.Rows) (err error) {
				got, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			},
		}))(t)
		return got
	}
	require.Equal(t, []string{"4s", "2666ms", "off"}, settings(batch.Limits{
		StatementTimeout: 4 * time.Second,
		LockTimeout:      3 * time.Second,
	}))
	require.Equal(t, []string{"20s", "13s", "on"}, settings(batch.Limits{
		StatementTimeout: 20 * time.Second,
		LockTimeout:      13 * time.Second, Durable: true,
	}))
	require.Equal(t, []string{"10s", "6666ms", "off"}, settings(session.Limits), "the session's own limits have changed")

	_, err := session.RunWithin(t.Context(), batch.Limits{
		StatementTimeout: 20 * time.Millisecond,
		LockTimeout:      10 * time.Second,
	}, batch.Statement{SQL: "SELECT pg_sleep(60)"})
	requireCode(t, err, "57014")

	pgtest.Begin(t, db.Pool(), "SELECT FROM items WHERE id = 1 FOR UPDATE")
	short := batch.Limits{StatementTimeout: 10 * time.Second, LockTimeout: 20 * time.Millisecond}
	_, err = session.RunWithin(t.Context(), short, batch.Statement{SQL: "DELETE FROM items WHERE id = 2"},
		batch.Statement{SQL: "DELETE FROM items WHERE id = 1"})
	requireCode(t, err, "55P03")
	require.EqualValues(t, 10, count(t, db), "a failed batch changed rows")
	equal := batch.Limits{StatementTimeout: 300 * time.Millisecond, LockTimeout: 300 * time.Millisecond}
	_, err = session.RunWithin(t.Context(), equal, batch.Statement{SQL: "DELETE FROM items WHERE id = 1"})
	requireCode(t, err, "55P03") // With equal timeouts, the server could report a statement timeout.
	affected, err := session.RunWithin(t.Context(), short, batch.Statement{SQL: "DELETE FROM items WHERE id = 2"})
	require.NoError(t, err, "the session works after an error")
	require.Equal(t, []int64{1}, affected)
}

// The lock timeout also ends the wait for a table lock while a statement is prepared,
// because the statement is prepared after BEGIN.
func TestTimeoutsApplyToPreparing(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	session.Limits.LockTimeout = 20 * time.Millisecond
	pgtest.Begin(t, db.Pool(), "LOCK TABLE items")
	_, err := session.Run(t.Context(), batch.Statement{SQL: "SELECT 1"},
		batch.Statement{SQL: "DELETE FROM items WHERE id = 1"})
	requireCode(t, err, "55P03")
	var failed *batch.StatementError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, failed.Index)
}

func requireCode(t *testing.T, err error, code string) {
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, code, pgErr.Code)
}

func TestSettingsEndWithTheTransaction(t *testing.T) {
	t.Parallel()

	_, session := setup(t)
	var inside string
	_, err := session.Run(t.Context(), batch.Statement{
		SQL: "SELECT current_setting('application_name')",
		Scan: func(rows pgx.Rows) (err error) {
			inside, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
			return err
		},
	})
	require.NoError(t, err)
	require.Regexp(t, "^sexton items [0-9a-f]{8}#1$", inside)
	for setting, want := range map[string]string{
		"statement_timeout": "0", "lock_timeout": "0", "enable_seqscan": "on",
		"plan_cache_mode": "auto", "synchronous_commit": "on",
	} {
		require.Equal(t, want, pgtest.Scalar[string](t, session.Conn, "SELECT current_setting($1)", setting), setting)
	}
}

// Settings that a trigger of the application has changed for the session are reset after
// the batch, since the connection is used again.
func TestSettingsOfTriggersEndWithTheBatch(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	db.Exec(`CREATE FUNCTION change_settings() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	PERFORM set_config('default_transaction_read_only', 'on', false), set_config('search_path', 'elsewhere, pg_catalog', false);
	RETURN NULL;
END$$;
CREATE TRIGGER change_settings AFTER DELETE ON items FOR EACH STATEMENT EXECUTE FUNCTION change_settings()`)
	const path = "SELECT pg_catalog.current_setting('search_path')"
	before := pgtest.Scalar[string](t, session.Conn, path)
	for id := range 3 {
		affected := pgtest.Must(session.Run(t.Context(),
			batch.Statement{SQL: "DELETE FROM items WHERE id = $1", Args: []any{id + 1}}))(t)
		require.Equal(t, []int64{1}, affected)
	}
	require.Equal(t, before, pgtest.Scalar[string](t, session.Conn, path))
}

func TestBatchesIgnoreTheDefaultIsolationLevel(t *testing.T) {
	t.Parallel()

	_, session := setup(t)
	pgtest.Exec(t, session.Conn, "SET default_transaction_isolation = 'serializable'")
	var level string
	_, err := session.Run(t.Context(), batch.Statement{
		SQL: "SELECT current_setting('transaction_isolation')",
		Scan: func(rows pgx.Rows) (err error) {
			level, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
			return err
		},
	})
	require.NoError(t, err)
	require.Equal(t, "read committed", level)
}

func TestFenceRefusesAStaleToken(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	db.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp()")
	successor := lease.Manager{Jobs: db.Connected, Holder: "successor"}
	pgtest.Must(successor.Acquire(t.Context(), "items", time.Minute, db.Connected))(t)

	_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM items"})
	require.ErrorIs(t, err, lease.ErrLost)
	require.EqualValues(t, 10, count(t, db), "a former holder changed rows")
}

func TestFenceRefusesWithoutARow(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	db.Exec("DELETE FROM sexton.fences")
	_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM items"})
	require.ErrorIs(t, err, lease.ErrLost)
	require.EqualValues(t, 10, count(t, db))
}

// A session prepares no statements through a transaction pooler, since each transaction
// may use another server session.
func TestNothingIsPreparedThroughAPooler(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	settings := session.Conn.Config()
	settings.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn := pgtest.ConnectAs(t, settings)
	session.Conn = conn
	for _, id := range []int64{1, 2} {
		affected := pgtest.Must(session.Run(t.Context(),
			batch.Statement{SQL: "DELETE FROM items WHERE id = ANY ($1)", Args: []any{[]int64{id}}}))(t)
		require.Equal(t, []int64{1}, affected)
	}
	require.Zero(t, pgtest.Scalar[int64](t, conn, "SELECT count(*) FROM pg_prepared_statements"))
	require.EqualValues(t, 8, count(t, db))
}

// The first transaction of a connection takes four round trips, whatever the number of
// its statements. Two prepare and send the frame, and two prepare and send the
// statements.
func TestStatementsArePreparedTogether(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	settings := session.Conn.Config()
	network := &pgtest.Network{}
	settings.DialFunc = network.Dial
	session.Conn = pgtest.ConnectAs(t, settings)
	statements := make([]batch.Statement, 10)
	for i := range statements {
		statements[i].SQL = fmt.Sprintf("DELETE FROM items WHERE id = %d", i+1)
	}
	for i, expected := range []int64{4, 1, 3, 1} {
		network.Trips.Store(0)
		pgtest.Must(session.Run(t.Context(), statements[:5+i/2*5]...))(t)
		require.Equal(t, expected, network.Trips.Load())
	}
	require.Zero(t, count(t, db))
}

// Another session on the same connection uses its prepared statements. They are prepared
// again after the type of a column has changed.
func TestPreparedStatementsAreReused(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	text := ""
	statement := batch.Statement{
		SQL: "DELETE FROM items WHERE id = (SELECT min(id) FROM items) RETURNING parent",
		Scan: func(rows pgx.Rows) error {
			for rows.Next() {
				text = string(rows.RawValues()[0])
			}
			return rows.Err()
		},
	}
	prepared := func() (at time.Time) {
		require.NoError(t, session.Conn.QueryRow(t.Context(),
			"SELECT prepare_time FROM pg_prepared_statements WHERE statement = $1", statement.SQL).Scan(&at))
		return at
	}
	pgtest.Must(session.Run(t.Context(), statement))(t)
	first := prepared()
	next := &batch.Session{Conn: session.Conn, Names: session.Names, Fence: session.Fence, Limits: session.Limits}
	pgtest.Must(next.Run(t.Context(), statement))(t)
	require.Equal(t, first, prepared())

	db.Exec("ALTER TABLE items ALTER parent TYPE text USING 'now text ' || parent")
	pgtest.Must(next.Run(t.Context(), statement))(t)
	require.Equal(t, "now text 3", text)
	require.NotEqual(t, first, prepared())
	require.EqualValues(t, 7, count(t, db))
}

// A batch is not retried if a trigger raises the SQLSTATE of an outdated prepared
// statement.
func TestErrorOfATriggerIsNotAStalePlan(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	db.Exec(`CREATE SEQUENCE tries;
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM pg_catalog.nextval('public.tries'); RAISE EXCEPTION 'no' USING ERRCODE = '0A000'; END $$;
		CREATE TRIGGER refuse BEFORE DELETE ON items FOR EACH ROW EXECUTE FUNCTION refuse()`)
	_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM items WHERE id = 1"})
	requireCode(t, err, "0A000")
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, db.Database, "SELECT last_value FROM tries"))
}

// If the statement timeout expires before the first statement of the caller begins, the
// error has the index of that statement. On a busy server the frame may take all of the
// time.
func TestTimeoutOfTheFrameCountsForTheFirstStatement(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	db.Exec("CREATE OR REPLACE FUNCTION sexton.application_path(configured text) RETURNS text LANGUAGE sql AS 'SELECT pg_sleep(600)::text'")
	limits := session.Limits
	limits.StatementTimeout = 20 * time.Millisecond
	_, err := session.RunWithin(t.Context(), limits, batch.Statement{SQL: "DELETE FROM items"})
	var failed *batch.StatementError
	require.ErrorAs(t, err, &failed)
	require.Zero(t, failed.Index)
	require.EqualValues(t, 10, count(t, db))
}

func TestErrorsNameTheirStatement(t *testing.T) {
	t.Parallel()
	because := errors.New("refused")
	require.EqualError(t, &batch.StatementError{Index: 2, Err: because}, "statement 2: refused")
	require.EqualError(t, &batch.StatementError{Index: batch.Frame, Err: because}, "batch: refused")
}

// If a crash of the server reverts a lease and another holder gets its token, the first
// holder commits nothing on a new connection.
func TestLeaseRevertedByACrashCommitsNothing(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	deletion := batch.Statement{SQL: "DELETE FROM items WHERE id = $1", Args: []any{1}}
	_, err := session.Run(t.Context(), deletion)
	require.NoError(t, err, "a new connection finds the lease")

	// A crash reverts the commits of the lease and of its fence, and closes every
	// connection.
	db.Exec("DELETE FROM sexton.leases; DELETE FROM sexton.fences")
	require.NoError(t, session.Conn.Close(t.Context()))
	second := pgtest.Must((&lease.Manager{Jobs: db.Connected, Holder: "other"}).Acquire(t.Context(), "items",
		time.Minute, db.Connected))(t)
	require.Equal(t, session.Fence.Token(), second.Token(), "the two holders must have the same token")
	session.Conn = pgtest.Acquire(t, db.Pool()).Conn()
	_, err = session.Run(t.Context(), deletion)
	require.ErrorIs(t, err, lease.ErrLost)

	session.Fence = second
	pgtest.Must(session.Run(t.Context(), deletion))(t)
}

// A READ ONLY batch cannot write, and fails if its token is not the current one.
func TestReadOnlyBatches(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	limits := session.Limits
	limits.Reads = true
	_, err := session.RunWithin(t.Context(), limits, batch.Statement{SQL: "DELETE FROM items"})
	require.ErrorContains(t, err, "read-only transaction")
	pgtest.Must(session.RunWithin(t.Context(), limits, batch.Statement{SQL: "SELECT FROM items"}))(t)
	db.Exec("UPDATE sexton.fences SET token = token + 1")
	_, err = session.RunWithin(t.Context(), limits, batch.Statement{SQL: "SELECT FROM items"})
	require.ErrorIs(t, err, lease.ErrLost)
}
