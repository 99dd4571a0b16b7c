package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// lifecycleTables adds cascading foreign keys, which init replaces, to the application
// with accounts: the deletion of an organization also deletes its documents, files and
// events.
const lifecycleTables = `
	ALTER TABLE documents ADD FOREIGN KEY (organization_id) REFERENCES organizations ON DELETE CASCADE;
	ALTER TABLE attachments ADD FOREIGN KEY (document_id) REFERENCES documents ON DELETE CASCADE;
	ALTER TABLE audit_events ADD FOREIGN KEY (organization_id) REFERENCES organizations ON DELETE CASCADE;
	CREATE TABLE notes (id bigint PRIMARY KEY, organization_id bigint REFERENCES organizations ON DELETE CASCADE);
	INSERT INTO organizations (id, slug) SELECT n, 'o' || n FROM generate_series(1, 3) AS n;
	INSERT INTO documents (id, organization_id, author_id, title) SELECT key_of(100 + n), n % 3 + 1, key_of(9), 'd' || n FROM generate_series(1, 9) AS n;
	INSERT INTO attachments SELECT 'a' || n, key_of(100 + n), 'b', 'k' FROM generate_series(1, 9) AS n;
	INSERT INTO audit_events SELECT n, '2026-10-05', n % 3 + 1, NULL, key_of(9) FROM generate_series(1, 9) AS n;
	INSERT INTO notes SELECT n, n % 3 + 1 FROM generate_series(1, 9) AS n`

