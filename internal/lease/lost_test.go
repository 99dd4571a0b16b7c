package lease_test

import (
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// wire is a proxy before a database.
type wire struct {
	database database.Database
	state    atomic.Int32
}

// The states of a wire: it may lose the server's next answer with its connection, and let nothing more through then.
const (
	up int32 = iota
	losesOne
	breaks
	broken
)

func (w *wire) forward(to, from net.Conn, answers bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		lost := answers && (w.state.CompareAndSwap(losesOne, up) || w.state.CompareAndSwap(breaks, broken))
		if err != nil || lost || w.state.Load() == broken {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func behindWire(t *testing.T, db *dbtest.DB) *wire {
	w := &wire{}
	u := pgtest.Must(url.Parse(db.URL))(t)
	socket := u.Query().Get("host") + "/.s.PGSQL." + u.Query().Get("port")
	listener := pgtest.Must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
			if err != nil || w.state.Load() == broken {
				_ = client.Close()
				continue
			}
			go w.forward(server, client, false)
			go w.forward(client, server, true)
		}
	}()
	u.Host, u.RawQuery = listener.Addr().String(), "sslmode=disable"
	w.database = pgtest.Must(database.Open(t.Context(), "main", u.String(), "", dbtest.Names(), 1))(t)
	t.Cleanup(w.database.Close)
	return w
}

// free tells whether another process could have the lease, without taking it.
func free(db *dbtest.DB) bool {
	return len(db.Rows("SELECT FROM sexton.leases WHERE expires_at > clock_timestamp()")) == 0
}

// The server has committed, and its answer gets lost: the process that has the lease may have it, with and without reading ahead.
func TestALostAnswerDoesNotRefuseItsOwnProcess(t *testing.T) {
	t.Parallel()
	{
		t.Run("alone", func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			w := behindWire(t, db)
			m := &lease.Manager{Jobs: w.database, Holder: "one"}
			var found int64
			limits := batch.Limits{StatementTimeout: time.Minute, LockTimeout: time.Minute}
			statement := batch.Statement{SQL: "SELECT count(*) FROM sexton.runs", Scan: batch.One(&found)}
			run := lease.Run{Kind: "some_kind", Database: "main"}
			lost := func(state int32) {
				for range 2 { // Everything is prepared then: the answer is that of the statement itself.
					_, granted := pgtest.Must2(m.Begin(t.Context(), run, key, time.Minute, w.database))(t)
					conn := pgtest.Must(w.database.Async().Acquire(t.Context()))(t)
					session := &batch.Session{Conn: conn.Conn(), Names: dbtest.Names(), Fence: granted, Limits: limits}
					pgtest.Must(session.Run(t.Context(), statement))(t)
					conn.Release()
					require.NoError(t, granted.Release(t.Context()))
				}
				w.state.Store(state)
				_, _, err := m.Begin(t.Context(), run, key, time.Minute, w.database)
				require.Error(t, err)
			}

			lost(losesOne)
			require.True(t, free(db), "a manager that makes no further attempt leaves none behind")

			lost(breaks)
			require.False(t, free(db))
			_, err := manager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected)
			require.ErrorAs(t, err, new(*lease.HeldError), "another manager of that name has lost nothing")
			w.state.Store(up)
			before := fence(t, db)
			_, granted, err := m.Begin(t.Context(), run, key, time.Minute, w.database)
			require.NoError(t, err)
			require.Equal(t, before+1, granted.Token(), "the fence refuses what came before")
			_, err = m.Acquire(t.Context(), key, time.Minute, w.database)
			require.ErrorAs(t, err, new(*lease.HeldError), "a lease that is worked under is nothing that was lost")
			require.NoError(t, granted.Release(t.Context()))
		})
	}
}

// A statement whose connection has died may come to the server after the next attempt: here once that one has given the lease back.
func TestALostStatementThatComesLateDoesNotRefuseItsOwnProcess(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	w := behindWire(t, db)
	m := &lease.Manager{Jobs: w.database, Holder: "one"}
	first := pgtest.Must(m.Acquire(t.Context(), key, time.Minute, w.database))(t)
	require.NoError(t, first.Release(t.Context()))
	w.state.Store(breaks)
	_, err := m.Acquire(t.Context(), key, time.Minute, w.database)
	require.Error(t, err)
	w.state.Store(up)
	late := db.Rows("SELECT attempt FROM sexton.leases")[0][0]

	second := pgtest.Must(m.Acquire(t.Context(), key, time.Minute, w.database))(t)
	db.Exec("UPDATE sexton.leases SET attempt = $1::text::bigint WHERE expires_at <= clock_timestamp()", late)
	require.NoError(t, second.Renew(t.Context()), "while another attempt holds the lease it changes nothing")
	require.NoError(t, second.Release(t.Context()))
	db.Exec("UPDATE sexton.leases SET token = token + 1, attempt = $1::text::bigint, expires_at = clock_timestamp() + interval '1 minute'", late)
	pgtest.Must(m.Acquire(t.Context(), key, time.Minute, w.database))(t)
}

// The answer to a lifted token gets lost: the holder does not know its own token any more, and gives the lease back all the same.
func TestALeaseWhoseTokenWasLiftedUnheardIsGivenBack(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	granted := pgtest.Must(manager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	db.Exec("UPDATE sexton.leases SET token = 41")
	require.NoError(t, granted.Release(t.Context()))
	require.True(t, free(db))
}

// A crash of the server takes back releases that did not wait for the disk: the row says again that this process has the lease.
func TestALeaseThatACrashBroughtBackDoesNotRefuseItsOwnProcess(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	m := manager(db, "one")
	const held = "SELECT token, attempt FROM sexton.leases WHERE expires_at > clock_timestamp()"
	var rows [][]string
	for range 3 {
		granted := pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
		rows = append(rows, db.Rows(held)...)
		require.NoError(t, granted.Release(t.Context()))
	}
	for _, row := range rows {
		db.Exec("UPDATE sexton.leases SET token = $1::text::bigint, attempt = $2::text::bigint, expires_at = clock_timestamp() + interval '1 minute'", row[0], row[1])
		_, err := manager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected)
		require.ErrorAs(t, err, new(*lease.HeldError), "another manager of that name has given nothing back")
		granted := pgtest.Must(m.Acquire(t.Context(), key, time.Minute, db.Connected))(t)
		_, err = m.Acquire(t.Context(), key, time.Minute, db.Connected)
		require.ErrorAs(t, err, new(*lease.HeldError), "a lease that is worked under is its own")
		require.NoError(t, granted.Release(t.Context()))
	}
}

// A statement whose connection has died may lift the token after a later one has lifted it higher.
func TestALateStatementLowersNoToken(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first := pgtest.Must(manager(db, "one").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	db.Exec("UPDATE sexton.fences SET token = 40")
	require.NoError(t, first.Raise(t.Context(), db.Connected))
	require.EqualValues(t, 41, first.Token())
	pgtest.Must(db.Connected.AsyncQueries().LeaseAdvance(t.Context(), dbsqlc.LeaseAdvanceParams{
		Token: 40, Key: key, Holder: first.Holder(), Attempt: first.Attempt(),
	}))(t)
	expire(db)
	second := pgtest.Must(manager(db, "two").Acquire(t.Context(), key, time.Minute, db.Connected))(t)
	require.EqualValues(t, 42, second.Token(), "no token has two holders")
}
