package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/jobrun"
	"sexton/internal/pgtest"
)

func TestForegroundLoad(t *testing.T) {
	t.Parallel()
	set, db, conn := filled(t, newDataSet, Fanout, 0.005)
	l := &load{transaction: set.transaction}
	updated := "SELECT coalesce(sum(n), 0) FROM (SELECT count(*) AS n FROM children_01 WHERE xmin::text::bigint > $1 UNION ALL SELECT count(*) FROM children_20 WHERE xmin::text::bigint > $1) AS counts"
	require.NoError(t, l.during(t.Context(), db.URL, func(context.Context) error {
		now := pgtest.Scalar[int64](t, conn, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
		// More than there are clients, so that some were due after the beginning.
		pgtest.WaitFor(t, "clients to update children", func(ctx context.Context) (bool, error) {
			var n int
			err := conn.QueryRow(ctx, updated, now).Scan(&n)
			return n > 2*foregroundClients, err
		})
		return nil
	}))
	require.NotEmpty(t, l.times)
	require.Positive(t, l.busy)
	require.Positive(t, l.length)
	before := pgtest.Must(set.trial(0).look(t.Context(), conn))(t)
	require.Equal(t, set.Rows, before["children_01"].referring, "the load moves no child")

	failed := errors.New("failed")
	require.ErrorIs(t, l.during(t.Context(), db.URL, func(context.Context) error { return failed }), failed)
	pgtest.Exec(t, conn, "DROP TABLE children_07")
	set.Tables = []string{"children_07"}
	l.transaction = set.transaction
	require.ErrorContains(t, l.during(t.Context(), db.URL, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}), `relation "children_07" does not exist`)
}

// A load whose clients cannot keep up is told from one that is slow.
func TestDisturbed(t *testing.T) {
	t.Parallel()
	round := func(took time.Duration, work measured) beside { // Every transaction takes all of the time from when it was due.
		return beside{&load{times: []time.Duration{took, took}, busy: 2 * took, length: time.Second}, work}
	}
	require.Equal(t, disturbance{name: undisturbed, transactions: 4, ms: jobrun.Percentiles{P50: 1000, P90: 1000, P99: 1000, Max: 1000}, busy: 25},
		disturbed(undisturbed, 30, []beside{round(time.Second, measured{}), round(time.Second, measured{})}))
	require.Equal(t, disturbance{
		name: sexton, transactions: 4, ms: jobrun.Percentiles{P50: 2000, P90: 8000, P99: 8000, Max: 8000}, busy: 125,
		rowsPerSecond: 30, statementMS: jobrun.Percentiles{P50: 1, P90: 1, P99: 1, Max: 1},
	}, disturbed(sexton, 30, []beside{
		round(2*time.Second, measured{took: time.Second, times: []time.Duration{time.Millisecond}}), round(8*time.Second, measured{took: 3 * time.Second}),
	}))
}

func TestNoteTellsThatTheMachineIsCrowded(t *testing.T) {
	t.Parallel()
	note := func(busy float64) string {
		var r Report
		r.foregroundNotes("all deleted", "30", []comparison{{foreground: []disturbance{{busy: 20}, {busy: 99}}}, {foreground: []disturbance{{busy: busy}, {busy: 99}}}})
		return strings.Join(r.notes, "")
	}
	require.Contains(t, note(50), "all deleted, Sexton's duty 30 %\n")
	require.NotContains(t, note(50), "too busy")
	require.Contains(t, note(50.6), "the undisturbed load took 51 % of the clients' time")
}

func TestStillness(t *testing.T) {
	t.Parallel()
	for scale, want := range map[float64]time.Duration{0.001: shortCalm, 0.1: calm / 2, 0.2: calm, 3: calm} {
		require.Equal(t, want, stillness(scale), "scale %g", scale)
	}
}

func TestStopwatch(t *testing.T) {
	t.Parallel()
	settings := pgtest.Must(pgx.ParseConfig(pgtest.New(t).URL))(t)
	watch := childWatch()
	settings.Tracer = watch
	conn := pgtest.ConnectAs(t, settings)
	for _, statement := range []string{"CREATE TABLE children (id bigint)", "CREATE TABLE " + tombstones + " (id bigint)", "SELECT 1"} {
		pgtest.Exec(t, conn, statement)
	}
	children, queue := watch.take()
	require.Len(t, children, 1)
	require.Len(t, queue, 1)

	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue("DELETE FROM children WHERE id = $1", 1)
	batch.Queue("DELETE FROM " + tombstones)
	batch.Queue("COMMIT")
	require.NoError(t, conn.SendBatch(t.Context(), batch).Close())
	children, queue = watch.take()
	require.Len(t, children, 1, "a transaction counts once")
	require.Empty(t, queue)
	require.Positive(t, children[0])
}

