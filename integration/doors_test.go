package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

// docBlocks returns the fenced blocks of one language in a file of docs, in order.
func docBlocks(t *testing.T, file, language string) []string {
	t.Helper()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "docs", file)))(t)
	var blocks []string
	// Blocks inside a list are indented as a whole.
	for _, match := range regexp.MustCompile("(?ms)^( *)```"+language+"\n(.*?)\n *```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, strings.ReplaceAll("\n"+match[2], "\n"+match[1], "\n")[1:])
	}
	return blocks
}

// doorSite is the reference application with a worker that has the worker's role and nothing more, as the documents
// describe the set-up.
type doorSite struct {
	workSite

	worker *runningWorker
	// application is the URL of a member of the application's role that may also delete projects and keeps its place in the
	// outbox.
	application string
}

func newDoorSite(t *testing.T, p program) doorSite {
	t.Helper()
	db := pgtest.New(t)
	application, worker, viewer := db.CreateRole(), db.CreateRole(), db.CreateRole()
	pool := pgtest.Must(pgxpool.New(t.Context(), db.URL))(t)
	t.Cleanup(pool.Close)
	s := doorSite{workSite: workSite{program: p, url: db.URL, dir: t.TempDir(), pool: pool}, application: db.AsRole(application)}
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "sexton.yaml"),
		[]byte("databases: {main: {url: \"${DATABASE_URL}\"}}\nghost_users: {enabled: true}\nhttp: {listen: \"\"}\nlog: {format: json}\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "loose_foreign_keys.yml"),
		[]byte("issues:\n  - {table: projects, column: project_id, on_delete: async_delete}\n"), 0o600))
	s.exec(t, sample.Schema())
	s.exec(t, `
		ALTER TABLE issues DROP CONSTRAINT IF EXISTS issues_project_id_fkey;
		INSERT INTO users (id, username, email, name) VALUES (1, 'ada', 'ada@example.com', 'Ada'), (2, 'ben', 'ben@example.com', 'Ben');
		INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'one', 'one'), (2, 1, 'two', 'two');
		INSERT INTO issues (id, project_id, title, author_id) VALUES (1, 1, 'by Ada', 1), (2, 2, 'by Ada', 1), (3, 2, 'by Ben', 2);`)
	p.run(t, s.dir, db.URL, 0, "migrate", "up")
	p.run(t, s.dir, db.URL, 0, "triggers", "install")
	s.exec(t, p.run(t, s.dir, db.URL, 0, "migrate", "up", "--print-grants", "--application", application, "--worker", worker, "--viewer", viewer))
	s.exec(t, "GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+worker)
	s.exec(t, docBlocks(t, "sql.md", "sql")[0])
	s.exec(t, "GRANT SELECT, DELETE ON projects TO "+application+"; GRANT SELECT, UPDATE ON outbox_places TO "+application)
	s.worker = s.started(t, "DATABASE_URL="+db.AsRole(worker))
	return s
}

// answered requires that what a client has asked for is done.
func (s doorSite) answered(t *testing.T) {
	t.Helper()
	s.wait(t, stopLimit, "the work to be done", `NOT EXISTS (SELECT FROM sexton.backlog WHERE pending > 0) AND NOT EXISTS (SELECT FROM users WHERE id = 1)
		AND NOT EXISTS (SELECT FROM issues WHERE project_id = 1)`)
	require.EqualValues(t, 2, s.count(t, "SELECT count(*) FROM issues"))
	s.worker.stop(t)
}

// testDoors does what docs/sql.md says for psql, with the three roles as they are printed.
func testDoors(t *testing.T, p program) {
	t.Helper()
	s := newDoorSite(t, p)
	shell := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", docBlocks(t, "sql.md", "sh")[0])
	shell.Dir, shell.Env = s.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "DATABASE_URL=" + s.application}
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?m)^ +(available|running|completed) +\|`, string(out))
	s.wait(t, stopLimit, "a job that went through", `EXISTS (
		SELECT FROM sexton.river_job AS job, sexton.job_status(job.id) AS status
		WHERE job.kind = 'loose_foreign_keys_cleanup' AND status.state = 'completed' AND status.outcome = 'done' AND status.finalized_at IS NOT NULL
		  AND status.run_id > 0 AND status.last_error IS NULL)`)
	s.wait(t, stopLimit, "the user's event", `EXISTS (SELECT FROM sexton.events WHERE kind = 'user_destroyed' AND txid < pg_snapshot_xmin(pg_current_snapshot()))`)

	client := pgtest.Must(pgxpool.New(t.Context(), s.application))(t)
	t.Cleanup(client.Close)
	outbox := docBlocks(t, "sql.md", "sql")
	require.Len(t, outbox, 2)
	read := strings.NewReplacer(":txid", "(SELECT txid FROM sexton.events ORDER BY txid DESC LIMIT 1)", ":id", "(SELECT max(id) FROM sexton.events)").Replace(outbox[1])
	for _, events := range []int64{1, 0} { // The second time there is nothing new.
		require.Equal(t, events, s.count(t, `SELECT count(*) FROM sexton.events AS event, outbox_places AS place WHERE (event.txid, event.id) > (place.txid, place.id)`))
		pgtest.Exec(t, client, read)
	}
	s.answered(t)
}
