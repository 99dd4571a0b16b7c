package integration

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/s3test"
	"sexton/internal/sample"
	"sexton/triggers"
)

const (
	scheduleDiffs = "schedule_migrate_external_diffs"
	moveDiff      = "migrate_external_diff"
	// allMoved holds where no diff is in the database any more.
	allMoved = "NOT EXISTS (SELECT FROM merge_request_diffs WHERE stored_externally IS NOT TRUE)"
)

// diffStore is where diffs are moved to.
type diffStore struct {
	url string
	// path is the file in which the object is, begun whether an upload of it has begun.
	path  func(key string) string
	begun func(key string) bool
}

func diffsInFolder(t *testing.T) diffStore {
	t.Helper()
	folder := t.TempDir()
	path := func(key string) string { return filepath.Join(folder, filepath.FromSlash(key)) }
	return diffStore{url: "file://" + folder, path: path, begun: func(key string) bool {
		found, _ := filepath.Glob(path(key) + ".*.tmp") // Only a wrong pattern is an error.
		return len(found) > 0
	}}
}

func diffsInBucket(t *testing.T) diffStore {
	t.Helper()
	return diffsIn(t, s3test.New(t, s3test.Options{}))
}

func diffsIn(t *testing.T, gateway *s3test.Gateway) diffStore {
	t.Helper()
	return diffStore{
		url:  gateway.URL("diffs"),
		path: func(key string) string { return gateway.File(t, key) },
		begun: func(key string) bool {
			return slices.ContainsFunc(gateway.Proxy.Seen(), func(request string) bool {
				return strings.HasPrefix(request, "PUT /diffs/"+key+"?") && strings.Contains(request, "partNumber=")
			})
		},
	}
}

// diffGate stops whoever reads the text "gated" for an upload while the gate is closed. Tables in original keep the texts.
const diffGate = `
CREATE SCHEMA original;
CREATE TABLE original.files (diff_id bigint, path text, diff text, PRIMARY KEY (diff_id, path));
CREATE TABLE closed_gate (closed_at timestamptz);
ALTER FUNCTION sexton.external_diff_body(text) RENAME TO external_diff_ungated;
CREATE FUNCTION sexton.external_diff_body(diff text) RETURNS bytea LANGUAGE plpgsql SET lock_timeout = '1min' AS $$
BEGIN
    IF diff = 'gated' AND EXISTS (SELECT FROM public.closed_gate) THEN
        PERFORM pg_advisory_xact_lock(4711);
    END IF;
    RETURN sexton.external_diff_ungated(diff);
END $$;
INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch)
SELECT n, 1, 'title', 'branch', 'main' FROM generate_series(1, 3) AS n;`

// addDiffs inserts the diffs $1 to $2 of merge request 1 + id % 2, three files each, in an order that is not that of the tree.
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

// addBigDiff inserts diff 1000 of merge request 3. Its upload has begun for certain when its last text is read.
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

// diffSite is the reference application with three merge requests, whose diffs go to a store. No tick comes while a test runs.
type diffSite struct {
	workSite

	store diffStore
}

func newDiffSite(t *testing.T, p program, store diffStore) diffSite {
	t.Helper()
	for _, setting := range os.Environ() {
		if strings.HasPrefix(setting, "AWS_") {
			p.environ = append(p.environ, setting)
		}
	}
	return diffSite{p.site(t, pgtest.New(t).URL, onMain(`
loose_foreign_keys: {enabled: false}
external_diffs: {enabled: true, schedule: "0 0 1 1 *", bucket: "`+store.url+`"}
http: {listen: ""}
`, sample.Schema(), diffGate)), store}
}

// sleeps waits until the workers have nothing to do and have noticed.
func (s diffSite) sleeps(t *testing.T) {
	t.Helper()
	k1, k2 := triggers.AwakeKey("sexton", scheduleDiffs)
	s.wait(t, time.Minute, "the worker to sleep", asleep, int64(uint32(k1)), int64(uint32(k2)))
}

// rows are the diffs, their files and what Sexton knows of them, each with the transaction that wrote it last.
func (s diffSite) rows(t *testing.T) []string {
	t.Helper()
	rows, err := s.pool.Query(t.Context(), `
		SELECT diff.xmin || diff::text FROM merge_request_diffs AS diff UNION ALL
		SELECT file.xmin || file::text FROM merge_request_diff_files AS file UNION ALL
		SELECT ledger.xmin || ledger::text FROM sexton.external_diffs AS ledger UNION ALL
		SELECT removal::text FROM sexton.external_diff_removals AS removal ORDER BY 1`)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return lines
}

// readable cuts every text out of its object, as another service would by the layout, and compares it with the original. It
// returns how many diffs there are, and their bytes.
func (s diffSite) readable(t *testing.T) (diffs, size int) {
	t.Helper()
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
			content, err := os.ReadFile(s.store.path(key))
			require.NoError(t, err)
			objects[key] = content
			size += len(content)
		}
		require.LessOrEqual(t, offset+length, len(objects[key]), "end of %s in %s", path, key)
		require.Equal(t, sha256.Sum256([]byte(text)), sha256.Sum256(objects[key][offset:offset+length]), "text of %s in %s", path, key)
		files++
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, s.count(t, "SELECT count(*) FROM merge_request_diff_files WHERE diff IS NULL"), files, "files that are in objects")
	return len(objects), size
}
