package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

const (
	// crashSeed is the environment variable with the seed that replays testRandomCrashes.
	crashSeed = "SEXTON_CRASH_SEED"
	// crashTime is the time after which no further round begins.
	crashTime = 20 * time.Second
)

// testRandomCrashes runs a random workload while two workers are killed at random moments
// and restarted, and while the server crashes once. At the end the rows must be those
// that native foreign keys leave.
//
// The seed determines the workload, which worker is killed, and after how many changes.
// What the worker is doing at that moment depends on the machine.
func testRandomCrashes(t *testing.T, p program) {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv(crashSeed); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err, crashSeed)
	}
	t.Logf("to replay this, set %s=%d", crashSeed, seed)
	server := pgtest.Server(t)
	s := newTwinSite(t, p, server.URL("postgres"), "")
	w := &crashWorkload{
		twinSite: s, random: rand.New(rand.NewPCG(seed, 0)),
		made: map[string]int{"parents": 40, "children": 400, "leaves": 800, "links": 400},
	}

	workers := []*runningWorker{s.startWithoutWaiting(t), s.startWithoutWaiting(t)}
	crashAt := w.random.IntN(crashRounds / 2)
	until := time.Now().Add(crashTime)
	round := 0
	for ; round < crashRounds && time.Now().Before(until); round++ {
		for range w.random.IntN(40) {
			w.step(t)
		}
		w.await(t)
		if round == crashAt {
			require.NoError(t, server.Restart(t.Context(), devpg.Immediate))
			s.wait(t, time.Minute, "the server", "true")
			w.conn = nil
		}
		dying := w.random.IntN(len(workers))
		s.kill(t, workers[dying])
		workers[dying] = s.startWithoutWaiting(t)
	}
	t.Logf("%d rounds, %d statements, %d rows cleaned, %d runs of which %d did not end", round, w.steps,
		s.count(t, "SELECT count(*) FROM changes WHERE "+changesOfToken("%")),
		s.count(t, "SELECT count(*) FROM sexton.runs"),
		s.count(t, "SELECT count(*) FROM sexton.runs WHERE error LIKE 'the worker died%' OR ended_at IS NULL"))
	for _, each := range workers {
		s.kill(t, each)
	}
	s.stopWhenIdle(t, s.startWorker(t))
}

// startWithoutWaiting starts a worker and returns immediately, so that the worker may be
// killed while it starts.
func (s twinSite) startWithoutWaiting(t *testing.T) *runningWorker {
	return s.start(t, []string{cronOff})
}

// crashWorkload is a client that makes the same changes in both schemas in one
// transaction. It refers only to rows that exist in the schema with native foreign keys.
type crashWorkload struct {
	twinSite

	random *rand.Rand
	conn   *pgx.Conn
	steps  int
	// made is the highest key of each table. Keys are never reused.
	made map[string]int
}

// drawKey returns a random key of the table. Its row may have been deleted.
func (w *crashWorkload) drawKey(table string) int { return 1 + w.random.IntN(w.made[table]) }

// newKey returns a new key of the table.
func (w *crashWorkload) newKey(table string) int {
	w.made[table]++
	return w.made[table]
}

// statement returns a random statement in which %[1]s stands for the schema.
func (w *crashWorkload) statement() string {
	switch w.random.IntN(10) {
	case 0, 1:
		return fmt.Sprintf("DELETE FROM %%[1]s.parents WHERE id = %d", w.drawKey("parents"))
	case 2:
		return fmt.Sprintf("DELETE FROM %%[1]s.parents WHERE id %%%% 10 = %d", w.random.IntN(10))
	case 3:
		return fmt.Sprintf("DELETE FROM %%[1]s.children WHERE id = %d", w.drawKey("children"))
	case 4, 5:
		id := w.newKey("parents")
		from := w.made["children"] + 1
		w.made["children"] += 10
		return fmt.Sprintf(`WITH parent AS (INSERT INTO %%[1]s.parents VALUES (%d) RETURNING id)
			INSERT INTO %%[1]s.children SELECT number, parent.id FROM parent, generate_series(%d, %d) AS number`, id, from, w.made["children"])
	case 6:
		child := w.drawKey("children")
		from := w.made["leaves"] + 1
		w.made["leaves"] += 10
		return fmt.Sprintf("INSERT INTO %%[1]s.leaves SELECT number, %d FROM generate_series(%d, %d) AS number", child,
			from, w.made["leaves"])
	case 7:
		return fmt.Sprintf("INSERT INTO %%[1]s.links VALUES (%d, %d)", w.newKey("links"), w.drawKey("parents"))
	case 8:
		return fmt.Sprintf("UPDATE %%[1]s.children SET parent_id = %d WHERE id = %d", w.drawKey("parents"),
			w.drawKey("children"))
	default:
		return fmt.Sprintf("UPDATE %%[1]s.links SET parent_id = %d WHERE id = %d", w.drawKey("parents"), w.drawKey("links"))
	}
}

// step runs one random statement in both schemas. It rolls back if a native foreign key
// refuses the statement or if the statement finds no row in the native schema.
func (w *crashWorkload) step(t *testing.T) {
	if w.conn == nil {
		w.conn = connect(t, w.url)
	}
	sql, rollback := w.statement(), w.random.IntN(10) == 0
	refused := errors.New("refused")
	// A statement may fail because of a foreign key, a lock timeout or a deadlock.
	refuses := func(err error) bool {
		failed, ok := errors.AsType[*pgconn.PgError](err)
		return ok && slices.Contains([]string{"23503", "55P03", "40P01"}, failed.Code)
	}
	err := pgx.BeginFunc(t.Context(), w.conn, func(tx pgx.Tx) error {
		tag, err := tx.Exec(t.Context(), fmt.Sprintf(sql, "native"))
		if err == nil && tag.RowsAffected() == 0 {
			return refused
		}
		if err == nil {
			_, err = tx.Exec(t.Context(), fmt.Sprintf(sql, "public"))
		}
		if err == nil && rollback {
			return refused
		}
		return err
	})
	if errors.Is(err, refused) || refuses(err) {
		return
	}
	require.NoError(t, err, sql)
	w.steps++
}

// await waits in most cases until the workers have changed a random number of further
// rows or have no work left.
func (w *crashWorkload) await(t *testing.T) {
	more := w.random.IntN(150) - 50
	if more <= 0 {
		return
	}
	cleaned := "SELECT count(*) FROM changes WHERE " + changesOfToken("%")
	before := w.count(t, cleaned)
	w.wait(t, time.Minute, "further changes of the workers",
		"("+cleaned+") >= $1 OR NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)", before+int64(more))
}
