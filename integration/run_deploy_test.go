package integration

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// testRunDeploy has two copies work with different files, as in a rolling deploy, and then the one that has not read the installed
// files alone, until they come to it the way of a ConfigMap.
func testRunDeploy(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	s.exec(t, `CREATE TABLE notes (id bigint PRIMARY KEY, parent_id bigint);
		CREATE INDEX ON notes (parent_id);
		INSERT INTO parents SELECT generate_series(11, 60);
		INSERT INTO notes SELECT id, id FROM parents`)
	const gone = `NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records) AND NOT EXISTS (
		SELECT FROM notes WHERE NOT EXISTS (SELECT FROM parents WHERE parents.id = notes.parent_id)) AND ` + noWork

	// A ConfigMap's file is a link into a folder that is a link itself, which another one takes the place of.
	mounted := filepath.Join(t.TempDir(), "mounted")
	publish := func(version, content string) {
		require.NoError(t, os.MkdirAll(filepath.Join(mounted, version), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(mounted, version, "definitions.yml"), []byte(content), 0o600))
		require.NoError(t, os.Symlink(version, filepath.Join(mounted, "..next")))
		require.NoError(t, os.Rename(filepath.Join(mounted, "..next"), filepath.Join(mounted, "..data")))
	}
	publish("..1", gatedDefinitions)
	file := filepath.Join(mounted, "definitions.yml")
	require.NoError(t, os.Symlink(filepath.Join("..data", "definitions.yml"), file))
	earlier := s.started(t, "SEXTON_LOOSE_FOREIGN_KEYS__DEFINITIONS="+file)

	const both = gatedDefinitions + "notes: [{table: parents, column: parent_id, on_delete: async_delete}]\n"
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "loose_foreign_keys.yml"), []byte(both), 0o600))
	later := s.started(t)
	require.Contains(t, p.run(t, s.dir, s.url, 0, "triggers", "install"), "not recorded for notes: sexton audit")
	s.exec(t, "DELETE FROM parents WHERE id BETWEEN 11 AND 50")
	s.wait(t, stopLimit, "the children of both definitions to go", gone)
	earlier.logged(t, "other definitions are installed: the job waits")

	later.stop(t)
	s.exec(t, "DELETE FROM parents WHERE id > 50 OR id <= 5")
	pgtest.WaitFor(t, "status to say so", func(context.Context) (bool, error) {
		return s.count(t, "SELECT count(*) FROM sexton.clients") == 1, nil
	})
	require.Contains(t, p.run(t, s.dir, s.url, 0, "status"), "the installed definitions: 1 of 1 worker read others")
	require.EqualValues(t, 15, s.count(t, "SELECT count(*) FROM loose_foreign_keys_deleted_records"), "tombstones wait for the worker's new files")
	publish("..2", both)
	s.wait(t, stopLimit, "the worker to read the files and go on", gone)
	require.NotContains(t, earlier.log.String(), "configuration is not reloaded")
	earlier.stop(t)
}
