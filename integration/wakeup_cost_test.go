package integration

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// trip is what a client sent before it waited for the server.
type trip struct{ statements []string }

func (t trip) String() string {
	short := make([]string, len(t.statements))
	for i, sql := range t.statements {
		short[i] = fmt.Sprintf("%.110s", strings.Join(strings.Fields(sql), " "))
	}
	return strings.Join(short, "\n    ")
}

// tripCounter stands between a worker and the server's socket, and notes each round trip
// with its statements.
type tripCounter struct {
	mu    sync.Mutex
	trips []trip
}

// url is the address of the counter, for the database of another one.
func (c *tripCounter) listen(t *testing.T, to string) string {
	config := pgtest.Must(pgconn.ParseConfig(to))(t)
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	dir := t.TempDir()
	listener := pgtest.Must((&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, ".s.PGSQL.5432")))(t)
	var links sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		links.Wait()
	})
	links.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), network, address)
			if err != nil {
				_ = client.Close()
				continue
			}
			done := func() { _, _ = client.Close(), server.Close() }
			links.Go(func() { defer done(); _, _ = io.Copy(client, server) })
			links.Go(func() { defer done(); _ = c.forward(server, client) })
		}
	})
	return fmt.Sprintf("postgres://%s@/%s?host=%s&sslmode=disable", url.PathEscape(config.User),
		url.PathEscape(config.Database), url.QueryEscape(dir))
}

// forward copies a client's messages. A Sync or a simple query ends a trip.
func (c *tripCounter) forward(to io.Writer, from io.Reader) error {
	in := bufio.NewReader(from)
	prepared := map[string]string{}
	statements := []string{}
	for first := true; ; first = false {
		header := make([]byte, 5)
		if first { // The start-up message has no type.
			header = header[:4]
		}
		if _, err := io.ReadFull(in, header); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(header[len(header)-4:])-4)
		if _, err := io.ReadFull(in, body); err != nil {
			return err
		}
		if !first {
			part := strings.SplitN(string(body), "\x00", 3)
			switch header[0] {
			case 'P':
				prepared[part[0]] = part[1]
				statements = append(statements, "prepare "+part[1])
			case 'B':
				statements = append(statements, prepared[part[1]])
			case 'Q':
				statements = append(statements, part[0])
			}
			if header[0] == 'S' || header[0] == 'Q' {
				c.mu.Lock()
				c.trips = append(c.trips, trip{statements})
				c.mu.Unlock()
				statements = nil
			}
		}
		if _, err := to.Write(slices.Concat(header, body)); err != nil {
			return err
		}
	}
}

// take are the trips since the last call.
func (c *tripCounter) take() []trip {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.trips
	c.trips = nil
	return taken
}

// deletions are so many that a flush of somebody else's, now and then, does not count.
const deletions = 100

// testWakeUpCost counts what a single deletion costs, with the settings that users get:
// the round trips from the COMMIT of the deletion to that of the batch that takes its
// children away, and how often the server flushes its log, for the application's own
// COMMIT and for all that follows.
func testWakeUpCost(t *testing.T, p program) {
	t.Helper()
	// A vacuum of the catalogue would count, too.
	server := pgtest.Server(t, map[string]string{"fsync": "on", "wal_writer_delay": "10s", "autovacuum": "off"})
	s := p.site(t, pgtest.NewOn(t, server).URL, gated())
	s.exec(t, "DROP TRIGGER note_deletion ON children")
	s.exec(t, "INSERT INTO parents SELECT 100 + n FROM generate_series(1, $1::int) AS n", deletions)
	s.exec(t, "INSERT INTO children SELECT 100 + n, 100 + n FROM generate_series(1, $1::int) AS n", deletions)
	require.NoError(t, os.Remove(filepath.Join(s.dir, "sexton.yaml")))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "loose_foreign_keys.yml"),
		[]byte("children: [{table: parents, column: parent_id, on_delete: async_delete}]\n"), 0o600))
	counter := &tripCounter{}
	worker := s
	worker.url = counter.listen(t, s.url)
	w := worker.started(t, cronOff, "SEXTON_LOOSE_FOREIGN_KEYS__CONFIRM_AFTER=10m") // No recheck is counted.
	s.sleeps(t)
	before, records := s.flushes(t), s.count(t, walRecords)
	fewest := []trip{}
	batches := 0
	for n := range deletions {
		counter.take()
		s.exec(t, "DELETE FROM parents WHERE id = $1", 101+n)
		s.wait(t, time.Minute, "children to go", noWork)
		trips := counter.take()
		s.sleeps(t)
		batches += begun(append(slices.Clone(trips), counter.take()...))
		trips = trips[:1+slices.IndexFunc(trips, cleans)]
		if len(trips) > 0 && (len(fewest) == 0 || len(trips) < len(fewest)) {
			fewest = trips
		}
	}
	w.stop(t)
	s.pool.Reset() // The statistics of a session are complete once it has ended.
	s.wait(t, time.Minute, "sessions to end",
		"(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') = 1")
	written := float64(s.count(t, walRecords)-records) / deletions
	perDeletion := float64(s.flushes(t)-before) / deletions
	t.Logf("%d round trips, %.2f batches, %.2f flushes, %.1f records", len(fewest), float64(batches)/deletions,
		perDeletion, written)
	for _, each := range fewest {
		t.Log(each)
	}
	require.NotEmpty(t, fewest)
	require.LessOrEqual(t, len(fewest), 7, "round trips of the deletion with the fewest of others between its own")
	require.LessOrEqual(t, float64(batches)/deletions, 4.0,
		"fenced transactions per deletion until the worker sleeps again")
	require.LessOrEqual(t, written, 95.0, "records of the log per deletion with one child")
	require.LessOrEqual(t, perDeletion, 2.3, "flushes per deletion, that of its own COMMIT included")
}

// cleans reports whether the children went with it.
func cleans(t trip) bool {
	return slices.Contains(t.statements, "COMMIT") &&
		slices.ContainsFunc(t.statements, func(sql string) bool {
			return strings.Contains(sql,
				`DELETE FROM ONLY "public"."children"`)
		})
}

const walRecords = "SELECT wal_records FROM pg_stat_wal"

// begun counts the batches.
func begun(trips []trip) (n int) {
	for _, t := range trips {
		for _, sql := range t.statements {
			if strings.Contains(sql, "begin_batch") && !strings.HasPrefix(sql, "prepare ") {
				n++
			}
		}
	}
	return n
}

func (s workSite) flushes(t *testing.T) int64 {
	if s.count(t, "SELECT pg_catalog.current_setting('server_version_num')::bigint") >= 180000 {
		return s.count(t, "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'")
	}
	return s.count(t, "SELECT wal_sync FROM pg_stat_wal")
}