func TestUserSets(t *testing.T) {
	t.Parallel()
	set, db, _ := filled(t, newUserSet, BigUser, 0.001)
	require.Equal(t, [][]string{{"2", "1000"}, {"3", "100"}}, db.Rows("SELECT author_id, count(*) FROM notes GROUP BY 1 ORDER BY 1"))
	require.EqualValues(t, 1, set.size())

	set, db, _ = filled(t, newUserSet, ManyUsers, 0.05)
	require.EqualValues(t, 10, set.size())
	require.Equal(t, [][]string{{"1", "5"}}, db.Rows("SELECT id, user_type FROM users WHERE id = 1"))
	for table, column := range map[string]string{"notes": "author_id", "issues": "author_id", "award_emoji": "user_id", "resource_label_events": "user_id"} {
		each := "200"
		if table == "notes" {
			each = "400"
		}
		require.Equal(t, [][]string{{"11", each, each, "2", "12"}}, db.Rows(`
			SELECT count(*), min(n), max(n), min(owner), max(owner) FROM (SELECT `+column+` AS owner, count(*) AS n FROM `+table+` GROUP BY 1) AS counts`), table)
	}
	set, db, conn := filled(t, newUserSet, Duplicates, 0.001)
	require.Equal(t, [][]string{{"1", "110"}, {"2", "200"}, {"3", "20"}}, db.Rows("SELECT user_id, count(*) FROM award_emoji GROUP BY 1 ORDER BY 1"))
	before := pgtest.Must(set.trial(set.size()).look(t.Context(), conn))(t)
	require.EqualValues(t, 400, concerned(before))
	db.Exec("UPDATE notes SET author_id = 1 WHERE author_id = 2; DELETE FROM award_emoji WHERE user_id = 2")
	require.ErrorContains(t, set.trial(set.size()).check(t.Context(), conn, before, false), "award_emoji is not as it must be", "of half of them the ghost has no like")
	_, err := newUserSet("few", 1)
	require.EqualError(t, err, `no data set "few"`)
}

// TestUserCheck shows that each way to get the rows wrong is found.
func TestUserCheck(t *testing.T) {
	t.Parallel()
	const right = "UPDATE notes SET author_id = 1 WHERE author_id = 2"
	for _, wrong := range []string{
		"UPDATE notes SET author_id = 1 WHERE id = (SELECT min(id) FROM notes WHERE author_id = 3)",
		"UPDATE notes SET author_id = 3 WHERE id = (SELECT min(id) FROM notes WHERE author_id = 1)",
		"UPDATE notes SET author_id = NULL WHERE id = (SELECT min(id) FROM notes WHERE author_id = 1)",
		"DELETE FROM notes WHERE id = (SELECT min(id) FROM notes WHERE author_id = 3)",
	} {
		set, db, conn := filled(t, newUserSet, BigUser, 0.0001)
		work := set.trial(set.size())
		before := pgtest.Must(work.look(t.Context(), conn))(t)
		require.EqualValues(t, 100, concerned(before))
		require.ErrorContains(t, work.check(t.Context(), conn, before, false), "notes is not as it must be", "nothing was done")
		db.Exec(right)
		require.NoError(t, work.check(t.Context(), conn, before, false))
		db.Exec(wrong)
		require.ErrorContains(t, work.check(t.Context(), conn, before, false), "notes is not as it must be", wrong)
	}
}

// What the foreground asks costs the same before, while and after rows are moved: else its latency would tell how much has
// been moved and not how.
func TestForegroundReadsByIndexWhateverHasMoved(t *testing.T) {
	t.Parallel()
	for _, name := range GhostSets() {
		set, db, conn := filled(t, newUserSet, name, 0.02)
		db.Exec("VACUUM (FREEZE, ANALYZE)")
		row := set.Rows(set.Tables[0]) / 2
		plan := func() string {
			return fmt.Sprint(db.Rows("EXPLAIN (ANALYZE, TIMING off) " + strings.Replace(notesOfAnIssue, "$1", strconv.FormatInt(row, 10), 1)))
		}
		look := func(when string) {
			require.NotContains(t, plan(), "Seq Scan", "%s, %s", name, when)
			require.Regexp(t, `rows=1(\.00)? loops=1`, plan(), "%s, %s: the notes of note %d's issue", name, when, row)
			require.NoError(t, set.transaction(t.Context(), conn), "%s, %s", name, when)
		}
		look("before")
		db.Exec(fmt.Sprintf("UPDATE notes SET author_id = %d WHERE id %% 2 = 0", ghostID))
		look("half moved")
		db.Exec(fmt.Sprintf("UPDATE notes SET author_id = %d", ghostID))
		look("moved")
	}
}

