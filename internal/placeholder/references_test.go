package placeholder_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
	"sexton/internal/placeholder"
	"sexton/internal/problem"
)

func TestInvalidReferences(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(`CREATE VIEW authors AS SELECT author_id FROM issues;
		CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.things (user_id bigint);
		CREATE TABLE unindexed (user_id bigint, half_id bigint);
		CREATE INDEX ON unindexed (half_id) WHERE half_id > 5;`)
	_, problems, err := placeholder.Bind(t.Context(), b.Pool(), dbtest.Names(), []placeholder.Reference{
		{Table: "isues", Columns: []string{"author_id", "updated_by_id"}},
		{Table: "issues", Columns: []string{"autor_id", "title", "author_id", "author_id"}},
		{Table: "authors", Columns: []string{"author_id"}},
		{Table: "p_ci_builds", Columns: []string{"user_id"}},
		{Table: "unindexed", Columns: []string{"user_id", "half_id"}},
		{Table: `"`, Columns: []string{"user_id"}},
		{Table: "other.things", Columns: []string{"user_id"}},
		{Table: "elsewhere.thing", Columns: []string{"user_id"}},
	})
	require.NoError(t, err)
	found := make([]string, len(problems))
	for i, p := range problems {
		found[i] = string(p.Severity) + " " + p.String()
	}
	slices.Sort(found)
	require.Equal(t, []string{
		"error placeholder_users.references[0].table: child table public.isues does not exist (create it, correct the name, or remove the definition)",
		"error placeholder_users.references[1].columns[0]: table issues has no column autor_id (did you mean author_id?)",
		"error placeholder_users.references[1].columns[1]: issues.title is of type text, but users.id is of type int8: a foreign key of type text cannot refer to int8" +
			" (give both columns the same type, or integer types)",
		"error placeholder_users.references[1].table: the same definition is at placeholder_users.references[1].columns[2] (remove one of them)",
		"error placeholder_users.references[2].table: child authors is not a table (use a table)",
		`error placeholder_users.references[5].table: table "\"" lacks its closing double quote`,
		"error placeholder_users.references[6].table: child table other.things does not exist (create it, correct the name, or remove the definition)",
		"error placeholder_users.references[7].table: child table elsewhere.thing does not exist (create it, correct the name, or remove the definition)",
		`warning placeholder_users.references[4].columns[0]: no index of unindexed begins with user_id, so every batch reads the whole table (CREATE INDEX CONCURRENTLY ON "public"."unindexed" ("user_id"))`,
		`warning placeholder_users.references[4].columns[1]: no index of unindexed begins with half_id, so every batch reads the whole table (CREATE INDEX CONCURRENTLY ON "public"."unindexed" ("half_id"))`,
	}, found)
}

func TestReferencesWithoutPrivilege(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role := b.CreateRole()
	b.Exec("GRANT SELECT ON notes TO " + role)
	conn := pgtest.Connect(t, b.AsRole(role))
	_, problems, err := placeholder.Bind(t.Context(), conn, dbtest.Names(), []placeholder.Reference{
		{Table: "notes", Columns: []string{"author_id"}},
		{Table: "issues", Columns: []string{"author_id", "updated_by_id"}},
	})
	require.NoError(t, err)
	require.Equal(t, problem.List{{
		Severity: problem.Error, Key: "placeholder_users.references[1].table",
		Message: "the database role lacks SELECT on table public.issues",
		Fix:     "GRANT SELECT ON public.issues TO " + role,
	}}, problems)
}

