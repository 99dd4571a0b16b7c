package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// begun are the ways in which a lease can begin that has something to read ahead, and whether that counts.
var begun = map[string]struct {
	sql string
	// before comes between the first lease, whose connection has the statement prepared, and the second one.
	before func(t *testing.T, db *dbtest.DB, first *lease.Lease)
	fresh  bool
	counts bool
	held   bool
	// twice: the statement that begins the lease goes once more, without the reads.
	twice bool
}{
	"alone": {counts: true},
	"under the search_path of a batch": {
		sql: "SELECT count(*) FILTER (WHERE current_setting('search_path') ~ 'public') FROM public.children", counts: true,
	},
	"on a connection that does not know the statement": {fresh: true},
	"with a statement that the server refuses": {
		sql:    "SELECT 1 / count(*) FROM public.children",
		before: func(_ *testing.T, db *dbtest.DB, _ *lease.Lease) { db.Exec("DELETE FROM children") },
		twice:  true,
	},
	"with an answer that cannot be read": {
		sql: "SELECT nullif(count(*), 2) FROM public.children",
	},
	"with a statement that writes": {sql: "DELETE FROM public.children RETURNING 1", twice: true},
	"beside an open batch of an earlier holder": {
		before: func(t *testing.T, db *dbtest.DB, first *lease.Lease) {
			tx := pgtest.Must(pgtest.Connect(t, db.URL).Begin(t.Context()))(t)
			pgtest.Exec(t, tx, "SELECT sexton.begin_batch($1, $2, 60000, 60000, false)", first.Key(), first.Token())
		},
		twice: true,
	},
	"while another one holds it": {
		before: func(t *testing.T, db *dbtest.DB, _ *lease.Lease) {
			pgtest.Must(manager(db, "other").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
		},
		held: true,
	},
}

// What is read ahead counts only where it was read behind the fence, under the token of the lease. Otherwise the lease begins without it.
func TestReadingAhead(t *testing.T) {
	t.Parallel()
	for name, test := range begun {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			db.Exec("CREATE TABLE children (id bigint); INSERT INTO children VALUES (1)")
			var found int64
			ahead := &batch.Ahead{Names: dbtest.Names(), Key: key, Limits: batch.Limits{StatementTimeout: time.Minute, LockTimeout: time.Minute}}
			ahead.Statements = []batch.Statement{{SQL: "SELECT count(*) FROM public.children", Scan: batch.One(&found)}}
			if test.sql != "" {
				ahead.Statements[0].SQL = test.sql
			}
			jobs := pgtest.Must(database.Open(t.Context(), "main", db.URL, "", dbtest.Names(), 1))(t)
			t.Cleanup(jobs.Close)
			m := &lease.Manager{Jobs: jobs, Holder: "one"}
			first := pgtest.Must(m.Acquire(t.Context(), key, time.Minute, jobs))(t)
			conn := pgtest.Must(jobs.Pool.Acquire(t.Context()))(t)
			session := &batch.Session{Conn: conn.Conn(), Names: jobs.Names, Fence: first, Limits: ahead.Limits}
			pgtest.Must(session.Run(t.Context(), ahead.Statements...))(t)
			conn.Release()
			require.NoError(t, first.Release(t.Context()))
			db.Exec("INSERT INTO children VALUES (2)")
			if test.before != nil {
				test.before(t, db, first)
			}
			if test.fresh {
				jobs.Pool.Reset()
			}

			found = 0
			run, granted, err := m.Begin(t.Context(), lease.Run{Kind: "some_kind", Database: "main", Ahead: ahead}, key, time.Minute, jobs)
			entered := map[bool]int64{false: 1, true: 2}[test.twice] // What is taken back has used up an ID, too.
			require.Equal(t, entered, run)
			require.Equal(t, [][]string{{"1"}}, db.Rows("SELECT count(*) FROM sexton.runs"))
			if test.held {
				require.ErrorAs(t, err, new(*lease.HeldError))
				require.Zero(t, ahead.Token())
				return
			}
			require.NoError(t, err)
			require.Greater(t, granted.Token(), first.Token())
			require.Equal(t, granted.Token(), fence(t, db))
			if !test.counts {
				require.Zero(t, ahead.Token())
				return
			}
			require.Equal(t, granted.Token(), ahead.Token())
			require.EqualValues(t, 2, found)
			conn = pgtest.Must(jobs.Pool.Acquire(t.Context()))(t)
			defer conn.Release()
			session = &batch.Session{Conn: conn.Conn(), Names: jobs.Names, Fence: granted, Limits: ahead.Limits}
			pgtest.Must(session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM public.children"}))(t) // Nothing of the reading is left in the session.
			require.Equal(t, [][]string{{"0"}}, db.Rows("SELECT count(*) FROM children"))
		})
	}
}
