package schema_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

// initialized is the output of `sexton init --json`.
type initialized struct {
	Chosen, Kept []struct {
		Child, Parent, Reason string
		Columns               []string
		Indexed               bool
		OnDelete              string `json:"on_delete"`
	}
	Files, Indexes, Drops []string
}

// runInit runs init in a site without definitions, and then the steps that it prints.
func runInit(t *testing.T, s *clitest.Site, args ...string) (p initialized) {
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
	// All steps except CREATE INDEX can be repeated.
	runTwice := func(step func()) {
		step()
		first := s.Rows(schemaObjects)
		step()
		require.Equal(t, first, s.Rows(schemaObjects))
	}
	runTwice(func() { s.OK("migrate", "up") })
	runTwice(func() { s.OK("triggers", "install") })
	runTwice(func() {
		for _, statement := range p.Drops {
			s.Exec(statement)
		}
	})
	s.OK("audit")
	s.OK("audit")
	return p
}

// schemaObjects returns the tables, indexes, functions, triggers and constraints of the
// application and of Sexton.
const schemaObjects = `
SELECT 'relation', oid::regclass::text, relkind::text FROM pg_class WHERE relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('public', 'sexton'))
UNION ALL SELECT 'function', oid::regprocedure::text, '' FROM pg_proc WHERE pronamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('public', 'sexton'))
UNION ALL SELECT 'trigger', tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'constraint', conname, conrelid::regclass::text FROM pg_constraint WHERE connamespace = 'public'::regnamespace
ORDER BY 1, 2, 3`

// drain runs the cleanup until no tombstone is left.
func drain(t *testing.T, s *clitest.Site) {
	for range 50 {
		if pgtest.Scalar[int64](t, s.Database, "SELECT count(*) FROM loose_foreign_keys_deleted_records") == 0 {
			return
		}
		s.OK("job", "run", clitest.Kind)
	}
	require.Fail(t, "tombstones are left", "%v",
		s.Rows("SELECT fully_qualified_table_name, last_error FROM loose_foreign_keys_deleted_records"))
}

const contents = `SELECT oid::regclass::text, query_to_xml(format('SELECT t::text FROM %s AS t ORDER BY 1', oid::regclass), true, false, '')::text
	FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname NOT LIKE 'loose_foreign_keys%' ORDER BY 1`

// With the definitions that init proposes, each deletion has the same result as with
// foreign keys, including refused deletions. `definitions foreign-keys` restores the
// foreign keys.
func TestDeletionsAfterInit(t *testing.T) {
	t.Parallel()
	file := func(name string) string { return string(pgtest.Must(os.ReadFile("testdata/" + name))(t)) }
	for name, test := range map[string]struct {
		tables       string
		chosen, kept int
		// deletions is the number of rows that are deleted from each parent table.
		deletions int
	}{
		"chinook":   {file("chinook.sql"), 9, 1, 2},
		"pagila":    {file("pagila.sql"), 7, 4, 2},
		"options":   {file("options.sql"), 5, 1, 4},
		"reference": {exampleapp.Schema(), 0, 0, 1},
	} {
		if name == "chinook" && !pgtest.Long {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			filled := func() *pgtest.Database {
				return pgtest.FromTemplate(t, "init "+name, func(ctx context.Context, url string) error {
					pool, err := pgxpool.New(ctx, url)
					if err != nil {
						return err
					}
					defer pool.Close()
					if _, err = pool.Exec(ctx, test.tables); err == nil && name == "reference" {
						_, err = exampleapp.Load(ctx, pool, 1000, nil)
					}
					_, wrong := pool.Exec(ctx, "ANALYZE")
					return errors.Join(err, wrong)
				})
			}
			native, s := filled(), clitest.NewSite(t, filled())
			p := runInit(t, s)
			if test.chosen > 0 {
				require.Len(t, p.Chosen, test.chosen)
				require.Len(t, p.Kept, test.kept, "%+v", p.Kept)
			}
			require.NotEmpty(t, p.Chosen)
			requireSameDeletions(t, native, s, test.deletions)
			requireSameForeignKeys(t, native, s)
		})
	}
}