// References may be tables whose names need quotes, partitioned tables, parents of
// inheritance, tables of other schemas, and tables without a key.
func TestReferencesOfEveryKind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1)
	b.Exec(`
		CREATE SCHEMA "o'ther ""x""";
		CREATE TABLE "o'ther ""x"""."User's ""list""" ("the ""id" int, "part'" text, "of user" smallint, PRIMARY KEY ("part'", "the ""id"));
		CREATE INDEX ON "o'ther ""x"""."User's ""list""" ("of user");
		INSERT INTO "o'ther ""x"""."User's ""list""" VALUES (7, 'a', 1);
		CREATE DOMAIN user_number AS integer;
		CREATE TABLE keyless (user_id user_number);
		CREATE INDEX ON keyless (user_id);
		INSERT INTO keyless VALUES (2), (1);
		CREATE TABLE base (id int PRIMARY KEY, user_id bigint);
		CREATE INDEX ON base (user_id);
		CREATE TABLE derived () INHERITS (base);
		INSERT INTO derived VALUES (1, 1);
		INSERT INTO p_ci_builds (id, partition_id, commit_id, project_id, user_id, name, stage, status) VALUES (5, 101, 1, 1, 1, 'b', 's', 'success');`)
	bound, problems, err := placeholder.Bind(t.Context(), b.Pool(), dbtest.Names(), []placeholder.Reference{
		{Table: `"o'ther ""x"""."User's ""list"""`, Columns: []string{"of user"}},
		{Table: "keyless", Columns: []string{"user_id"}},
		{Table: "base", Columns: []string{"user_id"}},
		{Table: "p_ci_builds", Columns: []string{"user_id"}},
	})
	require.NoError(t, err)
	require.Empty(t, problems)
	r := b.remover(t)
	r.References = bound
	require.Equal(t, []placeholder.Blocker{
		{Column: `o'ther "x".User's "list".of user`, Sample: `part' a, the "id 7`},
		{Column: "keyless.user_id", Sample: "ctid (0,2)"},
		{Column: "p_ci_builds.user_id", Sample: "id 5, partition_id 101"},
	}, pgtest.Must(r.Remove(t.Context(), 1))(t).Blockers)
}

// A reference to a table in schema public is still bound to that schema if another schema
// is tracked. The SQL files use "public" as the name of the tracked schema.
func TestReferencesKeepTheirSchema(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(`CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.users (id int PRIMARY KEY);
		CREATE TABLE elsewhere.notes (id int PRIMARY KEY, author_id int); CREATE INDEX ON elsewhere.notes (author_id)`)
	names := pgcatalog.Names{Tracked: "elsewhere"}
	bound, problems, err := placeholder.Bind(t.Context(), b.Pool(), names, []placeholder.Reference{
		{Table: "notes", Columns: []string{"author_id"}}, {Table: "public.notes", Columns: []string{"author_id"}},
	})
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, []string{"notes.author_id", "public.notes.author_id"}, bound.Labels())
}

// within is a database whose transactions are savepoints of an outer transaction. It
// ignores the options of transactions.
type within struct{ pgx.Tx }

func (w within) BeginTx(ctx context.Context, _ pgx.TxOptions) (pgx.Tx, error) { return w.Begin(ctx) }

// The query of references reads at most one row for each column.
func TestQueryReadsFewRows(t *testing.T) {
	t.Parallel()
	b := setupScene(t)
	b.Exec("INSERT INTO notes (project_id, noteable_type, noteable_id, author_id, note) SELECT 1, 'Issue', 11, 1, 'n' FROM generate_series(1, 20000)")
	b.Exec("ANALYZE notes")
	tx := pgtest.Begin(t, b.Pool())
	r := b.remover(t)
	r.DB = within{tx}
	require.Len(t, pgtest.Must(r.Remove(t.Context(), 1))(t).Blockers, 1)
	var sequential, fetched int64
	require.NoError(t,
		tx.QueryRow(t.Context(),
			"SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'notes'").Scan(&sequential, &fetched))
	require.Zero(t, sequential, "rows read by sequential scans")
	require.LessOrEqual(t, fetched, int64(1))
}

