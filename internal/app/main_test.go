package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/root"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

// asProgram has the test binary be the program, for commands that must be a process of their own.
const asProgram = "SEXTON_TEST_AS_PROGRAM=yes"

func TestMain(m *testing.M) {
	if slices.Contains(os.Environ(), asProgram) {
		os.Exit(root.Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
	}
	s3test.Prepare()
	pgtest.Main(m)
}

const kind = "loose_foreign_keys_cleanup"

// tables is a small application: ten projects with ten issues each.
const tables = `
CREATE TABLE projects (id bigint PRIMARY KEY, name text);
CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint, author_id bigint NOT NULL DEFAULT 0, title text);
CREATE INDEX ON issues (project_id);
CREATE TABLE labels (slug text PRIMARY KEY);
CREATE TABLE builds (id bigint, part integer, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE builds_1 PARTITION OF builds FOR VALUES IN (1);
CREATE VIEW open_issues AS SELECT * FROM issues;
INSERT INTO projects SELECT id, 'project ' || id FROM generate_series(1, 10) AS id;
INSERT INTO issues (id, project_id) SELECT id, id % 10 + 1 FROM generate_series(1, 100) AS id;
`

const goodDefinitions = `issues:
  - table: projects
    column: project_id
    on_delete: async_delete
`

// site is a database with the application's tables, and a folder with the files that point Sexton at it.
type site struct {
	*pgtest.Database

	tb  testing.TB
	dir string
	// environ is what commands see; it names the configuration file.
	environ []string
}

// plain is a site on which Sexton has not been installed yet.
func plain(tb testing.TB) *site {
	tb.Helper()
	return newSite(tb, pgtest.FromTemplate(tb, "plain", createTables))
}

// installed is a site with Sexton's tables and triggers.
func installed(tb testing.TB) *site {
	tb.Helper()
	return prepared(tb, tables, "")
}

// prepared is a site with these tables and settings on a copy of a database in which Sexton has installed itself once.
func prepared(tb testing.TB, sql, settings string) *site {
	tb.Helper()
	s := newSite(tb, pgtest.FromTemplate(tb, sql+settings, func(ctx context.Context, url string) error {
		if err := execute(ctx, url, sql); err != nil {
			return err
		}
		first := newSite(tb, &pgtest.Database{URL: url})
		first.configure(url, settings)
		return first.install()
	}))
	s.configure(s.URL, settings)
	return s
}

func (s *site) install() error {
	for _, args := range [][]string{{"migrate", "up"}, {"triggers", "install"}} {
		if r := s.run(args...); r.code != 0 {
			return fmt.Errorf("%v: %s", args, r.stderr)
		}
	}
	return nil
}

func createTables(ctx context.Context, url string) error { return execute(ctx, url, tables) }

func execute(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func newSite(tb testing.TB, db *pgtest.Database) *site {
	tb.Helper()
	s := &site{Database: db, tb: tb, dir: tb.TempDir()}
	s.environ = []string{"SEXTON_CONFIG=" + s.path("sexton.yaml")}
	s.configure(db.URL, "")
	s.write("loose_foreign_keys.yml", goodDefinitions)
	return s
}

// configure writes sexton.yaml with one database. Its url stands in line 2, column 15; what follows comes
// from line 3 on.
func (s *site) configure(url, rest string) {
	s.tb.Helper()
	s.write("sexton.yaml", fmt.Sprintf("databases:\n  main: {url: %q}\n%s", url, rest))
}

func (s *site) write(name, content string) {
	s.tb.Helper()
	require.NoError(s.tb, os.WriteFile(s.path(name), []byte(content), 0o600))
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) run(args ...string) result { return run(s.environ, args...) }

// ok runs a command that must succeed and returns its standard output.
func (s *site) ok(args ...string) string {
	s.tb.Helper()
	r := s.run(args...)
	require.Zero(s.tb, r.code, "sexton %v: %s", args, r.stderr)
	return r.stdout
}

// json runs a command with --json, requires the exit code and decodes the one document on standard output.
func (s *site) json(code int, args ...string) any {
	s.tb.Helper()
	r := s.run(append(args, "--json")...)
	require.Equal(s.tb, code, r.code, "sexton %v: %s", args, r.stderr)
	var document any
	require.NoError(s.tb, json.Unmarshal([]byte(r.stdout), &document), r.stdout)
	return document
}

// snapshot lists all objects and rows of the database, each with the transaction that last wrote it.
func (s *site) snapshot() [][]string {
	s.tb.Helper()
	return s.Rows(`
		SELECT 'namespace', nspname::text, xmin::text FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp'
		UNION ALL SELECT 'class', oid::regclass::text, xmin::text FROM pg_class WHERE oid >= 16384
		UNION ALL SELECT 'column', attrelid::regclass || '.' || attname, xmin::text FROM pg_attribute WHERE attrelid >= 16384
		UNION ALL SELECT 'proc', oid::regprocedure::text, xmin::text FROM pg_proc WHERE oid >= 16384
		UNION ALL SELECT 'trigger', tgrelid::regclass || '.' || tgname, xmin::text FROM pg_trigger
		UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, xmin::text FROM pg_constraint WHERE oid >= 16384
		UNION ALL SELECT 'sequence', schemaname || '.' || sequencename, last_value::text FROM pg_sequences
		UNION ALL SELECT 'rows', oid::regclass::text,
			md5(query_to_xml(format('SELECT t.xmin, t::text FROM %s AS t ORDER BY t.ctid', oid::regclass), true, false, '')::text)
			FROM pg_class WHERE oid >= 16384 AND relkind = 'r'
		ORDER BY 1, 2, 3`)
}

// result is what one command did.
type result struct {
	code           int
	stdout, stderr string
}

// run runs one command line in process, as main does.
func run(environ []string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := root.Main(args, environ, &stdout, &stderr)
	return result{code: code, stdout: stdout.String(), stderr: stderr.String()}
}