// requireSameDeletions deletes the same rows of every referenced table in both databases
// and requires the same results. If a result differs because the children have not been
// cleaned up, it runs the cleanup and deletes the row again.
func requireSameDeletions(t *testing.T, native *pgtest.Database, s *clitest.Site, deletions int) {
	t.Helper()
	refused, deleted := 0, 0
	for _, parent := range native.Rows("SELECT DISTINCT confrelid::regclass::text FROM pg_constraint WHERE contype = 'f' AND conparentid = 0 ORDER BY 1") {
		for offset := range deletions {
			rows := native.Rows(fmt.Sprintf("SELECT t::text FROM %s AS t ORDER BY 1 OFFSET %d LIMIT 1", parent[0],
				offset))
			if len(rows) == 0 {
				continue
			}
			deleteRow := func(db *pgtest.Database) int64 {
				tag, err := db.Pool().Exec(t.Context(),
					fmt.Sprintf("DELETE FROM %s AS t WHERE t::text = $1", parent[0]), rows[0][0])
				if err != nil {
					return -1
				}
				return tag.RowsAffected()
			}
			want, got := deleteRow(native), deleteRow(s.Database)
			if got != want {
				drain(t, s)
				got = deleteRow(s.Database)
			}
			require.Equal(t, want, got, "%s %s", parent[0], rows[0])
			if want < 0 {
				refused++
			} else {
				deleted++
			}
		}
	}
	drain(t, s)
	require.Equal(t, native.Rows(contents), s.Rows(contents))
	require.Positive(t, refused)
	require.Greater(t, deleted, 5)
}

func requireSameForeignKeys(t *testing.T, native *pgtest.Database, s *clitest.Site) {
	var ways []struct{ Add, Validate []string }
	require.NoError(t, json.Unmarshal([]byte(s.OK("definitions", "foreign-keys", "--json")), &ways))
	for _, way := range ways {
		s.Exec(strings.Join(way.Add, "\n"))
	}
	s.OK("audit")
	for _, way := range ways {
		s.Exec(strings.Join(way.Validate, "\n"))
	}
	const keys = `SELECT conrelid::regclass::text, pg_get_constraintdef(oid), conname::text FROM pg_constraint
		WHERE contype = 'f' AND conparentid = 0 AND convalidated AND connamespace = 'public'::regnamespace`
	want := native.Rows(keys)
	for _, row := range want {
		// A definition lists its columns in the order of the primary key. The restored
		// foreign key has the same order.
		row[1] = strings.ReplaceAll(row[1], `(payment, "the day") REFERENCES payment(payment_id, paid_on)`,
			`("the day", payment) REFERENCES payment(paid_on, payment_id)`)
	}
	require.ElementsMatch(t, want, s.Rows(keys))
}

// With --tables, init proposes definitions only for the foreign keys of these children.
// Other foreign keys are kept.
func TestInitWithTables(t *testing.T) {
	t.Parallel()
	s := clitest.NewSite(t, pgtest.New(t))
	s.Exec(string(pgtest.Must(os.ReadFile("testdata/chinook.sql"))(t)) + "ANALYZE")
	s.RequireError(2, "loose_foreign_keys.yml exists: --add adds keys to it", "init")
	require.NoError(t, os.Remove(s.Path("loose_foreign_keys.yml")))
	s.RequireError(2, "did you mean invoice?", "init", "--tables", "invoce")
	out := s.OK("init", "--tables", "invoice,track")
	require.Regexp(t, `(?m)^invoice_line +invoice_id +invoice +not chosen$`, out)
	require.Regexp(t,
		`(?m)^invoice +customer_id +customer +async_delete +60 +waits for about 3 rows, 3 for the largest parent$`, out)
	require.Regexp(t, `(?m)^track +album_id .*; reads all \d+ MB, without an index$`, out)
	require.Regexp(t,
		`(?s)CREATE INDEX CONCURRENTLY.*sexton migrate up.*sexton grants .*sexton triggers install.*lock_timeout.*DROP CONSTRAINT.*sexton definitions foreign-keys`, out)
	for block := range strings.SplitSeq(out, "\n\n") {
		shell, sql := strings.HasPrefix(block, "# Shell: "), strings.HasPrefix(block, "-- SQL: ")
		require.Equal(t, shell, strings.Contains(block, "\nsexton "), block)
		require.Equal(t, sql, strings.Contains(block, ";\n") || strings.HasSuffix(block, ";"), block)
	}
	require.Equal(t, `# Written by sexton init. All keys: docs/definitions.md
invoice:
  - table: customer
    column: customer_id
    on_delete: async_delete
    constraint: {name: invoice_customer_id_fkey}
track:
`, strings.SplitAfter(string(pgtest.Must(os.ReadFile(s.Path("loose_foreign_keys.yml")))(t)), "track:\n")[0])
}