// setupStates returns placeholders in every state, and one with an owner.
func setupStates(t *testing.T) *bundle {
	b := setup(t)
	b.placeholders(1, 2, 3, 4, 5, 6, 7, 8, 9)
	b.Exec(`
		UPDATE import_placeholder_user_details SET created_at = now() - interval '2 hours';
		UPDATE import_placeholder_user_details SET namespace_id = 1 WHERE id = 9;
		-- 2: deferred; 3: given up; 4: its last job is waiting; 5: queued; 6: no placeholder
		UPDATE import_placeholder_user_details SET deletion_attempts = 2, last_deletion_attempt_at = now() - interval '1 hour', last_error = 'two' WHERE id = 2;
		UPDATE import_placeholder_user_details SET deletion_attempts = 15, last_deletion_attempt_at = now() - interval '9 days', last_error = 'three' WHERE id = 3;
		UPDATE import_placeholder_user_details SET deletion_attempts = 15, last_deletion_attempt_at = now() WHERE id = 4;
		UPDATE import_placeholder_user_details SET deletion_attempts = 15, last_deletion_attempt_at = now() WHERE id IN (5, 6);
		-- 7: due for three hours
		UPDATE import_placeholder_user_details SET deletion_attempts = 1, last_deletion_attempt_at = now() - interval '51 hours', last_error = 'seven' WHERE id = 7;
		SELECT sexton.enqueue('import_delete_placeholder_user', '{"user_id": 4}');
		SELECT sexton.enqueue('import_delete_placeholder_user', '{"user_id": 8}', now() + interval '1 hour');
		SELECT sexton.delete_user(5, 5);
		UPDATE users SET user_type = 0 WHERE id = 6;`)
	return b
}

func TestReadKeptReturnsStates(t *testing.T) {
	t.Parallel()
	b := setupStates(t)
	kept := func(limit int) map[int64]placeholder.Placeholder {
		found := map[int64]placeholder.Placeholder{}
		for _, p := range pgtest.Must(placeholder.ReadKept(t.Context(), b.Pool(), dbtest.Names(), rules(), limit))(t) {
			found[p.UserID] = p
		}
		return found
	}
	stuck := pgtest.Must(placeholder.ReadKept(t.Context(), b.Pool(), dbtest.Names(), rules(), 2))(t)
	require.Len(t, stuck, 2)
	require.Equal(t, placeholder.GivenUp, stuck[0].State)
	require.Equal(t, "two", stuck[1].LastError)

	b.Exec("UPDATE import_placeholder_user_details SET last_error = coalesce(last_error, 'kept')")
	got := map[int64]placeholder.State{}
	listed := kept(100)
	for id, p := range listed {
		got[id] = p.State
	}
	require.Equal(t, map[int64]placeholder.State{
		1: placeholder.Due, 2: placeholder.Deferred, 3: placeholder.GivenUp, 4: placeholder.Scheduled,
		5: placeholder.InQueue,
		6: placeholder.Obsolete, 7: placeholder.Due, 8: placeholder.Scheduled,
	}, got)
	require.EqualValues(t, 2, listed[2].Attempts)
	require.WithinDuration(t, listed[2].LastAttemptAt.Add(48*time.Hour), *listed[2].NextAttemptAt, time.Millisecond)
	require.Nil(t, listed[1].LastAttemptAt)
	require.Nil(t, listed[3].NextAttemptAt)

	b.Exec("UPDATE import_placeholder_user_details SET last_deletion_attempt_at = 'infinity' WHERE id = 2")
	b.Exec("UPDATE import_placeholder_user_details SET last_deletion_attempt_at = '-infinity', created_at = '-infinity' WHERE id IN (1, 7)")
	listed = kept(100)
	require.Equal(t, placeholder.Deferred, listed[2].State, "deferred to infinity")
	require.Nil(t, listed[2].NextAttemptAt)
	pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	backlog := pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)
	require.Equal(t, placeholder.Backlog{}, backlog)

	b = setupStates(t)
	backlog = pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)
	require.EqualValues(t, 4, backlog.Pending, "placeholders 1, 2, 7 and 8")
	require.EqualValues(t, 1, backlog.Deferred)
	require.EqualValues(t, 1, backlog.GivenUp)
	require.Equal(t, "two", backlog.DeferredReason)
	require.WithinDuration(t, time.Now().Add(47*time.Hour), *backlog.DeferredUntil, time.Minute)
	require.InDelta(t, 3*3600, backlog.OldestAgeSeconds, 60, "placeholder 7 became due three hours ago")
	b.Exec("UPDATE import_placeholder_user_details SET deletion_attempts = 2, last_deletion_attempt_at = 'infinity' WHERE id = 1")
	until := *backlog.DeferredUntil
	backlog = pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)
	require.EqualValues(t, 2, backlog.Deferred, "placeholder 1 is deferred to infinity")
	require.Equal(t, until, *backlog.DeferredUntil)
	b.Exec("UPDATE import_placeholder_user_details SET deletion_attempts = 0, last_deletion_attempt_at = NULL WHERE id = 1")
	b.Exec("DELETE FROM import_placeholder_user_details WHERE id = 7")
	backlog = pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)
	require.InDelta(t, 2*3600, backlog.OldestAgeSeconds, 60, "placeholder 1 was created two hours ago")
}

