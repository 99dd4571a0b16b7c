package extdiff_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
	"sexton/internal/dbtest"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

func TestMain(m *testing.M) {
	s3test.Prepare()
	// Each check moves and restores one diff in each kind of store. A flag on the command
	// line overrides the number of checks.
	checks := "10"
	if pgtest.Long {
		checks = "40"
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		os.Exit(1)
	}
	pgtest.Main(m)
}

// bundle is a database with the merge request 7, and an engine that moves its diffs.
type bundle struct {
	*dbtest.DB

	engine  *extdiff.Engine
	address string
}

// file is one file of a diff. A nil text is NULL.
type file struct {
	path   string
	text   *string
	binary bool
}

const onePart = "@@ -1 +1 @@\n-old\n+new\n"

// inFolder returns a bundle with a folder as its store.
func inFolder(t *testing.T) *bundle {
	return onStore(t, "file://"+t.TempDir())
}

func onStore(t *testing.T, address string) *bundle {
	return onDatabase(t, dbtest.Reference(t), address)
}

func onDatabase(t *testing.T, db *dbtest.DB, address string) *bundle {
	b := &bundle{DB: db, address: address}
	b.Exec(`
		INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
		INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (7, 1, 'title', 'branch', 'main');
		INSERT INTO merge_request_metrics (merge_request_id) VALUES (7)`)
	b.engine = b.newEngine(t, "tester")
	return b
}

// onBoth runs a test with each kind of store.
func onBoth(t *testing.T, test func(t *testing.T, b *bundle)) {
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		test(t, inFolder(t))
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		test(t, onStore(t, s3test.New(t, s3test.Options{}).URL("diffs")))
	})
}

func (b *bundle) newEngine(t *testing.T, holder string) *extdiff.Engine {
	return b.engineOn(t, b.address, holder)
}

func (b *bundle) engineOn(t *testing.T, address, holder string) *extdiff.Engine {
	store := pgtest.Must(blobstore.Open(t.Context(), address, blobstore.Options{Attempts: 2}))(t)
	return &extdiff.Engine{DB: b.Connected, Store: store, Rule: extdiff.Always, Holder: holder}
}

// add inserts a diff of the merge request with its files in the given order.
func (b *bundle) add(id int64, files ...file) {
	b.Exec(`INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count, state) VALUES ($1, 7, 1, $2, 'collected')`, id, len(files))
	for i, f := range files {
		b.Exec(`
			INSERT INTO merge_request_diff_files (
				merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, "binary", diff
			) VALUES ($1, $2, 1, false, false, false, false, '100644', '100644', $3, $3, $4, $5)`, id, i, f.path, f.binary, f.text)
	}
}

// addMoved adds a diff and moves it.
func (b *bundle) addMoved(t *testing.T, id int64, files ...file) {
	b.add(id, files...)
	b.move(t, id)
}

func (b *bundle) move(t *testing.T, id int64) extdiff.Moved {
	return pgtest.Must(b.engine.Move(t.Context(), id))(t)
}

func (b *bundle) reader() extdiff.Reader {
	return extdiff.Reader{
		DB: b.Connected, Limits: b.engine.Limits,
		Open: func(context.Context) (*blobstore.Store, error) { return b.engine.Store, nil },
	}
}

// put writes objects whose content is their own key.
func (b *bundle) put(t *testing.T, keys ...string) {
	for _, key := range keys {
		pgtest.Must(b.engine.Store.Put(t.Context(), key, "", func(w io.Writer) error {
			_, err := io.WriteString(w, key)
			return err
		}))(t)
	}
}

// texts returns the decoded texts of a diff by path. It reads them from the database or
// from the store.
func (b *bundle) texts(t *testing.T, id int64) map[string]string {
	texts := map[string]string{}
	err := b.reader().Read(t.Context(), id, func(r *extdiff.Reading) error {
		for _, f := range r.Files {
			var out bytes.Buffer
			if err := r.WriteText(t.Context(), f, &out); err != nil {
				return err
			}
			texts[f.NewPath] = out.String()
		}
		return nil
	})
	require.NoError(t, err)
	return texts
}

func (b *bundle) object(t *testing.T, key string) string {
	reader := pgtest.Must(b.engine.Store.Range(t.Context(), key, 0, -1))(t)
	defer reader.Close()
	var content bytes.Buffer
	pgtest.Must(content.ReadFrom(reader))(t)
	return content.String()
}

// keys returns the keys of all objects in the store.
func (b *bundle) keys(t *testing.T) []string {
	keys := []string{}
	for info, err := range b.engine.Store.List(t.Context(), "") {
		require.NoError(t, err)
		keys = append(keys, info.Key)
	}
	return keys
}

func (b *bundle) stored(id int64) [][]string {
	return b.Rows(`SELECT stored_externally, external_diff, external_diff_store FROM merge_request_diffs WHERE id = $1`,
		id)
}

func (b *bundle) files(id int64) [][]string {
	return b.Rows(`
		SELECT relative_order, old_path, new_path, "binary", external_diff_offset, external_diff_size, diff
		FROM merge_request_diff_files WHERE merge_request_diff_id = $1 ORDER BY relative_order`, id)
}

// findings returns the findings of Verify.
func (b *bundle) findings(t *testing.T, grace time.Duration) []extdiff.Finding {
	findings := []extdiff.Finding{}
	pgtest.Must(b.engine.Verify(t.Context(), grace, func(f extdiff.Finding) { findings = append(findings, f) }))(t)
	return findings
}

func encoded(s string) *string { return new(base64.StdEncoding.EncodeToString([]byte(s))) }

// overwrite replaces the content of an object in its folder.
func (b *bundle) overwrite(t *testing.T, key, content string) {
	require.NoError(t, os.WriteFile(strings.TrimPrefix(b.address, "file://")+"/"+key, []byte(content), 0o600))
}

func (b *bundle) waitFor(t *testing.T, what, condition string, args ...any) {
	pgtest.Await(t, b.Pool(), what, "SELECT "+condition, args...)
}
