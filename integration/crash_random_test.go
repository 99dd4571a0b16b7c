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
	// crashSeed is the variable that replays a run of the test below.
	crashSeed = "SEXTON_CRASH_SEED"
	// crashTime is the time after which no other round of work and death begins.
	crashTime = 20 * time.Second
)

// testRandomCrashes runs a random workload while two workers are killed at random moments
// and begun anew, and the server crashes once. In the end the tables must be what native
// foreign keys have left.
//
// The seed decides on the workload and on whom death meets after how much of the work;
// what the worker is doing just then is the machine's part.
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

	workers := []*runningWorker{s.begin(t), s.begin(t)}
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
		workers[dying] = s.begin(t)
	}
	t.Logf("%d rounds, %d statements, %d rows cleaned, %d runs of which %d did not end", round, w.steps,
		s.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("%")),
		s.count(t, "SELECT count(*) FROM sexton.runs"),
		s.count(t, "SELECT count(*) FROM sexton.runs WHERE error LIKE 'the worker died%' OR ended_at IS NULL"))
	for _, each := range workers {
		s.kill(t, each)
	}
	s.rests(t, s.started(t))
}

// begin starts a worker and does not wait for it: death may meet it while it starts.
func (s twinSite) begin(t *testing.T) *runningWorker {
	return s.start(t, []string{cronOff})
}

// crashWorkload is a client that does the same to both schemas, in one transaction. It
// refers to living rows only, as the native foreign keys see them.
type crashWorkload struct {
	twinSite

	random *rand.Rand
	conn   *pgx.Conn
	steps  int
	// made is the highest key ever used per table; none is used twice.
	made map[string]int
}

// draw returns a key of the table, the row of which may be gone.
func (w *crashWorkload) draw(table string) int { return 1 + w.random.IntN(w.made[table]) }

// fresh returns a new key of the table.
func (w *crashWorkload) fresh(table string) int {
	w.made[table]++
	return w.made[table]
}

// statement draws a statement, in which %[1]s stands for the schema.
func (w *crashWorkload) statement() string {
	switch w.random.IntN(10) {
	case 0, 1:
		return fmt.Sprintf("DELETE FROM %%[1]s.parents WHERE id = %d", w.draw("parents"))
	case 2:
		return fmt.Sprintf("DELETE FROM %%[1]s.parents WHERE id %%%% 10 = %d", w.random.IntN(10))
	case 3:
		return fmt.Sprintf("DELETE FROM %%[1]s.children WHERE id = %d", w.draw("children"))
	case 4, 5:
		id := w.fresh("parents")
		from := w.made["children"] + 1
		w.made["children"] += 10
		return fmt.Sprintf(`WITH parent AS (INSERT INTO %%[1]s.parents VALUES (%d) RETURNING id)
			INSERT INTO %%[1]s.children SELECT number, parent.id FROM parent, generate_series(%d, %d) AS number`, id, from, w.made["children"])
	case 6:
		child := w.draw("children")
		from := w.made["leaves"] + 1
		w.made["leaves"] += 10
		return fmt.Sprintf("INSERT INTO %%[1]s.leaves SELECT number, %d FROM generate_series(%d, %d) AS number", child,
			from, w.made["leaves"])
	case 7:
		return fmt.Sprintf("INSERT INTO %%[1]s.links VALUES (%d, %d)", w.fresh("links"), w.draw("parents"))
	case 8:
		return fmt.Sprintf("UPDATE %%[1]s.children SET parent_id = %d WHERE id = %d", w.draw("parents"),
			w.draw("children"))
	default:
		return fmt.Sprintf("UPDATE %%[1]s.links SET parent_id = %d WHERE id = %d", w.draw("parents"), w.draw("links"))
	}
}

// step runs one statement, or none where the native foreign keys refuse it or it would
// find nothing natively.
func (w *crashWorkload) step(t *testing.T) {
	if w.conn == nil {
		w.conn = connect(t, w.url)
	}
	sql, rollback := w.statement(), w.random.IntN(10) == 0
	refused := errors.New("refused")
	// A foreign key, a lock of another session or a deadlock with one.
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

// await waits, most of the time, until the workers have changed some more rows or nothing
// is left to be done.
func (w *crashWorkload) await(t *testing.T) {
	more := w.random.IntN(150) - 50
	if more <= 0 {
		return
	}
	cleaned := "SELECT count(*) FROM changes WHERE " + changedUnder("%")
	before := w.count(t, cleaned)
	w.wait(t, time.Minute, "the workers to go on",
		"("+cleaned+") >= $1 OR NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)", before+int64(more))
}
