package bench

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

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
		row := set.rows(set.tables[0]) / 2
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
		originalStatement(moved{table: "notes", column: "author_id"}))
}
