package doctor_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/doctor"
	"sexton/internal/problem"
)

// follow runs the statements of a fix one by one, as CONCURRENTLY allows no transaction.
func (p *patient) follow(fix string) {
	p.t.Helper()
	for statement := range strings.SplitSeq(fix, "; ") {
		p.Exec(statement)
	}
}

func TestColumnsWithoutIndex(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Exec(`CREATE SCHEMA "My app"; CREATE TABLE "My app"."Kids" (id bigint PRIMARY KEY, "Parent id" bigint, note text)`)
	p.target.References = append(p.target.References,
		doctor.Reference{Schema: "My app", Table: "Kids", Columns: []string{"Parent id"}}, doctor.Reference{Schema: "My app", Table: "Kids", Columns: []string{"Parent id"}})
	want := doctor.Finding{
		Severity: problem.Warning, Check: "indexes", Database: "main", Object: `"My app"."Kids"."Parent id"`,
		Message: `no index of "My app"."Kids" begins with "Parent id", so every batch reads the whole table`,
		Fix:     `CREATE INDEX CONCURRENTLY ON "My app"."Kids" ("Parent id")`,
	}
	for name, unusable := range map[string]string{
		"none":       "SELECT",
		"second":     `CREATE INDEX ON "My app"."Kids" (note, "Parent id")`,
		"partial":    `CREATE INDEX ON "My app"."Kids" ("Parent id") WHERE note = 'x'`,
		"expression": `CREATE INDEX ON "My app"."Kids" (("Parent id" + 0))`,
		"hash":       `CREATE INDEX ON "My app"."Kids" USING hash ("Parent id")`,
		"ranges":     `CREATE INDEX ON "My app"."Kids" USING brin ("Parent id")`,
	} {
		p.Exec(unusable)
		require.Equal(t, []doctor.Finding{want}, p.findings("indexes"), name)
	}
	p.follow(want.Fix)
	require.Empty(t, p.findings("indexes"))
}

func TestIndexesThatServe(t *testing.T) {
	t.Parallel()
	for name, index := range map[string]string{
		"leading":  "CREATE INDEX ON children (parent_id, id)",
		"not null": "CREATE INDEX ON children (parent_id) WHERE parent_id IS NOT NULL",
	} {
		p := healthy(t)
		p.Exec("DROP INDEX children_parent_id_idx")
		require.Len(t, p.findings("indexes"), 1, name)
		p.Exec(index)
		require.Empty(t, p.findings("indexes"), name)
	}
}

func TestAnInvalidIndexServesNobody(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Exec("DROP INDEX children_parent_id_idx; INSERT INTO children VALUES (1, 1), (2, 1)")
	conn, err := pgx.Connect(t.Context(), p.URL)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE UNIQUE INDEX CONCURRENTLY ON children (parent_id)")
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.NoError(t, conn.Close(t.Context()))
	require.Equal(t, "CREATE INDEX CONCURRENTLY ON public.children (parent_id)", p.one("indexes").Fix)
}

func TestPartitionsWithoutIndex(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Exec(`CREATE TABLE builds (id bigint, parent_id bigint) PARTITION BY RANGE (id);
		CREATE TABLE builds_1 PARTITION OF builds FOR VALUES FROM (0) TO (10);
		CREATE TABLE builds_2 PARTITION OF builds FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
		CREATE TABLE builds_21 PARTITION OF builds_2 FOR VALUES FROM (10) TO (15);
		CREATE TABLE builds_22 PARTITION OF builds_2 FOR VALUES FROM (15) TO (20);
		CREATE INDEX ON builds_21 (parent_id)`)
	p.target.References = []doctor.Reference{{Schema: "public", Table: "builds", Columns: []string{"parent_id"}}}
	f := p.one("indexes")
	require.Equal(t, "no index of 2 of the 3 partitions of public.builds begins with parent_id, so every batch reads the whole table", f.Message)
	require.Equal(t, "CREATE INDEX CONCURRENTLY ON public.builds_1 (parent_id); CREATE INDEX CONCURRENTLY ON public.builds_22 (parent_id); "+
		"CREATE INDEX ON public.builds (parent_id)", f.Fix)
	p.follow(f.Fix)
	require.Empty(t, p.findings("indexes"))
	require.Equal(t, [][]string{{"5"}}, p.Rows("SELECT count(*) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid WHERE c.relname LIKE 'builds%'"),
		"the last statement took over the indexes that were there")
}

func TestIndexesOfSeveralColumns(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Exec(`CREATE TABLE pairs (a int, b int, PRIMARY KEY (a, b)); CREATE TABLE notes (id bigint, tenant int, "Issue id" int, part int) PARTITION BY LIST (part);
		CREATE TABLE notes_1 PARTITION OF notes FOR VALUES IN (1); CREATE TABLE notes_2 PARTITION OF notes FOR VALUES IN (2);
		CREATE INDEX ON notes_2 ("Issue id", tenant, id)`)
	p.target.References = []doctor.Reference{{Schema: "public", Table: "notes", Columns: []string{"tenant", "Issue id"}}}
	want := doctor.Finding{
		Severity: problem.Warning, Check: "indexes", Database: "main", Object: `public.notes (tenant, "Issue id")`,
		Message: `no index of 1 of the 2 partitions of public.notes begins with tenant, "Issue id", so every batch reads the whole table`,
		Fix:     `CREATE INDEX CONCURRENTLY ON public.notes_1 (tenant, "Issue id"); CREATE INDEX ON public.notes (tenant, "Issue id")`,
	}
	for _, unusable := range []string{
		"SELECT", "CREATE INDEX ON notes_1 (tenant)", `CREATE INDEX ON notes_1 (tenant, id, "Issue id")`,
		`CREATE INDEX ON notes_1 (tenant) INCLUDE ("Issue id")`, `CREATE INDEX ON notes_1 (tenant, "Issue id") WHERE tenant IS NOT NULL AND id IS NOT NULL`,
	} {
		p.Exec(unusable)
		require.Equal(t, []doctor.Finding{want}, p.findings("indexes"), unusable)
	}
	for _, usable := range []string{
		`CREATE INDEX fits ON notes_1 ("Issue id", tenant)`, `CREATE INDEX fits ON notes_1 (tenant, "Issue id") WHERE tenant IS NOT NULL AND "Issue id" IS NOT NULL`,
		`CREATE INDEX fits ON notes_1 (tenant, "Issue id", id) WHERE "Issue id" IS NOT NULL`, `CREATE UNIQUE INDEX fits ON notes_1 ("Issue id")`,
	} {
		p.Exec(usable)
		require.Empty(t, p.findings("indexes"), usable)
		p.Exec("DROP INDEX fits")
	}
	p.follow(want.Fix)
	require.Empty(t, p.findings("indexes"))
}
