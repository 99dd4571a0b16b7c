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
)

// trip is what a client sent before it waited for the server.
type trip struct {
	at         time.Time
	statements []string
}

// tripCounter stands between a worker and the server's socket, and notes each round trip with its statements.
type tripCounter struct {
	mu    sync.Mutex
	trips []trip
}

// url is the address of the counter, for the database of another one.
func (c *tripCounter) listen(t *testing.T, to string) string {
	t.Helper()
	config, err := pgconn.ParseConfig(to)
	require.NoError(t, err)
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	dir := t.TempDir()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, ".s.PGSQL.5432"))
	require.NoError(t, err)
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
	return fmt.Sprintf("postgres://%s@/%s?host=%s&sslmode=disable", url.PathEscape(config.User), url.PathEscape(config.Database), url.QueryEscape(dir))
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
				c.trips = append(c.trips, trip{time.Now(), statements})
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

// TestWakeUpCost counts what passes between the COMMIT of a deletion and that of the batch that takes the children away.
func TestWakeUpCost(t *testing.T) {
	t.Parallel()
	s := newWorkSite(t, build(t))
	s.exec(t, "DROP TRIGGER note_deletion ON children; INSERT INTO parents SELECT generate_series(101, 140)")
	s.exec(t, "INSERT INTO children SELECT n, n FROM generate_series(101, 140) AS n")
	require.NoError(t, os.Remove(filepath.Join(s.dir, "sexton.yaml")), "the defaults count")
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "loose_foreign_keys.yml"),
		[]byte("children: [{table: parents, column: parent_id, on_delete: async_delete}]\n"), 0o600))
	counter := &tripCounter{}
	worker := s
	worker.url = counter.listen(t, s.url)
	worker.started(t, cronOff)
	s.wait(t, time.Minute, "the worker to sleep", asleep, awakeKey()...)
	counts := []int{}
	var last []trip
	for n := 101; n <= 140; n++ {
		counter.take()
		s.exec(t, "DELETE FROM parents WHERE id = $1", n)
		s.wait(t, time.Minute, "children to go", noWork)
		s.wait(t, time.Minute, "the worker to sleep", asleep, awakeKey()...)
		trips := counter.take()
		cleaned := slices.IndexFunc(trips, func(each trip) bool {
			return slices.ContainsFunc(each.statements, func(sql string) bool { return strings.Contains(sql, "DELETE FROM ONLY \"public\".\"children\"") }) &&
				slices.Contains(each.statements, "COMMIT")
		})
		if cleaned >= 0 {
			counts, last = append(counts, cleaned+1), trips[:cleaned+1]
		}
	}
	slices.Sort(counts)
	for _, each := range last {
		short := []string{}
		for _, sql := range each.statements {
			short = append(short, strings.Join(strings.Fields(sql), " "))
			if len(short[len(short)-1]) > 110 {
				short[len(short)-1] = short[len(short)-1][:110]
			}
		}
		t.Logf("%s\n    %s", each.at.Format("05.000000"), strings.Join(short, "\n    "))
	}
	t.Log(counts)
	require.LessOrEqual(t, counts[0], 9, "round trips of the deletion that had the fewest strangers between its own")
}
