package integration

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

const (
	ghostLease = "users/migrate_records_to_ghost_user_in_batches_worker"

	// noUsersLeft is true if the queue of users to delete is empty.
	noUsersLeft = "NOT EXISTS (SELECT FROM users_ghost_user_migrations)"
)

// contributions inserts rows of twelve users, of whom 11 and 12 are not deleted. No row
// refers to two deleted users, so that the counts do not depend on the order. All users
// have awarded the same emoji, of which the ghost user may have only one.
const contributions = `
INSERT INTO users (username, email, name) SELECT 'user' || n, n || '@example.com', 'User ' || n FROM generate_series(1, 12) AS n;
INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
INSERT INTO projects (id, group_id, creator_id, name, path) SELECT n, 1, n % 12 + 1, n, n FROM generate_series(1, 60) AS n;
INSERT INTO issues (id, project_id, author_id, title) SELECT n, 1, n % 12 + 1, 'written' FROM generate_series(1, 240) AS n;
INSERT INTO issues (id, project_id, author_id, updated_by_id, title) SELECT 1000 + n, 1, 12, n % 12 + 1, 'updated' FROM generate_series(1, 60) AS n;
INSERT INTO issues (id, project_id, author_id, last_edited_by_id, title) SELECT 2000 + n, 1, 12, n % 12 + 1, 'edited' FROM generate_series(1, 60) AS n;
INSERT INTO issue_assignees SELECT 1001 + n % 5, n % 12 + 1 FROM generate_series(1, 60) AS n;
INSERT INTO merge_requests (id, target_project_id, author_id, title, source_branch, target_branch) SELECT n, 1, 12, 'mr', 'a', 'b' FROM generate_series(1, 5) AS n;
INSERT INTO approvals (id, merge_request_id, user_id) SELECT n, n % 5 + 1, n % 12 + 1 FROM generate_series(1, 60) AS n;
INSERT INTO notes (id, noteable_type, noteable_id, author_id, note) SELECT n, 'Issue', 1, n % 12 + 1, 'note' FROM generate_series(1, 180) AS n;
INSERT INTO todos (id, user_id, author_id, target_type, target_id, action) SELECT n, n % 12 + 1, 12, 'Issue', 1, 1 FROM generate_series(1, 60) AS n;
INSERT INTO todos (id, user_id, author_id, target_type, target_id, action) SELECT 1000 + n, 12, n % 12 + 1, 'Issue', 1, 1 FROM generate_series(1, 60) AS n;
INSERT INTO events (id, author_id, action) SELECT n, n % 12 + 1, 5 FROM generate_series(1, 300) AS n;
INSERT INTO award_emoji (user_id, awardable_type, awardable_id, name) SELECT u, 'Issue', 1, emoji FROM generate_series(1, 12) AS u, unnest('{tada,eyes}'::text[]) AS emoji;
INSERT INTO snippets (id, project_id, author_id, type, title) SELECT n, 1, n % 12 + 1, 'ProjectSnippet', 's' FROM generate_series(1, 36) AS n;
INSERT INTO snippets (id, author_id, type, title) SELECT 1000 + n, n % 12 + 1, 'PersonalSnippet', 's' FROM generate_series(1, 36) AS n;
INSERT INTO p_ci_builds (id, partition_id, commit_id, project_id, user_id, name, stage, status) SELECT n, 100 + n % 2, 1, 1, n % 12 + 1, 'b', 's', 'ok' FROM generate_series(1, 120) AS n`

// ghostGates creates triggers that record the session and stop it after a change and
// before its COMMIT while the gate is closed.
const ghostGates = dbtest.Gates + `
CREATE TABLE changes (point text, session text);
CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1min' AS $$
BEGIN
    INSERT INTO public.changes VALUES (TG_ARGV[0], current_setting('application_name'));
    PERFORM public.stop_at_gate(TG_ARGV[0]);
    RETURN NULL;
END $$;
CREATE TRIGGER gate AFTER INSERT ON users FOR EACH ROW WHEN (new.user_type = 5) EXECUTE FUNCTION pass_gate('ghost');
CREATE TRIGGER gate AFTER UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION pass_gate('move');
CREATE TRIGGER gate AFTER DELETE ON events FOR EACH ROW EXECUTE FUNCTION pass_gate('delete');
CREATE TRIGGER gate AFTER UPDATE ON projects FOR EACH ROW EXECUTE FUNCTION pass_gate('nullify');
CREATE TRIGGER gate AFTER DELETE ON approvals FOR EACH ROW EXECUTE FUNCTION pass_gate('key');
CREATE TRIGGER end_gate AFTER DELETE ON users FOR EACH ROW EXECUTE FUNCTION pass_gate('end');
CREATE TRIGGER gate AFTER UPDATE ON users_ghost_user_migrations FOR EACH ROW WHEN (new.attempts > old.attempts) EXECUTE FUNCTION pass_gate('blame');
CREATE TRIGGER gate AFTER UPDATE ON sexton.runs FOR EACH ROW WHEN (new.ended_at IS NOT NULL AND old.ended_at IS NULL) EXECUTE FUNCTION pass_gate('history');`

