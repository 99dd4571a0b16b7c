//go:build soak

package integration

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

const (
	// soakTime and soakSeed are the environment variables with the duration of the faults
	// and with the seed that replays them.
	soakTime = "SEXTON_SOAK_TIME"
	soakSeed = "SEXTON_SOAK_SEED"
	// maxFaults is the highest number of simultaneous faults. maxFaultTime is the longest
	// duration of a fault.
	maxFaults    = 3
	maxFaultTime = 8 * time.Second
	// maxStallTime is longer than the time after which a worker gives up a connection
	// without acknowledgment. The proxy's kernel acknowledges packets, so the worker's
	// own limits end these connections, not those of TCP.
	maxStallTime = 20 * time.Second
)

// soakTables creates triggers that raise an error when a worker changes a row whose id
// ends in a digit of the table raising.
const soakTables = `
CREATE TABLE raising (digit bigint);
CREATE FUNCTION raise_at_workers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') LIKE 'sexton%#%' AND EXISTS (SELECT FROM public.raising WHERE digit = OLD.id % 10) THEN
        RAISE EXCEPTION 'soak: not this row';
    END IF;
    RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER raise_at_workers BEFORE DELETE ON children FOR EACH ROW EXECUTE FUNCTION raise_at_workers();
CREATE TRIGGER raise_at_workers BEFORE DELETE ON leaves FOR EACH ROW EXECUTE FUNCTION raise_at_workers();
CREATE TRIGGER raise_at_workers BEFORE UPDATE ON links FOR EACH ROW EXECUTE FUNCTION raise_at_workers();`

// forgedNotifications are notifications that any role may send on River's channels: pause
// all queues, cancel running jobs, and make the leader resign.
const forgedNotifications = `
SELECT pg_notify('sexton.river_control', '{"action":"pause","queue":"*"}'), pg_notify('sexton.river_leadership', '{"action":"request_resign"}');
SELECT pg_notify('sexton.river_control', json_build_object('action', 'cancel', 'queue', job.queue, 'job_id', job.id)::text)
FROM sexton.river_job AS job WHERE job.state = 'running'`

// TestSoak runs a random workload on tables with definitions and on the same tables with
// native foreign keys. Meanwhile random faults hit two workers with wrong clocks and
// their connections, and forged notifications arrive. After the faults, the workers must
// finish their work, and the tables must be equal. A second subtest does the same for
// moving diffs.
func TestSoak(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if given := os.Getenv(soakSeed); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err, soakSeed)
	}
	length := 5 * time.Minute
	if given := os.Getenv(soakTime); given != "" {
		var err error
		length, err = time.ParseDuration(given)
		require.NoError(t, err, soakTime)
	}
	t.Logf("to replay this, set %s=%d %s=%s", soakSeed, seed, soakTime, length)
	p := buildSkewed(t)
	t.Run("loose foreign keys", func(t *testing.T) { t.Parallel(); soakLooseKeys(t, p, seed, length) })
	t.Run("diffs", func(t *testing.T) { t.Parallel(); soakDiffs(t, p, seed, length) })
}

// soak is a site whose workers use an unreliable network.
type soak struct {
	// site connects through the network, and direct connects to the server.
	site    workSite
	direct  workSite
	network pgtest.Network
	random  *rand.Rand
	workers []*runningWorker
	counts  map[string]int
}

const stalledConnections = "stalled connections"

// fault starts a fault and returns a function that ends it.
type fault func(t *testing.T) (end func())

func newSoak(t *testing.T, site workSite, seed uint64) *soak {
	s := &soak{site: site, direct: site, random: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}}
	s.site.url = s.network.Listen(t, site.url)
	for range 2 {
		s.workers = append(s.workers, s.start(t))
	}
	return s
}

