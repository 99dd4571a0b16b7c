package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// Check reads every diff that was taken down back from its object, by nothing but the rows, and compares it with what was in
// the database; then it looks for objects that no row refers to. A diff may have gone with its merge request.
func (d *diffs) Check(ctx context.Context) ([]Finding, error) {
	var gone, lost, inside, skipped int64
	const count = `
		SELECT count(*) FILTER (WHERE diff.id IS NULL AND request.id IS NULL), count(*) FILTER (WHERE diff.id IS NULL AND request.id IS NOT NULL),
			count(*) FILTER (WHERE diff.stored_externally IS NOT TRUE AND diff.id IS NOT NULL AND known.skip_reason IS NULL),
			count(known.skip_reason)
		FROM (SELECT DISTINCT taken.diff_id, taken.merge_request_id FROM demo.diffs AS taken) AS taken
		LEFT JOIN "public".merge_requests AS request ON request.id = taken.merge_request_id
		LEFT JOIN "public".merge_request_diffs AS diff ON diff.id = taken.diff_id
		LEFT JOIN "sexton".external_diffs AS known ON known.diff_id = taken.diff_id`
	if err := d.pool.QueryRow(ctx, d.names.Render(count)).Scan(&gone, &lost, &inside, &skipped); err != nil {
		return nil, fmt.Errorf("count diffs: %w", err)
	}
	objects, files, differ, err := d.readBack(ctx)
	if err != nil {
		return nil, fmt.Errorf("read diffs back: %w", err)
	}
	dangling, err := d.dangling(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for dangling objects: %w", err)
	}
	return []Finding{
		{Name: "moved", Text: "diffs were moved and read back", Count: objects},
		{Name: "files", Text: "files in them", Count: files},
		{Name: "differ", Text: "of these are not what they were", Count: differ, Fault: true},
		{Name: "gone", Text: "diffs have gone with their merge requests", Count: gone},
		{Name: "lost", Text: "diffs are lost", Count: lost, Fault: true},
		{Name: "in_database", Text: "diffs are in the database still", Count: inside, Fault: true},
		{Name: "skipped", Text: "diffs cannot be moved", Count: skipped},
		{Name: "dangling", Text: "objects belong to no diff", Count: dangling, Fault: true},
	}, nil
}

// object is where the object of a diff is, by the columns of its row.
func (d *diffs) object(request int64, name string) string {
	return filepath.Join(d.objects, "merge_request_diffs", fmt.Sprintf("mr-%d", request), name)
}

// readBack counts the diffs that are in the folder, their files, and those of them that are not what they were: one
// without a row counts as well.
func (d *diffs) readBack(ctx context.Context) (objects, files, differ int64, err error) {
	const moved = `
		SELECT diff.id, diff.merge_request_id, diff.external_diff, file.external_diff_offset, file.external_diff_size, taken.sha256
		FROM demo.diffs AS taken
		JOIN "public".merge_request_diffs AS diff ON diff.id = taken.diff_id AND diff.stored_externally
		LEFT JOIN "public".merge_request_diff_files AS file
			ON file.merge_request_diff_id = diff.id AND coalesce(file.new_path, file.old_path) = taken.path AND file.diff IS NULL
		ORDER BY diff.id`
	rows, _ := d.pool.Query(ctx, d.names.Render(moved))
	var id, request, last int64
	var name string
	var offset, size *int
	var want, body []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &request, &name, &offset, &size, &want}, func() (err error) {
		if id != last {
			objects, last = objects+1, id
			if body, err = os.ReadFile(d.object(request, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		files++
		if offset == nil || size == nil || *offset < 0 || *size < 0 || *offset+*size > len(body) {
			differ++
			return nil
		}
		if got := sha256.Sum256(body[*offset : *offset+*size]); !bytes.Equal(got[:], want) {
			differ++
		}
		return nil
	})
	return objects, files, differ, err
}

// dangling counts the files in the folder that are no diff's object. The marker says whose they are.
func (d *diffs) dangling(ctx context.Context) (count int64, err error) {
	rows, _ := d.pool.Query(ctx, d.names.Render(
		`SELECT diff.merge_request_id, diff.external_diff FROM "public".merge_request_diffs AS diff WHERE diff.stored_externally`))
	used := map[string]bool{filepath.Join(d.objects, "merge_request_diffs", ".sexton.json"): true}
	var request int64
	var name string
	if _, err := pgx.ForEachRow(rows, []any{&request, &name}, func() error {
		used[d.object(request, name)] = true
		return nil
	}); err != nil {
		return 0, err
	}
	err = filepath.WalkDir(d.objects, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !used[path] {
			count++
		}
		return err
	})
	return count, err
}