// refusal creates a trigger that prevents the deletion of the first user.
const refusal = `
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON issues FOR EACH ROW WHEN (old.author_id = 1) EXECUTE FUNCTION refuse();`

// ghostTables returns the tables whose rows are compared, each with an expression for the
// compared columns.
func ghostTables() map[string]string {
	return map[string]string{
		"projects": "entry::text", "issues": "entry::text", "issue_assignees": "entry::text",
		"approvals": "entry::text", "notes": "entry::text",
		"todos": "entry::text", "events": "entry::text", "snippets": "entry::text", "p_ci_builds": "entry::text",
		// The test cannot predict which of the equal emoji the ghost user keeps, so it
		// does not compare the id.
		"award_emoji": "user_id || awardable_type || awardable_id || name",
	}
}

// ghostSite is a site of the reference application with contributions, and with a copy of
// its tables in the schema expected.
type ghostSite struct{ workSite }

func newGhostSite(t *testing.T, p program, url string) ghostSite {
	before := exampleapp.Schema() + contributions +
		"; ALTER TABLE notes ALTER id RESTART WITH 100000; CREATE SCHEMA expected"
	for _, table := range slices.Sorted(maps.Keys(ghostTables())) {
		before += "; CREATE TABLE expected." + table + " AS TABLE public." + table
	}
	// Batches are small, so that a worker can be stopped in the middle. target is 0, so
	// that a statement has a timeout of 5 s, in which the test can act while the
	// statement is stopped at a gate.
	site := p.site(t, url, mainSetup(`
loose_foreign_keys: {enabled: false}
ghost_users: {enabled: true, schedule: "0 0 1 1 *", target: 0s, batches: {move: 4, delete: 5, nullify: 3}}
http: {listen: ""}
`, before, ghostGates))
	site.kind = ghostKind
	return ghostSite{site}
}

// deleteUsers requests the deletion of users, as hard deletions if hard is set.
func (s ghostSite) deleteUsers(t *testing.T, hard bool, users ...int64) {
	s.exec(t, "SELECT sexton.delete_user(leaving, 12, $2) FROM unnest($1::bigint[]) AS leaving", users, hard)
}

// writeNotes inserts notes of a user, who may already be in the queue. It inserts nothing
// if the user was deleted.
func (s ghostSite) writeNotes(t *testing.T, user int64, notes int) {
	const sql = `
		WITH living AS (SELECT id FROM public.users WHERE id = $1 FOR KEY SHARE),
		written AS (
			INSERT INTO public.notes (noteable_type, noteable_id, author_id, note)
			SELECT 'Issue', 1, living.id, 'late' FROM living, generate_series(1, $2::int)
			RETURNING *
		)
		INSERT INTO expected.notes SELECT * FROM written`
	s.exec(t, sql, user, notes)
}

