package schema_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

// initialized is what init prints.
type initialized struct {
	Chosen, Kept []struct {
		Child, Parent, Reason string
		Columns               []string
		Indexed               bool
		OnDelete              string `json:"on_delete"`
	}
	Files, Indexes, Drops []string
}

// begin runs init where there are no definitions yet, and what it says after it.
func begin(t *testing.T, s *clitest.Site, args ...string) (p initialized) {
	t.Helper()
	require.NoError(t, os.Remove(s.Path("loose_foreign_keys.yml")))
	before := s.Snapshot()
	require.NoError(t, json.Unmarshal([]byte(s.OK(append([]string{"init", "--json"}, args...)...)), &p))
	require.Equal(t, before, s.Snapshot(), "init changes nothing")
	if len(p.Chosen) == 0 {
		return p
	}
	for _, indexes := range p.Indexes {
		for statement := range strings.Lines(indexes) {
			s.Exec(statement)
		}
	}
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	for _, statement := range p.Drops {
		s.Exec(statement)
	}
	return p
}

// drain runs the job until no tombstone is left.
func drain(t *testing.T, s *clitest.Site) {
	t.Helper()
	for range 50 {
		if pgtest.Scalar[int64](t, s.Database, "SELECT count(*) FROM loose_foreign_keys_deleted_records") == 0 {
			return
		}
		s.OK("job", "run", clitest.Kind)
	}
	require.Fail(t, "tombstones stay", "%v", s.Rows("SELECT fully_qualified_table_name, last_error FROM loose_foreign_keys_deleted_records"))
}

const contents = `SELECT oid::regclass::text, query_to_xml(format('SELECT t::text FROM %s AS t ORDER BY 1', oid::regclass), true, false, '')::text
	FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname NOT LIKE 'loose_foreign_keys%' ORDER BY 1`

// After init each deletion has the end that the foreign keys gave it, also a refused one; and the way back leads to these keys.
func TestInitLeavesEveryDeletionWithItsEnd(t *testing.T) {
	t.Parallel()
	file := func(name string) func(*testing.T, *pgtest.Database) {
		return func(t *testing.T, db *pgtest.Database) {
			t.Helper()
			db.Exec(string(pgtest.Must(os.ReadFile("testdata/" + name))(t)))
		}
	}
	for name, test := range map[string]struct {
		fill         func(*testing.T, *pgtest.Database)
		chosen, kept int
		// deletions is how many rows of each parent go.
		deletions int
	}{
		"chinook": {file("chinook.sql"), 9, 1, 2},
		"pagila":  {file("pagila.sql"), 7, 4, 2},
		"reference": {func(t *testing.T, db *pgtest.Database) {
			t.Helper()
			db.Exec(sample.Schema())
			pool := pgtest.Must(pgxpool.New(t.Context(), db.URL))(t)
			defer pool.Close()
			_, err := sample.Load(t.Context(), pool, 1000, func(int64, int64) {})
			require.NoError(t, err)
		}, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			native, s := pgtest.New(t), clitest.NewSite(t, pgtest.New(t))
			for _, db := range []*pgtest.Database{native, s.Database} {
				test.fill(t, db)
				db.Exec("ANALYZE")
			}
			p := begin(t, s)
			if test.chosen > 0 {
				require.Len(t, p.Chosen, test.chosen)
				require.Len(t, p.Kept, test.kept, "%+v", p.Kept)
			}
			require.NotEmpty(t, p.Chosen)
			deletedAlike(t, native, s, test.deletions)
			wayBack(t, native, s)
		})
	}
}

// deletedAlike deletes rows of every table that others refer to.
func deletedAlike(t *testing.T, native *pgtest.Database, s *clitest.Site, deletions int) {
	t.Helper()
	conns := []*pgx.Conn{pgtest.Must(pgx.Connect(t.Context(), native.URL))(t), pgtest.Must(pgx.Connect(t.Context(), s.URL))(t)}
	refused, deleted := 0, 0
	for _, parent := range native.Rows("SELECT DISTINCT confrelid::regclass::text FROM pg_constraint WHERE contype = 'f' AND conparentid = 0 ORDER BY 1") {
		for offset := range deletions {
			sql := fmt.Sprintf("DELETE FROM %s WHERE (tableoid, ctid) = (SELECT tableoid, ctid FROM %[1]s AS t ORDER BY t::text OFFSET %d LIMIT 1)", parent[0], offset)
			var failed [2]bool
			for i, conn := range conns {
				_, err := conn.Exec(t.Context(), sql)
				failed[i] = err != nil
			}
			require.Equal(t, failed[0], failed[1], sql)
			if failed[0] {
				refused++
				continue
			}
			deleted++
		}
		drain(t, s)
	}
	require.Equal(t, native.Rows(contents), s.Rows(contents))
	require.Positive(t, refused)
	require.Greater(t, deleted, 5)
	for _, conn := range conns {
		require.NoError(t, conn.Close(t.Context()))
	}
}

