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

	// noUsersLeft holds where nobody is to be deleted.
	noUsersLeft = "NOT EXISTS (SELECT FROM users_ghost_user_migrations)"
)

// contributions are those of twelve users, of whom 11 and 12 stay. No row refers to two
// who leave, so that what is counted does not depend on the order. All users have given
// the same emoji, of which the ghost can have one.
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

// ghostGates are the points at which a worker can be stopped, by a trigger that notes who
// was there: behind a change and before its commit.
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

// refusal makes the first user one who cannot be deleted.
const refusal = `
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON issues FOR EACH ROW WHEN (old.author_id = 1) EXECUTE FUNCTION refuse();`

// ghostTables are those whose rows are compared, each with the columns that count, where
// not all do.
func ghostTables() map[string]string {
	return map[string]string{
		"projects": "entry::text", "issues": "entry::text", "issue_assignees": "entry::text",
		"approvals": "entry::text", "notes": "entry::text",
		"todos": "entry::text", "events": "entry::text", "snippets": "entry::text", "p_ci_builds": "entry::text",
		// Which of the same emoji the ghost keeps does not matter.
		"award_emoji": "user_id || awardable_type || awardable_id || name",
	}
}

// ghostSite is the reference application with these contributions, and with a copy of the
// tables in the schema expected.
type ghostSite struct{ workSite }

func newGhostSite(t *testing.T, p program, url string) ghostSite {
	before := exampleapp.Schema() + contributions +
		"; ALTER TABLE notes ALTER id RESTART WITH 100000; CREATE SCHEMA expected"
	for _, table := range slices.Sorted(maps.Keys(ghostTables())) {
		before += "; CREATE TABLE expected." + table + " AS TABLE public." + table
	}
	// Small batches, so that there is a middle, and no target: a statement has 5 s, time
	// to act while it stands at a gate.
	site := p.site(t, url, onMain(`
loose_foreign_keys: {enabled: false}
ghost_users: {enabled: true, schedule: "0 0 1 1 *", target: 0s, batches: {move: 4, delete: 5, nullify: 3}}
http: {listen: ""}
`, before, ghostGates))
	site.kind = ghostKind
	return ghostSite{site}
}

// leave asks for the deletion of users, some of them with all that they wrote.
func (s ghostSite) leave(t *testing.T, hard bool, users ...int64) {
	s.exec(t, "SELECT sexton.delete_user(leaving, 12, $2) FROM unnest($1::bigint[]) AS leaving", users, hard)
}

// write has a user write notes, although it may be on its way out; one who is gone writes
// nothing.
func (s ghostSite) write(t *testing.T, user int64, notes int) {
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

// expect computes in plain SQL what the deletion of these users has to leave of the
// copied tables, and returns for each user how many rows referred to it.
func (s ghostSite) expect(t *testing.T, soft, hard []int64) map[int64]int64 {
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

// settled expects, once all workers have stopped, that the users are gone, each announced
// once with all that was done for it, and that the tables are what plain SQL makes of
// them. A run more changes nothing.
func (s ghostSite) settled(t *testing.T, soft, hard []int64) {
	counts := s.expect(t, soft, hard)
	s.asExpected(t)
	require.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM users WHERE user_type = 5"), "ghost users")
	require.EqualValues(t, 12-len(counts), s.count(t, "SELECT count(*) FROM users WHERE user_type = 0"), "users left")
	require.Zero(t, s.count(t, "SELECT count(*) FROM users_ghost_user_migrations"), "users in the queue")
	rows, err := s.pool.Query(t.Context(), `SELECT (payload ->> 'user_id')::bigint,
		(payload ->> 'moved')::bigint + (payload ->> 'deleted')::bigint + (payload ->> 'nullified')::bigint FROM sexton.events WHERE kind = 'user_destroyed'`)
	require.NoError(t, err)
	announced := map[int64]int64{}
	var user, count int64
	pgtest.Must(pgx.ForEachRow(rows, []any{&user, &count}, func() error {
		require.NotContains(t, announced, user, "announced twice")
		announced[user] = count
		return nil
	}))(t)
	require.Equal(t, counts, announced, "rows moved, deleted and nullified, by user")

	s.cleanedUp(t)
	const written = "SELECT count(*) FROM changes WHERE point <> 'history'"
	before := s.count(t, written)
	s.program.run(t, s.dir, s.url, 0, "job", "run", ghostKind)
	require.Equal(t, before, s.count(t, written), "changes after one run more")
	s.asExpected(t)
}

func (s ghostSite) asExpected(t *testing.T) {
	for table, columns := range ghostTables() {
		lines := func(schema string) []string {
			rows := pgtest.Must(s.pool.Query(t.Context(),
				"SELECT "+columns+" FROM "+schema+"."+table+" AS entry ORDER BY 1"))(t)
			return pgtest.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
		}
		require.Equal(t, lines("expected"), lines("public"), "rows of %s differ from what plain SQL leaves", table)
	}
}