// run starts random faults and calls work repeatedly until length has elapsed. Then it
// ends all faults.
func (s *soak) run(t *testing.T, length time.Duration, more map[string]fault, work func()) {
	t.Helper()
	type lasting struct {
		end   func()
		until time.Time
	}
	faults := map[string]fault{
		"kill": s.kill, "stop": s.stop, "cut": s.cut, "lost commits": s.loseCommits,
		stalledConnections: s.stall,
	}
	maps.Copy(faults, more)
	names := slices.Sorted(maps.Keys(faults))
	active := map[string]lasting{}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(length); time.Now().Before(until); <-tick.C {
		work()
		for name, each := range active {
			if time.Now().After(each.until) {
				each.end()
				delete(active, name)
			}
		}
		name := names[s.random.IntN(len(names))]
		if _, lasts := active[name]; !lasts && len(active) < maxFaults && s.random.IntN(4) == 0 {
			s.counts[name]++
			longest := maxFaultTime
			if name == stalledConnections {
				longest = maxStallTime
			}
			active[name] = lasting{faults[name](t), time.Now().Add(time.Duration(s.random.Int64N(int64(longest))))}
		}
	}
	for _, each := range active {
		each.end()
	}
	t.Logf("faults: %v", s.counts)
}

// start starts a worker with a wrong clock.
func (s *soak) start(t *testing.T) *runningWorker {
	t.Helper()
	s.counts["clock"]++
	wrong := randomClock(s.random)
	t.Logf("a worker starts with %s", wrong)
	return s.site.start(t, []string{cronOff, wrong, "SEXTON_LOOSE_FOREIGN_KEYS__CONNECTIONS=4"})
}

// kill kills a worker, which may be stopped, and starts another one.
func (s *soak) kill(t *testing.T) func() {
	n := s.random.IntN(len(s.workers))
	s.requireRunning(t, n)
	_ = s.workers[n].cmd.Process.Kill()
	s.workers[n].waitExit(t, stopLimit)
	s.workers[n] = s.start(t)
	return func() {}
}

// requireRunning fails the test if a worker has ended by itself.
func (s *soak) requireRunning(t *testing.T, n int) {
	select {
	case <-s.workers[n].ended:
		require.Fail(t, "a worker ended by itself", "%s", s.workers[n].cmd.ProcessState)
	default:
	}
}

func (s *soak) stop(*testing.T) func() {
	stopped := s.workers[s.random.IntN(len(s.workers))]
	_ = stopped.cmd.Process.Signal(syscall.SIGSTOP)
	return func() { _ = stopped.cmd.Process.Signal(syscall.SIGCONT) }
}

func (s *soak) cut(*testing.T) func() {
	s.network.Cut(1 + s.random.IntN(3))
	return func() {}
}

func (s *soak) loseCommits(*testing.T) func() {
	var left atomic.Int64
	left.Store(1 + s.random.Int64N(3))
	s.network.LoseAnswers(func(answer []byte) bool {
		return bytes.Contains(answer, []byte("COMMIT\x00")) && left.Add(-1) >= 0
	})
	return func() { left.Store(0) }
}

func (s *soak) stall(*testing.T) func() {
	s.network.Stall(1 + s.random.IntN(3))
	return s.network.Heal
}

// session runs statements in a transaction. Errors are ignored. The server ends the
// transaction after a time limit even if the test crashes.
func (s *soak) session(t *testing.T, sql string) func() {
	conn := connect(t, s.direct.url)
	_, _ = conn.Exec(t.Context(), fmt.Sprintf(`BEGIN; SET LOCAL lock_timeout = '300ms';
		SET LOCAL idle_in_transaction_session_timeout = %d; %s`, maxFaultTime.Milliseconds(), sql))
	return func() { _ = conn.Close(context.Background()) }
}

// stopAllButOne stops one of the two workers with SIGTERM and returns the other one.
func (s *soak) stopAllButOne(t *testing.T) *runningWorker {
	for n := range s.workers {
		s.requireRunning(t, n)
	}
	s.workers[1].stop(t)
	return s.workers[0]
}

