package placeholder_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgschema"
	"sexton/internal/pgtest"
	"sexton/internal/placeholder"
	"sexton/internal/problem"
)

func TestReferencesThatDoNotFit(t *testing.T) {
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
		{Table: "p_ci_builds_100", Columns: []string{"user_id"}},
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
		"error placeholder_users.references[0].table: table isues does not exist (did you mean issues?)",
		"error placeholder_users.references[1].columns[0]: table issues has no column autor_id (did you mean author_id?)",
		"error placeholder_users.references[1].columns[1]: issues.title is of type text (only integers can refer to users)",
		"error placeholder_users.references[1].columns[3]: issues.author_id is named by placeholder_users.references[1].columns[2] already (remove one of them)",
		"error placeholder_users.references[2].table: authors is not a table (name the table behind it)",
		"error placeholder_users.references[3].table: p_ci_builds_100 is a partition (name the partitioned table)",
		`error placeholder_users.references[5].table: table "\"" lacks its closing double quote`,
		"error placeholder_users.references[6].table: table other.things does not exist (create it, or remove the entry)",
		"error placeholder_users.references[7].table: table elsewhere.thing does not exist (did you mean elsewhere.things?)",
		`warning placeholder_users.references[4].columns[0]: no index of unindexed begins with user_id, so every look at a placeholder reads the whole table (CREATE INDEX CONCURRENTLY ON "public"."unindexed" ("user_id"))`,
		`warning placeholder_users.references[4].columns[1]: no index of unindexed begins with half_id, so every look at a placeholder reads the whole table (CREATE INDEX CONCURRENTLY ON "public"."unindexed" ("half_id"))`,
	}, found)
}

func TestReferencesThatTheRoleMayNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role := b.CreateRole()
	b.Exec("GRANT SELECT ON notes TO " + role)
	b.Exec("GRANT SELECT (id, author_id) ON issues TO " + role)
	conn := pgtest.Connect(t, b.AsRole(role))
	_, problems, err := placeholder.Bind(t.Context(), conn, dbtest.Names(), []placeholder.Reference{
		{Table: "notes", Columns: []string{"author_id"}}, {Table: "issues", Columns: []string{"author_id", "updated_by_id"}},
	})
	require.NoError(t, err)
	require.Equal(t, problem.List{{
		Severity: problem.Error, Key: "placeholder_users.references[1].columns[1]", Message: "the role may not read issues.updated_by_id",
		Fix: `GRANT SELECT ON TABLE "public"."issues" TO the worker's role`,
	}}, problems)
}

// Names that need quotes, partitions, tables that are inherited from, of another schema, without a key.
func TestReferencesOfEverySort(t *testing.T) {
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

// A schema of the application may have the name by which the SQL files call another one.
func TestReferencesKeepTheirSchema(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.notes (id int PRIMARY KEY, author_id int); CREATE INDEX ON elsewhere.notes (author_id)")
	names := pgschema.Names{Jobs: "sexton", Tracked: "elsewhere"}
	bound, problems, err := placeholder.Bind(t.Context(), b.Pool(), names, []placeholder.Reference{
		{Table: "notes", Columns: []string{"author_id"}}, {Table: "public.notes", Columns: []string{"author_id"}},
	})
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, []string{"notes.author_id", "public.notes.author_id"}, bound.Labels())
}

// within begins nested transactions, which have the options of the outer one.
type within struct{ pgx.Tx }

func (w within) BeginTx(ctx context.Context, _ pgx.TxOptions) (pgx.Tx, error) { return w.Begin(ctx) }

// The statement stops at the first row of each column: many rows cost no more than one.
func TestLookStopsEarly(t *testing.T) {
	t.Parallel()
	b := scene(t)
	b.Exec("INSERT INTO notes (project_id, noteable_type, noteable_id, author_id, note) SELECT 1, 'Issue', 11, 1, 'n' FROM generate_series(1, 20000)")
	b.Exec("ANALYZE notes")
	tx := pgtest.Begin(t, b.Pool())
	r := b.remover(t)
	r.DB = within{tx}
	require.Len(t, pgtest.Must(r.Remove(t.Context(), 1))(t).Blockers, 1)
	var sequential, fetched int64
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'notes'").Scan(&sequential, &fetched))
	require.Zero(t, sequential, "rows read by walking through the table")
	require.LessOrEqual(t, fetched, int64(1))
}