// testLifecycle installs Sexton and removes it again with three roles: the owner of the
// tables, who may not create roles, the worker, and the application. The test runs all
// commands and SQL exactly as the program prints them.
func testLifecycle(t *testing.T, p program) {
	db := pgtest.New(t)
	owner, worker, app, own := db.CreateRole(), db.CreateRole(), db.CreateRole(), db.CreateRole()+"_own"
	quoted := func(name string) string { return pgx.Identifier{name}.Sanitize() }
	db.Exec("ALTER DATABASE " + quoted(db.Name) + " OWNER TO " + quoted(owner) + "; ALTER SCHEMA public OWNER TO " +
		quoted(owner))
	t.Cleanup(func() { db.Exec("DROP OWNED BY " + quoted(own) + " CASCADE; DROP ROLE " + quoted(own)) })
	asOwner := pgtest.Connect(t, db.AsRole(owner)+"&search_path=public")
	pgtest.Exec(t, asOwner, string(pgtest.Must(os.ReadFile(filepath.Join(scenarios, "accounts", "schema.sql")))(t)))
	pgtest.Exec(t, asOwner, lifecycleTables)
	pgtest.Exec(t, asOwner, "GRANT USAGE ON SCHEMA public TO "+quoted(app)+
		"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+quoted(app))
	const keys = `SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid) FROM pg_constraint
		WHERE contype = 'f' AND conparentid = 0 AND convalidated AND connamespace = 'public'::regnamespace ORDER BY 1, 2`
	before := db.Rows(keys)

	dir, url := t.TempDir(), db.AsRole(owner)
	p.environ = append(slices.Clip(p.environ), "SEXTON_JOBS__OWNER="+own, "SEXTON_HTTP__LISTEN=")
	run := func(code int, args ...string) string { return p.run(t, dir, url, code, args...) }
	// steps runs the commands and SQL that init prints after its heading. It skips
	// comments, and uses the test's roles.
	steps := func(printed string) {
		_, printed, found := strings.Cut(printed, "All but CREATE INDEX can be repeated:\n")
		require.True(t, found)
		for line := range strings.Lines(printed) {
			switch line = strings.TrimSpace(line); {
			case line == "" || strings.HasPrefix(line, "--") || strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "sexton "):
				run(0, strings.Fields(strings.NewReplacer("WORKER", worker, "APP", app).Replace(line))[1:]...)
			default:
				pgtest.Exec(t, asOwner, line)
			}
		}
	}

	dry := run(0, "init", "--dry-run", "--tables", "documents,attachments,audit_events")
	require.Contains(t, dry, "No file was written.")
	require.Contains(t, dry,
		"audit_events:\n  - table: organizations\n    column: organization_id\n    on_delete: async_delete\n")
	require.Empty(t, pgtest.Must(os.ReadDir(dir))(t))
	printed := run(0, "init", "--tables", "documents,attachments,audit_events")

	// A role with more privileges creates the owner of Sexton's functions, with the SQL
	// that migrate prints.
	lacking := p.start(t, dir, url, "migrate", "up")
	require.Equal(t, 7, lacking.wait(t))
	_, statements, found := strings.Cut(lacking.stderr.String(), "; run: ")
	require.True(t, found, lacking.stderr.String())
	db.Exec(statements)
	// Before the foreign keys are dropped, a worker must be running.
	install, drop, found := strings.Cut(printed, "-- SQL: while a worker")
	require.True(t, found)
	steps(install)
	require.Contains(t, run(0, "grants", "--worker", worker, "--app", app, "--check"),
		"run as a superuser, optional\n-- GRANT pg_read_all_stats TO "+worker+";\n")
	require.Contains(t, run(5, "doctor", "--role", worker),
		"main: checking the privileges of role "+worker+", named by --role\n")
	db.Exec("GRANT pg_read_all_stats TO " + quoted(worker))
	run(0, "doctor", "--role", worker)

	s := workSite{program: p, url: db.AsRole(worker), dir: dir, pool: db.Pool()}
	w := s.startWorker(t)
	s.wait(t, stopLimit, "the worker's listening connection", "EXISTS (SELECT FROM pg_stat_activity "+
		"WHERE datname = current_database() AND application_name LIKE 'sexton%(worker)' AND usename = $1)", strings.Trim(worker, `"`))
	require.Contains(t, run(0, "doctor"), "main: checking the privileges of role "+worker+", role of the newest running worker\n")
	steps("All but CREATE INDEX can be repeated:\n--" + drop)

	// A partition that is added later is cleaned up as well.
	pgtest.Exec(t, asOwner, `CREATE TABLE audit_events_2026_12 PARTITION OF audit_events FOR VALUES FROM ('2026-12-01') TO ('2027-01-01');
		INSERT INTO audit_events SELECT n, '2026-12-05', n % 3 + 1, NULL, key_of(9) FROM generate_series(11, 19) AS n`)
	asApp := pgtest.Connect(t, db.AsRole(app)+"&search_path=public")
	pgtest.Exec(t, asApp, "DELETE FROM organizations WHERE id = 1")
	const cleaned = "NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)"
	s.wait(t, time.Minute, "the organization's rows to be deleted", cleaned)
	require.Equal(t, [][]string{{"6", "6", "12", "6"}}, db.Rows(`SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM attachments),
		(SELECT count(*) FROM audit_events), (SELECT count(*) FROM notes)`))

	// init --add extends existing files and keeps their comments.
	definitions := filepath.Join(dir, "loose_foreign_keys.yml")
	text := string(pgtest.Must(os.ReadFile(definitions))(t))
	require.NoError(t, os.WriteFile(definitions, []byte(strings.Replace(text, "documents:",
		"# What people write.\ndocuments:", 1)), 0o600))
	w.stop(t)
	steps(run(0, "init", "--add", "--tables", "notes"))
	text = string(pgtest.Must(os.ReadFile(definitions))(t))
	require.Regexp(t, `(?s)\n# What people write.\ndocuments:\n.*\nnotes:\n  - table: organizations\n`, text)
	w = s.startWorker(t)
	pgtest.Exec(t, asApp, "DELETE FROM organizations WHERE id = 2")
	s.wait(t, time.Minute, "the organization's rows to be deleted", cleaned+" AND (SELECT count(*) FROM notes) = 3")

	// Sexton is removed: the foreign keys are restored, and the triggers are dropped.
	pgtest.Exec(t, asOwner, run(0, "definitions", "foreign-keys"))
	require.Equal(t, before, db.Rows(keys))
	w.stop(t)
	run(0, "audit")
	run(0, "migrate", "down")
	require.Equal(t, [][]string{{"0"}},
		db.Rows(`SELECT count(*) FROM pg_trigger AS t WHERE NOT tgisinternal AND tgname LIKE 'sexton%'`))
	require.Equal(t, before, db.Rows(keys))
}
