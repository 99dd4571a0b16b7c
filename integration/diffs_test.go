package integration

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

// testDiffs moves new diffs while two workers and foreground runs work at the same time
// and one worker is killed in the middle of an upload. Then it deletes a merge request,
// whose objects must be removed. Only the triggers wake the workers.
func testDiffs(t *testing.T, p program, store diffStore) {
	s := newDiffSite(t, p, store)
	first, second := s.startWorker(t), s.startWorker(t)
	for lot := range 5 {
		s.exec(t, addDiffs, lot*8+1, lot*8+8)
		outcome := parseReport(t, s.program.run(t, s.dir, s.url, 0, "job", "run", scheduleDiffs, "--json")).Outcome
		require.Contains(t, []string{"done", "skipped"}, outcome, "outcome of a foreground run while two workers are running")
	}
	s.wait(t, time.Minute, "all diffs to be moved", allMoved)
	s.waitIdle(t)
	s.requireWakeUp(t, addDiffs, 41, 41)
	s.wait(t, time.Minute, "the new diff to be moved by idle workers", allMoved)
	s.waitIdle(t)
	second.stop(t)

	third := s.killInUpload(t, first)
	s.wait(t, time.Minute, "another worker to move the big diff", allMoved)
	s.waitIdle(t)
	require.Zero(t, s.count(t, `SELECT count(*) FROM sexton.runs WHERE kind = $1 AND outcome = 'failed'`, moveDiff),
		"failed moves")
	diffs, _ := s.verifyObjects(t)
	require.Equal(t, 42, diffs)

	s.requireRemovalWithRequest(t)
	s.waitIdle(t)
	third.stop(t)
	s.requireCleanedUp(t)
	s.requireNoChanges(t)
	diffs, size := s.verifyObjects(t)
	require.Equal(t, 22, diffs)
	require.Equal(t, fmt.Sprintf("%[1]d diffs of %[2]d bytes, %[1]d objects: 0 damaged, 0 dangling\n", diffs, size),
		s.program.run(t, s.dir, s.url, 0, "diffs", "verify", "--grace", "0s"))
}