func wayBack(t *testing.T, native *pgtest.Database, s *clitest.Site) {
	t.Helper()
	var ways []struct{ Add, Validate []string }
	require.NoError(t, json.Unmarshal([]byte(s.OK("definitions", "foreign-keys", "--json")), &ways))
	for _, way := range ways {
		s.Exec(strings.Join(way.Add, "\n"))
	}
	s.OK("audit")
	for _, way := range ways {
		s.Exec(strings.Join(way.Validate, "\n"))
	}
	const keys = `SELECT conrelid::regclass::text, regexp_replace(pg_get_constraintdef(oid), ' DEFERRABLE.*', '') FROM pg_constraint
		WHERE contype = 'f' AND conparentid = 0 AND convalidated AND connamespace = 'public'::regnamespace`
	was := native.Rows(keys)
	for _, row := range was {
		// The columns are in the order of the primary key now.
		row[1] = strings.ReplaceAll(row[1], `(payment, "the day") REFERENCES payment(payment_id, paid_on)`, `("the day", payment) REFERENCES payment(paid_on, payment_id)`)
	}
	require.ElementsMatch(t, was, s.Rows(keys))
}

// Each kind of key that no definition can stand for is kept, with the reason.
func TestInitSaysWhatItKeeps(t *testing.T) {
	t.Parallel()
	s := clitest.NewSite(t, pgtest.New(t))
	s.Exec(`CREATE TABLE p (id int PRIMARY KEY, code text UNIQUE, part int);
		CREATE TABLE whole (id int PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE piece PARTITION OF whole FOR VALUES FROM (0) TO (100);
		CREATE TABLE a_refuses (p int REFERENCES p);
		CREATE TABLE b_default (p int DEFAULT 1 REFERENCES p ON DELETE SET DEFAULT);
		CREATE TABLE c_follows (p int REFERENCES p ON UPDATE CASCADE ON DELETE CASCADE);
		CREATE TABLE d_code (p text REFERENCES p (code) ON DELETE CASCADE, q int REFERENCES p ON DELETE CASCADE);
		CREATE TABLE e_piece (p int REFERENCES piece ON DELETE CASCADE);
		CREATE TABLE f_null (p int NOT NULL REFERENCES p ON DELETE SET NULL);
		CREATE TABLE g_check (p int CHECK (p IS NOT NULL) REFERENCES p ON DELETE SET NULL);
		CREATE TABLE h_below (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE);
		CREATE TABLE i_diamond (h int REFERENCES h_below, p int REFERENCES p ON DELETE CASCADE);
		CREATE TABLE "J.dot" ("x y" int REFERENCES p ON DELETE CASCADE);`)
	p := begin(t, s)
	kept := map[string]string{}
	for _, k := range p.Kept {
		kept[k.Child+"."+k.Columns[0]] = k.Reason
	}
	for child, reason := range map[string]string{
		"a_refuses.p": "refuses deletions", "b_default.p": "SET DEFAULT", "c_follows.p": "ON UPDATE", "d_code.p": "for the same parent|another definition refers to", "e_piece.p": "partition",
		"f_null.p": "NOT NULL", "g_check.p": ".", "h_below.p": "i_diamond_h_fkey of i_diamond refuses", "i_diamond.p": "i_diamond_h_fkey of i_diamond would refuse", "i_diamond.h": "refuses",
	} {
		require.Regexp(t, reason, kept[child], child)
		delete(kept, child)
	}
	require.Empty(t, kept)
	require.Len(t, p.Chosen, 2)
	require.Equal(t, []string{`ALTER TABLE "public"."J.dot" DROP CONSTRAINT "J.dot_x y_fkey";`, `ALTER TABLE "public"."d_code" DROP CONSTRAINT "d_code_q_fkey";`}, p.Drops)
	require.Equal(t, []string{s.Path("loose_foreign_keys.yml")}, p.Files)
	s.OK("config", "check")
	s.Says(2, "is there already", "init", "--tables", "d_code")
}

// People choose children; the others keep their keys.
func TestInitTakesTheTablesThatAreNamed(t *testing.T) {
	t.Parallel()
	s := clitest.NewSite(t, pgtest.New(t))
	s.Exec(string(pgtest.Must(os.ReadFile("testdata/chinook.sql"))(t)) + "ANALYZE")
	s.Says(2, "did you mean invoice?", "init", "--tables", "invoce")
	require.NoError(t, os.Remove(s.Path("loose_foreign_keys.yml")))
	out := s.OK("init", "--tables", "invoice,track")
	require.Regexp(t, `(?m)^invoice_line +invoice_id +invoice +not chosen$`, out)
	require.Regexp(t, `(?m)^1 +invoice +customer_id +customer +async_delete +60 +waits for about 3 rows, for the biggest parent 3$`, out)
	require.Regexp(t, `(?m)^2 +track +album_id .* as no index leads to them$`, out)
	require.Regexp(t, `(?s)CREATE INDEX CONCURRENTLY.*sexton triggers install.*lock_timeout.*DROP CONSTRAINT`, out)
	require.Equal(t, `# Written by sexton init. All keys: docs/definitions.md
invoice:
  # "invoice_customer_id_fkey" FOREIGN KEY (customer_id) REFERENCES public.customer(customer_id) ON DELETE CASCADE
  - table: customer
    column: customer_id
    on_delete: async_delete
track:
`, strings.SplitAfter(string(pgtest.Must(os.ReadFile(s.Path("loose_foreign_keys.yml")))(t)), "track:\n")[0])
}