func TestUsersThatRemainAreNoticed(t *testing.T) {
	t.Parallel()
	set, db, conn := filled(t, newUserSet, BigUser, 0.0001)
	db.Exec("CREATE TABLE " + userQueue + " (user_id bigint)")
	work := set.trial(set.size())
	before := pgtest.Must(work.look(t.Context(), conn))(t)
	db.Exec("UPDATE notes SET author_id = 1 WHERE author_id = 2")
	require.NoError(t, work.check(t.Context(), conn, before, false), "others leave the users")
	require.ErrorContains(t, work.check(t.Context(), conn, before, true), "1 users and 0 rows of the queue remain")
	db.Exec("DELETE FROM users WHERE id = 2")
	require.NoError(t, work.check(t.Context(), conn, before, true))
}

func TestOriginalStatement(t *testing.T) {
	t.Parallel()
	require.Equal(t, "UPDATE notes SET author_id = 1 WHERE id IN (SELECT id FROM notes WHERE author_id = $1 LIMIT 50)",
		originalStatement(moved{Table: "notes", Column: "author_id"}))
}

// TestDiffSets compares the texts in the database with what plain uploads send.
func TestDiffSets(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := connected(t, db)
	s := diffSets(&diffStore{block: newBlock()}, 0.004)[0]
	s.Files, s.FileBytes = 12, 2*mib
	for _, statement := range append([]string{s.source().create}, s.source().fill...) {
		db.Exec(statement)
	}
	var sent bytes.Buffer
	require.NoError(t, s.write(&sent))
	var text string
	require.NoError(t, conn.QueryRow(t.Context(),
		"SELECT string_agg(diff, '' ORDER BY new_path) FROM merge_request_diff_files WHERE merge_request_diff_id = 2").Scan(&text))
	require.Equal(t, sha256.Sum256(sent.Bytes()), sha256.Sum256([]byte(text)), "what is uploaded, and the texts in the database")
	size := sent.Len()
	require.Equal(t, 24*mib, size)

	// Every way to move them wrongly is found.
	check := func() error { return s.trial(s.size()).check(t.Context(), conn, nil, true) }
	db.Exec("CREATE SCHEMA sexton; CREATE TABLE sexton.external_diffs (diff_id bigint, size bigint, sha256 bytea)")
	require.ErrorContains(t, check(), "2 of 2 diffs that were not moved as they must be, and 24 texts in the database, remain")
	db.Exec("UPDATE merge_request_diffs SET stored_externally = true; UPDATE merge_request_diff_files SET diff = NULL")
	sum := sha256.Sum256(sent.Bytes())
	db.Exec("INSERT INTO sexton.external_diffs VALUES (1, $1, $2), (2, $1, $2)", size, sum[:])
	require.NoError(t, check())
	db.Exec("UPDATE sexton.external_diffs SET sha256 = 'x' WHERE diff_id = 2")
	require.ErrorContains(t, check(), "1 of 2 diffs")
}

func TestBigDiff(t *testing.T) {
	t.Parallel()
	require.Equal(t, diffSet{name: "big", Diffs: 1, Files: 1, FileBytes: 3 * mib}, bigDiff(nil, 3))
	require.Equal(t, diffSet{name: "big", Diffs: 1, Files: 64, FileBytes: 16 * mib}, bigDiff(nil, 1024))
}

func TestRatios(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 0.6667, ratio(2, 3), 1e-9)
	require.Zero(t, ratio(2, 0))
	require.InDelta(t, 2, median([]float64{9, 2, 1}), 0)
	require.InDelta(t, 1, median([]float64{2, 1}), 0)
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for connection, want := range map[string]string{
		"postgres://user:p%40ss@host:5/old?sslmode=disable": "postgres://user:p%40ss@host:5/new?sslmode=disable",
		"postgres:///?host=%2Ftmp%2Fa+b&dbname=old":         "postgres:///new?host=%2Ftmp%2Fa%20b",
		"host=/tmp dbname=old":                              "host=/tmp dbname=old dbname=new",
	} {
		got := pgtest.Must(withDatabase(connection, "new"))(t)
		require.Equal(t, want, got)
	}
	_, err := withDatabase("postgres://user:secret@host:port/old", "new")
	require.EqualError(t, err, "connection string cannot be parsed")
}

func TestMain(m *testing.M) { pgtest.Main(m) }