// init writes a configuration with the databases that environment variables define. The
// printed steps can be repeated, except CREATE INDEX.
func TestInitWithDatabasesOfTheEnvironment(t *testing.T) {
	t.Parallel()
	shop, archive := pgtest.New(t), pgtest.New(t)
	shop.Exec(`CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint REFERENCES parents ON DELETE CASCADE);
		CREATE TABLE parts (id bigint, parent_id bigint REFERENCES parents ON DELETE CASCADE) PARTITION BY LIST (id);
		CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
		CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2)`)
	dir := t.TempDir()
	run := func(args ...string) string {
		command := exec.CommandContext(t.Context(), os.Args[0], args...)
		command.Dir = dir
		command.Env = []string{
			clitest.AsProgram, "SEXTON_DATABASES__SHOP__URL=" + shop.URL,
			"SEXTON_DATABASES__ARCHIVE__URL=" + archive.URL,
		}
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
		return string(out)
	}
	_, steps, _ := strings.Cut(run("init", "--database", "shop"), "All but CREATE INDEX can be repeated:\n")
	require.Equal(t, `# Written by sexton init. All keys: docs/configuration.md
databases:
  archive: {url: "${SEXTON_DATABASES__ARCHIVE__URL}"}
  shop: {url: "${SEXTON_DATABASES__SHOP__URL}"}
loose_foreign_keys: {definitions: ["loose_foreign_keys.yml"]}
`, string(pgtest.Must(os.ReadFile(dir+"/sexton.yaml"))(t)))
	var indexes [][]string
	for again := range 2 {
		for line := range strings.Lines(steps) {
			switch line = strings.TrimSpace(line); {
			case again > 0 && strings.HasPrefix(line, "CREATE INDEX"):
			// `sexton grants` is not run, because the printed command contains
			// placeholders for roles.
			case strings.HasPrefix(line, "sexton grants "):
			case strings.HasPrefix(line, "sexton "):
				run(strings.Fields(line)[1:]...)
			case line != "" && !strings.HasPrefix(line, "--") && !strings.HasPrefix(line, "#"):
				shop.Exec(line)
			}
		}
		indexes = append(indexes, shop.Rows(`SELECT indrelid::regclass::text, indexrelid::regclass::text FROM pg_index
			WHERE indrelid::regclass::text ~ '^(children|parts)' ORDER BY 1, 2`)...)
	}
	require.Len(t, indexes, 2*5)
	require.Equal(t, indexes[:5], indexes[5:])
}

// With --dry-run, init writes no file. With --add, it keeps the comments of existing
// files, and skips foreign keys that have definitions.
func TestInitWithExistingFiles(t *testing.T) {
	t.Parallel()
	s := clitest.NewSite(t, pgtest.New(t))
	s.Exec(string(pgtest.Must(os.ReadFile("testdata/chinook.sql"))(t)) + "ANALYZE")
	path := s.Path("loose_foreign_keys.yml")
	require.NoError(t, os.Remove(path))
	text := func() string { return string(pgtest.Must(os.ReadFile(path))(t)) }
	out := s.OK("init", "--dry-run", "--tables", "invoice")
	require.Contains(t, out, "No file was written. The definitions:\n\n# Written by sexton init.")
	require.Contains(t, out, "\ninvoice:\n  - table: customer\n")
	require.NoFileExists(t, path)

	s.OK("init", "--tables", "invoice")
	written := strings.Replace(text(), "invoice:", "# Bills.\n\ninvoice: # by customer", 1)
	require.NoError(t, os.WriteFile(path, []byte(written), 0o600))
	require.Contains(t, s.OK("init", "--dry-run", "--tables", "track"), "\ntrack:\n")
	require.Equal(t, written, text())
	s.RequireError(2, "--tables invoice: no foreign key of that table can be replaced", "init", "--add", "--tables", "invoice")
	out = s.OK("init", "--add", "--tables", "track")
	require.Regexp(t, `(?m)^invoice +customer_id +customer +it has a definition$`, out)
	require.NotContains(t, out, `"invoice_customer_id_fkey"`)
	require.Contains(t, text(), "# Bills.\n\ninvoice: # by customer\n  - table: customer\n")
	s.OK("config", "check")

	// Further definitions of the same child are added to its list. If another definition
	// is invalid, init writes no file.
	before := text()
	s.Exec("ALTER TABLE invoice ADD support int REFERENCES employee ON DELETE SET NULL; CREATE INDEX ON invoice (support)")
	s.OK("init", "--add", "--tables", "invoice")
	require.Equal(t, 1, strings.Count(text(), "invoice: # by customer\n"))
	require.Contains(t, text(), "column: support")
	s.OK("config", "check", "--connect")
	require.NoError(t, os.WriteFile(path, []byte(before+
		"gone: [{table: artist, column: artist_id, on_delete: async_delete}]\n"), 0o600))
	require.Equal(t, 2, s.Run("init", "--add", "--tables", "invoice").Code)
	require.NotContains(t, text(), "support")

	// Definitions are added to a file that has only a comment.
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, []byte("# Of our tables."), 0o600))
	s.OK("init", "--add", "--tables", "invoice")
	require.True(t, strings.HasPrefix(text(), "# Of our tables.\ninvoice:\n"), text())
	require.Equal(t, os.FileMode(0o600), pgtest.Must(os.Stat(path))(t).Mode())
	s.OK("config", "check")
}