func TestBacklogIsCapped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1)
	b.Exec(`INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id, deletion_attempts, last_deletion_attempt_at)
		SELECT n, 1, 1, n % 2 * 15, CASE WHEN n % 2 = 1 THEN now() - interval '9 days' END FROM generate_series(1000, 21999) AS n`)
	backlog := pgtest.Must(placeholder.ReadBacklog(t.Context(), b.Pool(), dbtest.Names(), rules()))(t)
	require.EqualValues(t, 10_000, backlog.Pending)
	require.True(t, backlog.Capped)
	require.EqualValues(t, 10_000, backlog.GivenUp)
}

func TestRetryResetsAttempts(t *testing.T) {
	t.Parallel()
	b := setupStates(t)
	b.Exec("INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id, deletion_attempts) VALUES (30, 3, 1, 15)")
	retry := func(id int64) (state placeholder.State, err error) {
		err = pgx.BeginFunc(t.Context(), b.Pool(), func(tx pgx.Tx) (err error) {
			state, err = placeholder.Retry(t.Context(), tx, dbtest.Names(), id)
			return err
		})
		return state, err
	}
	require.Equal(t, placeholder.Due, pgtest.Must(retry(3))(t))
	require.Equal(t, [][]string{{"3", "0", "NULL", "three"}, {"30", "0", "NULL", "NULL"}}, b.Rows(`
		SELECT id, deletion_attempts, last_deletion_attempt_at, last_error FROM import_placeholder_user_details WHERE placeholder_user_id = 3 ORDER BY id`))
	for id, refusal := range map[int64]error{
		99: placeholder.ErrUnknown, 9: placeholder.ErrOwned, 5: placeholder.ErrQueued, 6: placeholder.ErrObsolete,
	} {
		_, err := retry(id)
		require.ErrorIs(t, err, refusal, id)
	}
	require.Equal(t, [][]string{{"15"}},
		b.Rows("SELECT deletion_attempts FROM import_placeholder_user_details WHERE id = 5"))
}

// Retry starts a waiting job immediately. A job that has failed can wait for weeks before
// its next attempt, and the placeholder is not offered until the job ends.
func TestRetryStartsAWaitingJob(t *testing.T) {
	t.Parallel()
	b := setupStates(t)
	b.Exec("UPDATE sexton.river_job SET state = 'retryable', scheduled_at = now() + interval '9 days' WHERE args = '{\"user_id\": 4}'")
	for _, id := range []int64{4, 8} {
		err := pgx.BeginFunc(t.Context(), b.Pool(), func(tx pgx.Tx) error {
			state, err := placeholder.Retry(t.Context(), tx, dbtest.Names(), id)
			require.Equal(t, placeholder.Scheduled, state)
			return err
		})
		require.NoError(t, err)
	}
	require.Equal(t, [][]string{{"4", "available", "t"}, {"8", "available", "t"}}, b.Rows(`
		SELECT args ->> 'user_id', state, scheduled_at <= now() FROM sexton.river_job ORDER BY 1`))
	require.Equal(t, [][]string{{"4", "1", "t"}, {"8", "1", "t"}}, b.Rows(`
		SELECT id, deletion_attempts, last_deletion_attempt_at > now() - interval '1 minute'
		FROM import_placeholder_user_details WHERE id IN (4, 8) ORDER BY id`), "the waiting job counts as an attempt")
}
