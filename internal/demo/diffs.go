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
	"slices"
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
	span
}

// Script tells of diffs in the database, and of objects that are to go. Diffs that cannot be moved do not wait.
func (*diffs) Script() Script {
	return Script{
		Kind: migrateDiffKind, With: []string{scheduleDiffsKind}, Title: "external diffs",
		Acted: "diffs added", Unit: "diffs", Finished: "files moved", Until: "from commit to moved",
		Pace:        Pace{Share: 5, Length: 20 * time.Second, Slowest: 3},
		EndlessPace: Pace{Share: 100, Length: 10 * time.Minute, Slowest: 0.2},
		Waiting:     query("waiting_diffs"),
		Processed:   "files", Numbers: []string{"bytes", "inserted", "objects_removed"},
	}
}

// Plan counts the merge requests, and takes down what is in the database still: the worker may have begun.
func (d *diffs) Plan(ctx context.Context) (int64, error) {
	if err := d.record(ctx, "record_diffs"); err != nil {
		return 0, err
	}
	var requests int64
	err := d.row(ctx, "count_merge_requests", []any{&requests, &d.first, &d.last})
	return d.of(d.Script(), requests), err
}

// Act adds diffs to merge requests that stand together.
func (d *diffs) Act(ctx context.Context, limit int) (acted []Item, more bool, err error) {
	added, err := d.anywhere(func(from int64) ([]int64, error) { return d.ids(ctx, "add_diffs", from, limit) })
	return items("diffs", added), len(added) > 0, err
}

// Check reads every diff that was taken down back from its object, by nothing but the rows, and compares it with what was in
// the database; then it looks for objects that no row refers to. A diff may have gone with its merge request.
func (d *diffs) Check(ctx context.Context) ([]Finding, error) {
	became, err := d.findings(ctx, "count_diffs")
	if err != nil {
		return nil, err
	}
	objects, files, differ, err := d.readBack(ctx)
	if err != nil {
		return nil, fmt.Errorf("read diffs back: %w", err)
	}
	dangling, err := d.dangling(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for dangling objects: %w", err)
	}
	return slices.Concat([]Finding{
		{Name: "moved", Text: "diffs were moved and read back", Count: objects},
		{Name: "files", Text: "files in them", Count: files},
		{Name: "differ", Text: "of these are not what they were", Count: differ, Fault: true},
	}, became, []Finding{{Name: "dangling", Text: "objects belong to no diff", Count: dangling, Fault: true}}), nil
}

// object is where the object of a diff is, by the columns of its row.
func (d *diffs) object(request int64, name string) string {
	return filepath.Join(d.objects, "merge_request_diffs", fmt.Sprintf("mr-%d", request), name)
}

// readBack counts the diffs that are in the folder, their files, and those of them that are not what they were: one
// without a row counts as well.
func (d *diffs) readBack(ctx context.Context) (objects, files, differ int64, err error) {
	rows, _ := d.pool.Query(ctx, d.names.Render(query("moved_diffs")))
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
	rows, _ := d.pool.Query(ctx, d.names.Render(query("stored_diffs")))
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
