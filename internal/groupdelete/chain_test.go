package groupdelete_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/groupdelete"
	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

// links form chains through their own table; marks hang below them.
const links = `
CREATE TABLE links (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE, before bigint REFERENCES links ON DELETE CASCADE);
CREATE INDEX ON links (project_id); CREATE INDEX ON links (before);
CREATE TABLE marks (id bigint PRIMARY KEY, link_id bigint NOT NULL REFERENCES links ON DELETE CASCADE);
CREATE INDEX ON marks (link_id);`

// chainOf is one of so many links below project 11, with a mark on each hundredth.
func chainOf(n int) string {
	return fmt.Sprintf(`INSERT INTO links SELECT n, CASE n WHEN 1 THEN 11 END, nullif(n - 1, 0) FROM generate_series(1, %d) AS n;
		INSERT INTO marks SELECT id, id FROM links WHERE id %% 100 = 0;`, n)
}

// unhurried is for tests that count statements: their sizes do not depend on how long they take.
func unhurried(engine *groupdelete.Engine) *groupdelete.Engine {
	engine.Sizes.Target = time.Minute
	engine.Runtime = 5 * time.Minute
	return engine
}

// The rows of a long chain go many levels at once, and none by a key's action.
func TestLongChain(t *testing.T) {
	t.Parallel()
	b := setup(t, links, chainOf(12_000))
	b.noteDeletionsOf("links", "marks")
	require.Less(t, b.run(t, unhurried(b.engine(t, 1)), groupdelete.Destroyed).Batches, int64(200))
	require.Equal(t, [][]string{{"links", "f", "12000"}, {"marks", "f", "120"}},
		b.Rows("SELECT at_table, cascade, sum(n) FROM deletions GROUP BY 1, 2 ORDER BY 1"))
}

// A chain with a row that cannot go loses what is below it, once; what is above it is not tried again and again.
func TestChainWithAPoisonedRow(t *testing.T) {
	t.Parallel()
	b := setup(t, links, chainOf(3000))
	b.poison("links", "OLD.id = 2500")
	stats := b.run(t, unhurried(b.engine(t, 1)), groupdelete.Stuck)
	require.Equal(t, "links: SQLSTATE ZZ001: kept", stats.Reason)
	require.Equal(t, [][]string{{"2500"}}, b.Rows("SELECT count(*) FROM links"))
	require.Less(t, stats.Batches, int64(400))
	b.Exec("DROP TRIGGER refuse ON links")
	b.run(t, unhurried(b.engine(t, 1)), groupdelete.Destroyed)
	require.Empty(t, b.Rows("SELECT FROM links"))
}

// What comes in below a row of a chain stops the rows above it, and nothing is left to the key's action.
func TestRowsThatComeInBelowAChain(t *testing.T) {
	t.Parallel()
	b := setup(t, links, chainOf(2000))
	b.noteDeletionsOf("links", "marks")
	engine := unhurried(b.engine(t, 1))
	late := 0
	engine.Progress = func(context.Context, *groupdelete.Stats) {
		if late++; late < 20 {
			b.Exec("INSERT INTO links SELECT $1 + n, NULL, id FROM (SELECT max(id) AS id FROM links WHERE id <= 2000) AS last, generate_series(1, 50) AS n WHERE id IS NOT NULL", 10_000*late)
		}
	}
	b.run(t, engine, groupdelete.Destroyed)
	require.Empty(t, b.Rows("SELECT FROM links"))
	require.Equal(t, [][]string{{"f"}}, b.Rows("SELECT DISTINCT cascade FROM deletions"))
}

// Rows of a chain that others have locked are waited for, with those above them, and others of the chain are not.
func TestChainOfWhichARowIsLocked(t *testing.T) {
	t.Parallel()
	b := setup(t, links, chainOf(1000))
	holder := connect(t, b.URL)
	pgtest.Exec(t, holder, "BEGIN; SELECT FROM links WHERE id = 400 FOR UPDATE")
	engine := b.engine(t, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := engine.Run(t.Context())
		ended <- err
	}()
	pgtest.Await(t, b.Pool(), "all that is below the locked row to be gone", "SELECT count(*) = 400 FROM links")
	b.waitForLock(t)
	pgtest.Exec(t, holder, "COMMIT")
	require.NoError(t, <-ended)
	b.requireAsNative(t, links, chainOf(1000))
}

// A ring of rows of one table needs no patience.
func TestRingInOneTable(t *testing.T) {
	t.Parallel()
	const ring = "INSERT INTO links SELECT n, CASE n WHEN 1 THEN 11 END, n FROM generate_series(1, 60) AS n; UPDATE links SET before = id % 60 + 1;"
	b := setup(t, links, ring)
	b.noteDeletionsOf("links")
	b.run(t, unhurried(b.engine(t, 1)), groupdelete.Destroyed)
	require.Empty(t, b.Rows("SELECT FROM links"))
	require.Equal(t, [][]string{{"f", "60"}}, b.Rows("SELECT DISTINCT cascade, n FROM deletions"))
}

func TestShareIsAskedAfterBatchesAndTold(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	engine := b.engine(t, 1)
	told := pace.Duty{Percent: 99, Why: "others"}
	engine.Share = func(context.Context, float64, bool) (float64, pace.Duty) { return 0.99, told }
	seen := map[pace.Duty]bool{}
	engine.Progress = func(_ context.Context, stats *groupdelete.Stats) { seen[stats.Duty] = true }
	stats := b.run(t, engine, groupdelete.Destroyed)
	require.True(t, seen[told], "%v", seen)
	require.Zero(t, stats.Duty, "a run that has ended works at none")
}

// A run that has used all of its time and moved nothing counts an attempt and says how far it came.
func TestRunThatGetsNowhere(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	b.Exec("INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (1, 1)")
	engine := b.engine(t, 1)
	engine.Runtime = time.Nanosecond
	stats := b.run(t, engine, groupdelete.Stuck)
	require.Contains(t, stats.Reason, "nothing could be deleted in 0s, at projects of group 1")
	require.Equal(t, [][]string{{"1", stats.Reason}}, b.Rows("SELECT attempts, last_error FROM sexton.group_destructions"))

	engine = b.engine(t, 1)
	engine.Runtime = time.Nanosecond
	engine.Hold = func(context.Context) string { return "" }
	b.run(t, engine, groupdelete.Stuck)
	require.Equal(t, [][]string{{"2"}}, b.Rows("SELECT attempts FROM sexton.group_destructions"))
	b.destroy(t, groupdelete.Destroyed)
}