// requireWakeUp runs a statement that must send a wake-up. Without it an idle worker
// would find the work later by polling.
func (s diffSite) requireWakeUp(t *testing.T, sql string, args ...any) {
	listener := connect(t, s.url)
	pgtest.Exec(t, listener, "LISTEN sexton_wake")
	s.exec(t, sql, args...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	woken, err := listener.WaitForNotification(ctx)
	require.NoError(t, err, "wait for the wake-up")
	require.Equal(t, scheduleDiffs, woken.Payload)
}

// killInUpload kills a worker in the middle of the upload of a big diff, and returns
// another worker, which must move the diff. Until then the diff is still in the database.
func (s diffSite) killInUpload(t *testing.T, first *runningWorker) *runningWorker {
	const key = "merge_request_diffs/mr-3/diff-1000"
	pass, _ := s.closeGate(t, "gated")
	s.exec(t, addBigDiff)
	s.wait(t, time.Minute, "the worker to stop in the upload", dbtest.AtGate)
	pgtest.WaitFor(t, "the upload to begin", func(context.Context) (bool, error) { return s.store.uploadBegun(key), nil })
	pass()
	second := s.startWorker(t)
	// The claim of the killed worker on the diff expires immediately instead of after its
	// time limit.
	s.kill(t, first)
	s.exec(t, "UPDATE sexton.external_diffs SET busy_until = clock_timestamp() WHERE diff_id = 1000")
	// The next run of the job would record the end of the killed worker's run, but only
	// minutes later, because several runs of this job may exist at the same time. So the
	// test deletes the open run.
	s.exec(t, "DELETE FROM sexton.runs WHERE kind = $1 AND ended_at IS NULL AND holder LIKE $2", moveDiff,
		fmt.Sprintf("%%:%d:%%", first.cmd.Process.Pid))
	require.NoFileExists(t, s.store.path(key), "an incomplete object must not be visible")
	const texts = "SELECT count(*) FROM merge_request_diff_files WHERE merge_request_diff_id = 1000 AND diff IS NOT NULL"
	require.EqualValues(t, 2, s.count(t, texts), "texts in the database")
	return second
}

// requireRemovalWithRequest deletes a merge request. Its objects must exist until the
// deletion is committed, and must be removed afterwards.
func (s diffSite) requireRemovalWithRequest(t *testing.T) {
	deleter := connect(t, s.url)
	for _, end := range []string{"ROLLBACK", "COMMIT"} {
		pgtest.Exec(t, deleter, "BEGIN; DELETE FROM merge_requests WHERE id = 1")
		s.waitIdle(t)
		for id := 2; id <= 40; id += 2 {
			require.FileExists(t, s.store.path(fmt.Sprintf("merge_request_diffs/mr-1/diff-%d", id)), "before %s", end)
		}
		pgtest.Exec(t, deleter, end)
	}
	for id := 2; id <= 40; id += 2 {
		pgtest.WaitFor(t, fmt.Sprintf("the object of diff %d to be removed", id), func(context.Context) (bool, error) {
			_, err := os.Stat(s.store.path(fmt.Sprintf("merge_request_diffs/mr-1/diff-%d", id)))
			return errors.Is(err, fs.ErrNotExist), nil
		})
	}
	s.wait(t, time.Minute, "the list of removals to be empty", "NOT EXISTS (SELECT FROM sexton.external_diff_removals)")
}

// requireNoChanges runs both jobs again and requires that they change nothing.
func (s diffSite) requireNoChanges(t *testing.T) {
	s.exec(t, "UPDATE sexton.external_diff_cursors SET after_id = 0")
	before := s.rows(t)
	require.Equal(t, "done", parseReport(t, s.program.run(t, s.dir, s.url, 0, "job", "run", scheduleDiffs,
		"--json")).Outcome)
	var again struct {
		Outcome, Reason string
	}
	report := s.program.run(t, s.dir, s.url, 0, "job", "run", moveDiff, "--args", `{"diff_id": 1}`, "--json")
	require.NoError(t, json.Unmarshal([]byte(report), &again))
	require.Equal(t, "done: already_external", again.Outcome+": "+again.Reason)
	require.Equal(t, before, s.rows(t), "another run must not change rows")
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE finalized_at IS NULL"), "jobs left")
}

const (
	scheduleDiffs = "schedule_migrate_external_diffs"
	moveDiff      = "migrate_external_diff"
	// allMoved is true if all diffs are stored externally.
	allMoved = "NOT EXISTS (SELECT FROM merge_request_diffs WHERE stored_externally IS NOT TRUE)"
)

// diffStore is the object store to which diffs are moved.
type diffStore struct {
	url string
	// path returns the path of an object's file. uploadBegun reports whether an upload of
	// the object has begun.
	path        func(key string) string
	uploadBegun func(key string) bool
}

func diffsInFolder(t *testing.T) diffStore {
	folder := t.TempDir()
	path := func(key string) string { return filepath.Join(folder, filepath.FromSlash(key)) }
	return diffStore{url: "file://" + folder, path: path, uploadBegun: func(key string) bool {
		found, _ := filepath.Glob(path(key) + ".*.tmp") // Glob fails only for malformed patterns.
		return len(found) > 0
	}}
}

func diffsInBucket(t *testing.T) diffStore {
	return diffsIn(t, s3test.New(t, s3test.Options{}))
}

func diffsIn(t *testing.T, gateway *s3test.Gateway) diffStore {
	return diffStore{
		url:  gateway.URL("diffs"),
		path: func(key string) string { return gateway.File(t, key) },
		uploadBegun: func(key string) bool {
			return slices.ContainsFunc(gateway.Proxy.Seen(), func(request string) bool {
				return strings.HasPrefix(request, "PUT /diffs/"+key+"?") && strings.Contains(request, "partNumber=")
			})
		},
	}
}

// diffGate stops sessions that read the text "gated" for an upload while the gate is
// closed. The table original.files keeps copies of the texts.
const diffGate = dbtest.Gates + `
CREATE SCHEMA original;
CREATE TABLE original.files (diff_id bigint, path text, diff text, PRIMARY KEY (diff_id, path));
ALTER FUNCTION sexton.external_diff_body(text) RENAME TO external_diff_ungated;
CREATE FUNCTION sexton.external_diff_body(diff text) RETURNS bytea LANGUAGE plpgsql SET lock_timeout = '1min' AS $$
BEGIN
    IF diff = 'gated' THEN
        PERFORM public.stop_at_gate(diff);
    END IF;
    RETURN sexton.external_diff_ungated(diff);
END $$;
INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch)
SELECT n, 1, 'title', 'branch', 'main' FROM generate_series(1, 3) AS n;`

// addDiffs inserts the diffs $1 to $2 of merge request 1 + id % 2. Each diff has three
// files, whose order differs from the order of the tree.
const addDiffs = `
WITH texts AS (
    SELECT id, file, (ARRAY['z', 'b/ä', 'b/a'])[file + 1] AS path,
        (ARRAY['', '-alt' || E'\n' || '+ä' || repeat(md5(id::text), (id % 40)::integer), '+' || id])[file + 1] AS diff
    FROM generate_series($1::bigint, $2) AS id, generate_series(0, 2) AS file
), diffs AS (
    INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count) SELECT id, 1 + id % 2, 1, 3 FROM generate_series($1::bigint, $2) AS id
), files AS (
    INSERT INTO merge_request_diff_files (
        merge_request_diff_id, relative_order, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, "binary", diff
    ) SELECT id, file, false, false, false, false, '0', '0', path, path, false, diff FROM texts
)
INSERT INTO original.files SELECT id, path, diff FROM texts`

// addBigDiff inserts diff 1000 of merge request 3. Its first text is so large that the
// upload has begun before the last text is read.
const addBigDiff = `
WITH texts AS (
    SELECT file, 'part-' || file AS path, CASE file WHEN 0 THEN repeat('0123456789abcdef', 720000) ELSE 'gated' END AS diff FROM generate_series(0, 1) AS file
),
diffs AS (INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count) VALUES (1000, 3, 1, 2)), files AS (
    INSERT INTO merge_request_diff_files (
        merge_request_diff_id, relative_order, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, "binary", diff
    ) SELECT 1000, file, false, false, false, false, '0', '0', path, path, false, diff FROM texts
)
INSERT INTO original.files SELECT 1000, path, diff FROM texts`

// diffSite is a site of the reference application with three merge requests and a store
// for their diffs. Its schedule has no tick while a test runs.
type diffSite struct {
	workSite

	store diffStore
}

func newDiffSite(t *testing.T, p program, store diffStore) diffSite {
	for _, setting := range os.Environ() {
		if strings.HasPrefix(setting, "AWS_") {
			p.environ = append(p.environ, setting)
		}
	}
	site := p.site(t, pgtest.New(t).URL, mainSetup(`
loose_foreign_keys: {enabled: false}
external_diffs: {enabled: true, schedule: "0 0 1 1 *", bucket: "`+store.url+`"}
http: {listen: ""}
`, exampleapp.Schema(), diffGate))
	site.kind = scheduleDiffs
	return diffSite{site, store}
}

// rows returns the diffs, their files and Sexton's rows about them, each with the
// transaction that last changed it.
func (s diffSite) rows(t *testing.T) []string {
	rows, err := s.pool.Query(t.Context(), `
		SELECT diff.xmin || diff::text FROM merge_request_diffs AS diff UNION ALL
		SELECT file.xmin || file::text FROM merge_request_diff_files AS file UNION ALL
		SELECT ledger.xmin || ledger::text FROM sexton.external_diffs AS ledger UNION ALL
		SELECT removal::text FROM sexton.external_diff_removals AS removal ORDER BY 1`)
	require.NoError(t, err)
	return pgtest.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
}

// verifyObjects reads every text from its object by the layout that Sexton returns, like
// another service, and compares it with the original. It returns the number of diffs and
// of their bytes.
func (s diffSite) verifyObjects(t *testing.T) (diffs, size int) {
	rows, err := s.pool.Query(t.Context(), `
		SELECT layout.object_key, layout.offset_bytes, layout.size_bytes, layout.path, original.diff
		FROM merge_request_diffs AS diff
		CROSS JOIN LATERAL sexton.external_diff_layout(diff.id) AS layout
		JOIN original.files AS original ON original.diff_id = diff.id AND original.path = layout.path`)
	require.NoError(t, err)
	objects := map[string][]byte{}
	var key, path, text string
	var offset, length, files int
	_, err = pgx.ForEachRow(rows, []any{&key, &offset, &length, &path, &text}, func() error {
		if objects[key] == nil {
			content := pgtest.Must(os.ReadFile(s.store.path(key)))(t)
			objects[key] = content
			size += len(content)
		}
		require.LessOrEqual(t, offset+length, len(objects[key]), "end of %s in %s", path, key)
		require.Equal(t, sha256.Sum256([]byte(text)), sha256.Sum256(objects[key][offset:offset+length]),
			"text of %s in %s", path, key)
		files++
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, s.count(t, "SELECT count(*) FROM merge_request_diff_files WHERE diff IS NULL"), files,
		"files that are in objects")
	return len(objects), size
}
