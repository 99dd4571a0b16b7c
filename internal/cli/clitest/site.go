package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/root"
	"sexton/internal/pgtest"
)

// AsProgram is an environment variable. With it, the test binary runs the program, for
// tests that need a process per command.
const AsProgram = "SEXTON_TEST_AS_PROGRAM=yes"

// Kind is the kind of the only job of the small application.
const Kind = "loose_foreign_keys_cleanup"

// tables creates the small application: ten projects with ten issues each.
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

// GoodDefinitions is the definition file of the small application.
const GoodDefinitions = `issues:
  - table: projects
    column: project_id
    on_delete: async_delete
`

// Site is a database with the application's tables, and a folder with Sexton's
// configuration for that database.
type Site struct {
	*pgtest.Database

	Tb  testing.TB
	Dir string
	// Environ is the environment of the commands. It contains SEXTON_CONFIG.
	Environ []string
}

// Plain returns a site in which Sexton is not installed.
func Plain(tb testing.TB) *Site {
	return NewSite(tb, pgtest.FromTemplate(tb, "plain", createTables))
}

// Installed returns a site in which Sexton's tables and triggers are installed.
func Installed(tb testing.TB) *Site {
	return Prepared(tb, tables, "")
}

// Prepared returns a site with the given tables and settings in which Sexton is
// installed. Its database is a copy of a template.
func Prepared(tb testing.TB, sql, settings string) *Site {
	s := NewSite(tb, pgtest.FromTemplate(tb, sql+settings, func(ctx context.Context, url string) error {
		if err := execute(ctx, url, sql); err != nil {
			return err
		}
		first := NewSite(tb, &pgtest.Database{URL: url})
		first.Configure(url, settings)
		return first.install()
	}))
	s.Configure(s.URL, settings)
	return s
}

func (s *Site) install() error {
	for _, args := range [][]string{{"migrate", "up"}, {"triggers", "install"}} {
		if r := s.Run(args...); r.Code != 0 {
			return fmt.Errorf("%v: %s", args, r.Stderr)
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

// NewSite returns a site with the given database. It does not change the database.
func NewSite(tb testing.TB, db *pgtest.Database) *Site {
	s := &Site{Database: db, Tb: tb, Dir: tb.TempDir()}
	s.Environ = []string{"SEXTON_CONFIG=" + s.Path("sexton.yaml")}
	s.Configure(db.URL, "")
	s.Write("loose_foreign_keys.yml", GoodDefinitions)
	return s
}

// Configure writes a sexton.yaml with one database. The URL is in line 2, column 15, and
// rest begins in line 3.
func (s *Site) Configure(url, rest string) {
	s.Tb.Helper()
	s.Write("sexton.yaml", fmt.Sprintf("databases:\n  main: {url: %q}\n%s", url, rest))
}

func (s *Site) Write(name, content string) {
	s.Tb.Helper()
	require.NoError(s.Tb, os.WriteFile(s.Path(name), []byte(content), 0o600))
}

// Path returns the path of a file in the folder of the site.
func (s *Site) Path(name string) string { return filepath.Join(s.Dir, name) }

// Run runs a command with the environment of the site.
func (s *Site) Run(args ...string) Result { return Run(s.Environ, args...) }

// OK runs a command, requires exit code 0, and returns the standard output.
func (s *Site) OK(args ...string) string {
	s.Tb.Helper()
	r := s.Run(args...)
	require.Zero(s.Tb, r.Code, "sexton %v: %s", args, r.Stderr)
	return r.Stdout
}

// RequireError runs a command. It requires the exit code, and that standard error
// contains the wanted text.
func (s *Site) RequireError(code int, want string, args ...string) {
	s.Tb.Helper()
	r := s.Run(args...)
	require.Equal(s.Tb, code, r.Code, "sexton %v: %s", args, r.Stderr)
	require.Contains(s.Tb, r.Stderr, want, "sexton %v", args)
}

// JSON runs a command with --json, requires the exit code, and decodes the document on
// standard output.
func (s *Site) JSON(code int, args ...string) any {
	s.Tb.Helper()
	r := s.Run(append(args, "--json")...)
	require.Equal(s.Tb, code, r.Code, "sexton %v: %s", args, r.Stderr)
	var document any
	require.NoError(s.Tb, json.Unmarshal([]byte(r.Stdout), &document), r.Stdout)
	return document
}

// Snapshot returns all objects and rows of the database. Each object and row has the ID
// of the transaction that last wrote it, so that every change is detected.
func (s *Site) Snapshot() [][]string {
	s.Tb.Helper()
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

// Result holds the exit code and the output of one command.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs one command line in this process, in the same way as the main function of the
// program.
func Run(environ []string, args ...string) Result {
	var stdout, stderr bytes.Buffer
	code := root.Main(args, environ, &stdout, &stderr)
	return Result{Code: code, Stdout: stdout.String(), Stderr: stderr.String()}
}
