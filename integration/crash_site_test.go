package integration

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// twinTables are the same four tables twice: in public, where a worker cleans up, and in the schema native,
// whose foreign keys are Postgres's own. A trigger notes every row that goes or changes in public, and in whose
// session, and stops that session while the gate of its table is closed.
const twinTables = `
CREATE FUNCTION pg_temp.make(place text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SET LOCAL search_path = %I', place);
    CREATE TABLE parents (id bigint PRIMARY KEY);
    CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
    CREATE TABLE leaves (id bigint PRIMARY KEY, child_id bigint);
    CREATE TABLE links (id bigint PRIMARY KEY, parent_id bigint);
    CREATE INDEX ON children (parent_id);
    CREATE INDEX ON leaves (child_id);
    CREATE INDEX ON links (parent_id);
    INSERT INTO parents SELECT generate_series(1, 40);
    INSERT INTO children SELECT number, number % 40 + 1 FROM generate_series(1, 400) AS number;
    INSERT INTO leaves SELECT number, number % 400 + 1 FROM generate_series(1, 800) AS number;
    INSERT INTO links SELECT number, number % 40 + 1 FROM generate_series(1, 400) AS number;
END $$;
CREATE SCHEMA native;
BEGIN;
SELECT pg_temp.make('public'), pg_temp.make('native');
COMMIT;
ALTER TABLE native.children ADD FOREIGN KEY (parent_id) REFERENCES native.parents ON DELETE CASCADE;
ALTER TABLE native.leaves ADD FOREIGN KEY (child_id) REFERENCES native.children ON DELETE CASCADE;
ALTER TABLE native.links ADD FOREIGN KEY (parent_id) REFERENCES native.parents ON DELETE SET NULL;

CREATE TABLE changes (number bigint GENERATED ALWAYS AS IDENTITY, at_table name, id bigint, session text);
CREATE TABLE closed_gate (at_table name);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = '1min' AS $$
BEGIN
    INSERT INTO changes (at_table, id, session) VALUES (TG_TABLE_NAME, OLD.id, current_setting('application_name'));
    IF EXISTS (SELECT FROM closed_gate WHERE at_table = TG_TABLE_NAME) THEN
        PERFORM pg_advisory_xact_lock(4711);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note_change AFTER DELETE ON children FOR EACH ROW EXECUTE FUNCTION note_change();
CREATE TRIGGER note_change AFTER DELETE ON leaves FOR EACH ROW EXECUTE FUNCTION note_change();
CREATE TRIGGER note_change AFTER UPDATE ON links FOR EACH ROW EXECUTE FUNCTION note_change();`

const twinDefinitions = `children:
  - {table: parents, column: parent_id, on_delete: async_delete}
leaves:
  - {table: children, column: child_id, on_delete: async_delete}
links:
  - {table: parents, column: parent_id, on_delete: async_nullify}
`

// patientPace is the default pace with the longest target, which gives a statement 3 s: time to act while one
// stands at a gate.
const patientPace = "loose_foreign_keys: {target: 1s}\n"

// twinSite is a database with the tables above, on which the program has installed itself.
type twinSite struct{ workSite }

func newTwinSite(t *testing.T, p program, url, settings string) twinSite {
	t.Helper()
	return twinSite{p.site(t, url, onMain(settings, twinTables, "").defining(twinDefinitions))}
}

// deleteParents deletes the same parents in both schemas.
func (s twinSite) deleteParents(t *testing.T, condition string) {
	t.Helper()
	for _, place := range []string{"native", "public"} {
		s.exec(t, "DELETE FROM "+place+".parents WHERE "+condition)
	}
}

// shut makes workers stop in their next statement on the table. The function pass lets those pass that come
// later, release also those that stand there.
func (s twinSite) shut(t *testing.T, table string) (pass, release func()) {
	t.Helper()
	keeper := connect(t, s.url)
	pgtest.Exec(t, keeper, "SELECT pg_advisory_lock($1)", gate)
	s.exec(t, "INSERT INTO closed_gate VALUES ($1)", table)
	pass = func() { s.exec(t, "DELETE FROM closed_gate") }
	return pass, func() {
		pass()
		pgtest.Exec(t, keeper, "SELECT pg_advisory_unlock($1)", gate)
	}
}

// bury kills a worker and stands for the time after which the others take it for dead.
func (s workSite) bury(t *testing.T, w *runningWorker) {
	t.Helper()
	w.signal(t, syscall.SIGKILL)
	require.Equal(t, -1, w.exit(t, stopLimit))
	s.silence(t, w)
}

// silence makes a dead worker one that nobody has heard of for long.
func (s workSite) silence(t *testing.T, w *runningWorker) {
	t.Helper()
	s.exec(t, "UPDATE sexton.clients SET seen_at = '-infinity' WHERE pid = $1", w.cmd.Process.Pid)
}

// rows are all rows of the tables of a schema, one line each.
func (s twinSite) rows(t *testing.T, place string) []string {
	t.Helper()
	name := pgx.Identifier{place}.Sanitize()
	var sql string
	for _, table := range []string{"parents", "children", "leaves", "links"} {
		if sql != "" {
			sql += " UNION ALL "
		}
		sql += "SELECT '" + table + " ' || entry::text FROM " + name + "." + table + " AS entry"
	}
	found := pgtest.Must(s.pool.Query(t.Context(), sql+" ORDER BY 1"))(t)
	return pgtest.Must(pgx.CollectRows(found, pgx.RowTo[string]))(t)
}

// drained waits until no tombstone is left.
func (s twinSite) drained(t *testing.T) {
	t.Helper()
	s.wait(t, time.Minute, "everything to be cleaned up", "NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
}

// rests waits until a worker has nothing left to do, not even to bury others, and stops it.
func (s twinSite) rests(t *testing.T, w *runningWorker) {
	t.Helper()
	s.drained(t)
	s.wait(t, time.Minute, "the worker to sleep", asleep, awakeKey()...)
	s.wait(t, time.Minute, "dead workers to be buried", "(SELECT count(*) FROM sexton.clients) = 1")
	w.stop(t)
	s.settled(t)
}

// settled expects, once all workers have stopped, what native foreign keys have left, and that no row went
// twice.
func (s twinSite) settled(t *testing.T) {
	t.Helper()
	require.Equal(t, s.rows(t, "native"), s.rows(t, "public"), "rows differ from what native foreign keys leave")
	require.Zero(t, s.count(t, `SELECT count(*) FROM (
		SELECT FROM changes WHERE at_table <> 'links' GROUP BY at_table, id HAVING count(*) > 1) AS twice`), "rows deleted twice")
	s.cleanedUp(t)
	// One run more hands on what the runs of the dead have counted.
	s.program.run(t, s.dir, s.url, 0, "job", "run", kind)
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.run_counts"), "counts that no run was given")
	require.Equal(t, s.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("%")),
		s.count(t, `SELECT sum(coalesce((stats ->> 'delete_count')::bigint, 0) + coalesce((stats ->> 'update_count')::bigint, 0))::bigint FROM sexton.runs WHERE kind = $1`, kind),
		"rows that have gone or changed, and what the history says of them")
}

// token is the lease's newest.
func (s twinSite) token(t *testing.T) string {
	t.Helper()
	return strconv.FormatInt(s.count(t, "SELECT token FROM sexton.leases WHERE key = $1", leaseKey), 10)
}

// changedUnder is what a session with a token noted, as a condition on changes.
func changedUnder(token string) string { return "session LIKE 'sexton%#" + token + "'" }
