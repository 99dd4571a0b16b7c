package integration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// heavyTables have one parent with 200,000 children and fifty with ten each. A trigger numbers the statements that
// delete children and notes how many of which parent each took.
const heavyTables = `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
INSERT INTO parents SELECT generate_series(1, 51);
INSERT INTO children SELECT number, 1 FROM generate_series(1, 200000) AS number;
INSERT INTO children SELECT 200000 + number, 2 + number % 50 FROM generate_series(1, 500) AS number;
CREATE INDEX ON children (parent_id);
ANALYZE;
CREATE SEQUENCE statements;
CREATE TABLE changes (statement bigint, parent_id bigint, children bigint);
CREATE FUNCTION note_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changes SELECT statement, parent_id, count(*) FROM nextval('statements') AS statement, gone GROUP BY 1, 2;
    RETURN NULL;
END $$;
CREATE TRIGGER note_statement AFTER DELETE ON children REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note_statement();`

// testFairness deletes a heavy parent and right after it small ones. All of these must be clean before it, and
// it must have had no more turns than they by then.
func testFairness(t *testing.T, p program) {
	t.Helper()
	s := p.site(t, pgtest.New(t).URL, onMain("", heavyTables, "").defining("children: [{table: parents, column: parent_id, on_delete: async_delete}]\n"))
	s.exec(t, "DELETE FROM parents WHERE id = 1")
	s.exec(t, "DELETE FROM parents WHERE id > 1")

	// A pass ends after 30 s, which a slow machine may need.
	for s.count(t, backlogSQL) > 0 {
		p.pass(t, s.dir, s.url)
	}
	require.Zero(t, s.count(t, "SELECT count(*) FROM children"))
	require.Equal(t, int64(200_500), s.count(t, "SELECT sum(children) FROM changes"), "children deleted")
	const lastSmall = "(SELECT max(statement) FROM changes WHERE parent_id <> 1)"
	require.Greater(t, s.count(t, "SELECT max(statement) FROM changes WHERE parent_id = 1"), s.count(t, "SELECT "+lastSmall),
		"the heavy parent's last statement comes after the small ones'")
	early := s.count(t, "SELECT count(*) FROM changes WHERE parent_id = 1 AND statement < "+lastSmall)
	small := s.count(t, "SELECT count(DISTINCT statement) FROM changes WHERE parent_id <> 1")
	t.Logf("%d of the heavy parent's %d statements came before the last small one's", early, s.count(t, "SELECT count(*) FROM changes WHERE parent_id = 1"))
	require.LessOrEqual(t, early, small+1, "statements of the heavy parent before the last small one's: it has every second turn")
}