// computeExpected applies the deletion of the given users to the copied tables in plain
// SQL. It returns the number of rows that referred to each user.
func (s ghostSite) computeExpected(t *testing.T, soft, hard []int64) map[int64]int64 {
	const references = `
		SELECT u, count(*) FROM (
			SELECT creator_id AS u FROM expected.projects UNION ALL SELECT author_id FROM expected.issues UNION ALL
			SELECT updated_by_id FROM expected.issues UNION ALL SELECT last_edited_by_id FROM expected.issues UNION ALL
			SELECT user_id FROM expected.issue_assignees UNION ALL SELECT user_id FROM expected.approvals UNION ALL
			SELECT author_id FROM expected.notes UNION ALL SELECT user_id FROM expected.todos UNION ALL SELECT author_id FROM expected.todos UNION ALL
			SELECT author_id FROM expected.events UNION ALL SELECT user_id FROM expected.award_emoji UNION ALL
			SELECT author_id FROM expected.snippets UNION ALL SELECT user_id FROM expected.p_ci_builds
		) AS every WHERE u = ANY ($1) GROUP BY 1`
	all := append(append([]int64{}, soft...), hard...)
	rows := pgtest.Must(s.pool.Query(t.Context(), references, all))(t)
	counts := map[int64]int64{}
	var user, count int64
	pgtest.Must(pgx.ForEachRow(rows, []any{&user, &count}, func() error { counts[user] = count; return nil }))(t)

	const ghost = "(SELECT id FROM public.users WHERE user_type = 5)"
	for _, sql := range []string{
		"UPDATE expected.issues SET author_id = GHOST WHERE author_id = ANY ($1)",
		"UPDATE expected.issues SET last_edited_by_id = GHOST WHERE last_edited_by_id = ANY ($1)",
		"UPDATE expected.notes SET author_id = GHOST WHERE author_id = ANY ($1)",
		"UPDATE expected.todos SET author_id = GHOST WHERE author_id = ANY ($1)",
		"UPDATE expected.award_emoji SET user_id = GHOST WHERE user_id = ANY ($1)",
		"UPDATE expected.snippets SET author_id = GHOST WHERE author_id = ANY ($1) AND type = 'ProjectSnippet'",
		"UPDATE expected.p_ci_builds SET user_id = GHOST WHERE user_id = ANY ($1)",
		"DELETE FROM expected.award_emoji AS one USING expected.award_emoji AS other " +
			"WHERE one.user_id = GHOST AND other.user_id = GHOST AND other.name = one.name AND other.id < one.id AND $1::bigint[] IS NOT NULL",
	} {
		s.exec(t, strings.ReplaceAll(sql, "GHOST", ghost), soft)
	}
	for _, sql := range []string{
		"DELETE FROM expected.issues WHERE author_id = ANY ($1)",
		"DELETE FROM expected.notes WHERE author_id = ANY ($1)",
		"DELETE FROM expected.todos WHERE author_id = ANY ($1)",
		"DELETE FROM expected.award_emoji WHERE user_id = ANY ($1)",
		"UPDATE expected.issues SET last_edited_by_id = NULL WHERE last_edited_by_id = ANY ($1)",
		"UPDATE expected.p_ci_builds SET user_id = NULL WHERE user_id = ANY ($1)",
	} {
		s.exec(t, sql, hard)
	}
	for _, sql := range []string{
		"DELETE FROM expected.todos WHERE user_id = ANY ($1)", "DELETE FROM expected.events WHERE author_id = ANY ($1)",
		"DELETE FROM expected.issue_assignees WHERE user_id = ANY ($1)",
		"DELETE FROM expected.approvals WHERE user_id = ANY ($1)",
		"DELETE FROM expected.snippets WHERE author_id = ANY ($1)",
		"UPDATE expected.issues SET updated_by_id = NULL WHERE updated_by_id = ANY ($1)",
		"UPDATE expected.projects SET creator_id = NULL WHERE creator_id = ANY ($1)",
	} {
		s.exec(t, sql, all)
	}
	return counts
}

// requireFinalState requires, after all workers have stopped, that the users are deleted,
// that each has one event with the right counts, and that the tables equal those of
// computeExpected. Another run must change nothing.
func (s ghostSite) requireFinalState(t *testing.T, soft, hard []int64) {
	counts := s.computeExpected(t, soft, hard)
	s.requireExpectedRows(t)
	require.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM users WHERE user_type = 5"), "ghost users")
	require.EqualValues(t, 12-len(counts), s.count(t, "SELECT count(*) FROM users WHERE user_type = 0"), "users left")
	require.Zero(t, s.count(t, "SELECT count(*) FROM users_ghost_user_migrations"), "users in the queue")
	rows, err := s.pool.Query(t.Context(), `SELECT (payload ->> 'user_id')::bigint,
		(payload ->> 'moved')::bigint + (payload ->> 'deleted')::bigint + (payload ->> 'nullified')::bigint FROM sexton.events WHERE kind = 'user_destroyed'`)
	require.NoError(t, err)
	announced := map[int64]int64{}
	var user, count int64
	pgtest.Must(pgx.ForEachRow(rows, []any{&user, &count}, func() error {
		require.NotContains(t, announced, user, "two events for one user")
		announced[user] = count
		return nil
	}))(t)
	require.Equal(t, counts, announced, "rows moved, deleted and nullified, by user")

	s.requireCleanedUp(t)
	const written = "SELECT count(*) FROM changes WHERE point <> 'history'"
	before := s.count(t, written)
	s.program.run(t, s.dir, s.url, 0, "job", "run", ghostKind)
	require.Equal(t, before, s.count(t, written), "changes after another run")
	s.requireExpectedRows(t)
}

func (s ghostSite) requireExpectedRows(t *testing.T) {
	for table, columns := range ghostTables() {
		lines := func(schema string) []string {
			rows := pgtest.Must(s.pool.Query(t.Context(),
				"SELECT "+columns+" FROM "+schema+"."+table+" AS entry ORDER BY 1"))(t)
			return pgtest.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
		}
		require.Equal(t, lines("expected"), lines("public"), "rows of %s differ from what plain SQL leaves", table)
	}
}
