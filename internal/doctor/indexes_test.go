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
	p.target.Columns = append(p.target.Columns,
		doctor.Column{Schema: "My app", Table: "Kids", Column: "Parent id"}, doctor.Column{Schema: "My app", Table: "Kids", Column: "Parent id"})
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
		"hash":     "CREATE INDEX ON children USING hash (parent_id)",
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
	p.target.Columns = []doctor.Column{{Schema: "public", Table: "builds", Column: "parent_id"}}
	f := p.one("indexes")
	require.Equal(t, "no index of 2 of the 3 partitions of public.builds begins with parent_id, so every batch reads the whole table", f.Message)
	require.Equal(t, "CREATE INDEX CONCURRENTLY ON public.builds_1 (parent_id); CREATE INDEX CONCURRENTLY ON public.builds_22 (parent_id); "+
		"CREATE INDEX ON public.builds (parent_id)", f.Fix)
	p.follow(f.Fix)
	require.Empty(t, p.findings("indexes"))
	require.Equal(t, [][]string{{"5"}}, p.Rows("SELECT count(*) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid WHERE c.relname LIKE 'builds%'"),
		"the last statement took over the indexes that were there")
}
