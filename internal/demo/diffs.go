package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	migrateDiffKind   = "migrate_external_diff"
	scheduleDiffsKind = "schedule_migrate_external_diffs"
)

// diffs adds versions to merge requests. Their texts leave the database for the demo's folder of objects, and so do those
// of the sample data; objects of diffs that other scenes delete with their merge requests go.
type diffs struct {
	stage

	// share of the merge requests gets a new version, in percent.
	share       int64
	first, last int64
}

func newDiffs(on stage) *diffs {
	d := &diffs{stage: on}
	d.share = d.Script().pace(on.endless).Share
	return d
}

// Script tells of diffs in the database, and of objects that are to go. Diffs that cannot be moved do not wait.
func (*diffs) Script() Script {
	return Script{
		Kind: migrateDiffKind, With: []string{scheduleDiffsKind}, Title: "external diffs",
		Acted: "diffs added", Unit: "diffs", Finished: "files moved", Until: "from commit to moved",
		Pace:        Pace{Share: 5, Length: 20 * time.Second, Slowest: 3},
		EndlessPace: Pace{Share: 100, Length: 10 * time.Minute, Slowest: 0.2},
		Waiting: `SELECT 'diffs', diff.id, greatest(diff.created_at AT TIME ZONE 'UTC', pg_postmaster_start_time())
			FROM "public".merge_request_diffs AS diff
			WHERE diff.files_count > 0 AND (NOT diff.stored_externally OR diff.stored_externally IS NULL)
			AND NOT EXISTS (SELECT FROM "sexton".external_diffs AS known WHERE known.diff_id = diff.id AND known.skip_reason IS NOT NULL)
			UNION ALL
			SELECT 'objects', removal.diff_id, removal.queued_at FROM "sexton".external_diff_removals AS removal`,
		Processed: "files", Numbers: []string{"bytes", "inserted", "objects_removed"},
	}
}

// diffsTable holds what the files of a diff had in them when they were in the database.
const diffsTable = `
CREATE SCHEMA IF NOT EXISTS demo;
DROP TABLE IF EXISTS demo.diffs;
CREATE UNLOGGED TABLE demo.diffs AS
SELECT diff.id AS diff_id, diff.merge_request_id, coalesce(file.new_path, file.old_path) AS path, sha256(convert_to(file.diff, 'UTF8')) AS sha256
FROM "public".merge_request_diffs AS diff
JOIN "public".merge_request_diff_files AS file ON file.merge_request_diff_id = diff.id
WHERE diff.stored_externally IS NOT TRUE`

// Plan counts the merge requests, and takes down what is in the database still: the worker may have begun.
func (d *diffs) Plan(ctx context.Context) (int64, error) {
	if _, err := d.pool.Exec(ctx, d.names.Render(diffsTable)); err != nil {
		return 0, fmt.Errorf("take down the diffs: %w", err)
	}
	var requests int64
	const count = `SELECT count(*), coalesce(min(request.id), 0), coalesce(max(request.id), 0) FROM "public".merge_requests AS request`
	if err := d.pool.QueryRow(ctx, d.names.Render(count)).Scan(&requests, &d.first, &d.last); err != nil {
		return 0, fmt.Errorf("count merge requests: %w", err)
	}
	return (requests*d.share + 99) / 100, nil
}

// addDiffs adds a version of three files to each of $2 merge requests from $1 on, and takes down what is in them: an edit, one
// with letters of more than a byte, and an empty one.
const addDiffs = `
WITH picked AS (
	SELECT request.id, request.target_project_id FROM "public".merge_requests AS request
	WHERE request.id >= $1 ORDER BY request.id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
),
added AS (
	INSERT INTO "public".merge_request_diffs (merge_request_id, project_id, state, files_count, commits_count, real_size)
	SELECT picked.id, picked.target_project_id, 'collected', 3, 1, '3' FROM picked
	RETURNING id, merge_request_id, project_id
),
files AS (
	INSERT INTO "public".merge_request_diff_files (
		merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, diff
	)
	SELECT added.id, file.place, added.project_id, false, false, false, false, '100644', '100644', file.path, file.path,
		CASE WHEN file.line <> '' THEN E'@@ -1,1 +1,200 @@\n' || repeat('+' || file.line || md5(random()::text || added.id) || E'\n', 200) ELSE '' END
	FROM added
	CROSS JOIN (VALUES (0, 'go.mod', 'module '), (1, 'doc/über.md', 'Größe '), (2, 'app/empty.txt', '')) AS file (place, path, line)
	RETURNING merge_request_diff_id, new_path, diff
),
recorded AS (
	INSERT INTO demo.diffs (diff_id, merge_request_id, path, sha256)
	SELECT added.id, added.merge_request_id, files.new_path, sha256(convert_to(files.diff, 'UTF8'))
	FROM added JOIN files ON files.merge_request_diff_id = added.id
),
latest AS (
	UPDATE "public".merge_requests AS request SET latest_merge_request_diff_id = added.id FROM added WHERE request.id = added.merge_request_id
)
SELECT added.id FROM added`

// Act adds diffs to merge requests that stand together.
func (d *diffs) Act(ctx context.Context, limit int) (acted []Item, more bool, err error) {
	added, err := d.add(ctx, d.first+rand.Int64N(d.last-d.first+1), limit)
	if err == nil && len(added) == 0 {
		added, err = d.add(ctx, d.first, limit)
	}
	if err != nil {
		return nil, false, fmt.Errorf("add diffs: %w", err)
	}
	for _, id := range added {
		acted = append(acted, Item{"diffs", id})
	}
	return acted, len(added) > 0, nil
}

func (d *diffs) add(ctx context.Context, from int64, limit int) ([]int64, error) {
	rows, _ := d.pool.Query(ctx, d.names.Render(addDiffs), from, limit)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