func soakLooseKeys(t *testing.T, p program, seed uint64, length time.Duration) {
	t.Helper()
	site := newTwinSite(t, p, pgtest.New(t).URL, "")
	site.exec(t, soakTables)
	s := newSoak(t, site.workSite, seed)
	w := &crashWorkload{
		twinSite: site, random: s.random,
		made: map[string]int{"parents": 40, "children": 400, "leaves": 800, "links": 400},
	}
	w.conn = connect(t, site.url)
	// A stopped worker may hold the lock, and this test must continue to resume that
	// worker. So lock waits must be short.
	pgtest.Exec(t, w.conn, "SET lock_timeout = '300ms'")
	tables := []string{"parents", "children", "leaves", "links"}
	s.run(t, length, map[string]fault{
		"lock of a table": func(t *testing.T) func() {
			return s.session(t, "LOCK TABLE public."+tables[s.random.IntN(4)]+" IN ACCESS EXCLUSIVE MODE")
		},
		"locks of rows": func(t *testing.T) func() {
			return s.session(t, "SELECT FROM public."+tables[s.random.IntN(4)]+
				fmt.Sprintf(" WHERE id %% 10 = %d FOR UPDATE", s.random.IntN(10)))
		},
		"long transaction": func(t *testing.T) func() {
			return s.session(t, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()")
		},
		"requested job": func(t *testing.T) func() {
			return s.session(t, `SELECT sexton.enqueue('`+kind+`', '{"database": "main"}')`)
		},
		"raising trigger": func(t *testing.T) func() {
			site.exec(t, "INSERT INTO raising VALUES ($1)", s.random.IntN(10))
			return func() { site.exec(t, "DELETE FROM raising") }
		},
	}, func() {
		// run calls this function every 100 ms.
		site.exec(t, forgedNotifications)
		for range s.random.IntN(10) {
			w.step(t)
		}
	})
	require.Zero(t, site.count(t, "SELECT count(*) FROM sexton.river_queue WHERE paused_at IS NOT NULL"),
		"queues paused by forged notifications")
	require.Zero(t, site.count(t, "SELECT count(*) FROM sexton.river_job WHERE state = 'cancelled'"),
		"jobs canceled by forged notifications")
	t.Logf("%d statements, %d rows cleaned, %d tombstones left", w.steps,
		site.count(t, "SELECT count(*) FROM changes WHERE "+changesOfToken("%")),
		site.count(t, "SELECT count(*) FROM loose_foreign_keys_deleted_records"))
	// Tombstones that failed in a trigger are deferred for minutes or given up, so the
	// test retries them.
	p.run(t, site.dir, site.url, 0, "failures", "retry", "tombstones", "--all")
	site.stopWhenIdle(t, s.stopAllButOne(t))
}

func soakDiffs(t *testing.T, p program, seed uint64, length time.Duration) {
	bucket := s3test.New(t, s3test.Options{})
	site := newDiffSite(t, p, diffsIn(t, bucket))
	s := newSoak(t, site.workSite, seed)
	last := 0
	s.run(t, length, map[string]fault{"store": func(*testing.T) func() {
		bucket.Proxy.Fail(badStore(s.random.Uint64()))
		return func() { bucket.Proxy.Fail(nil) }
	}}, func() {
		if s.random.IntN(10) == 0 {
			site.exec(t, addDiffs, last+1, last+4)
			last += 4
		}
	})
	// Failed jobs wait increasingly long, so the test makes them due.
	site.exec(t, "UPDATE sexton.river_job SET scheduled_at = now() WHERE state = 'retryable'")
	site.wait(t, 6*time.Minute, "all diffs to be moved", allMoved)
	site.waitIdle(t)
	site.wait(t, time.Minute, "dead workers to be removed", "(SELECT count(*) FROM sexton.clients) <= 2")
	s.stopAllButOne(t).stop(t)
	// The next run of the job would record the end of the killed workers' runs, but only
	// minutes later, because several runs of this job may exist at the same time. So the
	// test deletes the open runs.
	site.exec(t, "DELETE FROM sexton.runs WHERE kind = $1 AND ended_at IS NULL", moveDiff)
	site.requireCleanedUp(t)
	diffs, _ := site.verifyObjects(t)
	require.Equal(t, last, diffs)
}

// badStore returns a function that selects a random fault for half of the requests: an
// error 503, a broken connection or a delay.
func badStore(seed uint64) func(request string) s3test.Fault {
	random := rand.New(rand.NewPCG(seed, 1))
	bad := []s3test.Fault{s3test.Busy, s3test.Busy, s3test.Reset, s3test.Cut, s3test.Slow}
	return func(string) s3test.Fault { // The proxy holds a lock during the call.
		if random.IntN(2) == 0 {
			return s3test.Pass
		}
		return bad[random.IntN(len(bad))]
	}
}
