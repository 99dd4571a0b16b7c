package sqlfiles_test

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	sqlfiles "sexton/sql"
)

// No statement uses NOWAIT. Since Postgres 18, log_lock_failures writes a line for each
// failed NOWAIT, but none for SKIP LOCKED and lock_timeout.
func TestNoStatementUsesNowait(t *testing.T) {
	t.Parallel()
	var files int
	for _, root := range []string{".", "../internal", "../river_jobs", "../triggers"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !slices.Contains([]string{".go", ".sql"}, filepath.Ext(path)) ||
				strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			text, err := os.ReadFile(path)
			require.NotRegexp(t, `(?i)\bNOWAIT\b`, string(text), path)
			return err
		}))
	}
	require.Greater(t, files, 500, "number of checked files")
}

func TestMigrationsCountFromOne(t *testing.T) {
	t.Parallel()
	folders, err := fs.ReadDir(sqlfiles.Migrations, "migrations")
	require.NoError(t, err)
	for _, folder := range folders {
		ups, err := fs.Glob(sqlfiles.Migrations, path.Join("migrations", folder.Name(), "*.up.sql"))
		require.NoError(t, err)
		require.NotEmpty(t, ups, folder.Name())
		for i, up := range ups {
			require.Regexp(t, fmt.Sprintf(`^%05d_[a-z0-9_]+\.up\.sql$`, i+1), path.Base(up))
		}
		files, err := fs.ReadDir(sqlfiles.Migrations, path.Join("migrations", folder.Name()))
		require.NoError(t, err)
		require.Len(t, files, len(ups), "%s has no other files", folder.Name())

		_, err = fs.Stat(sqlfiles.Grants, path.Join("grants", folder.Name()+".sql"))
		require.NoError(t, err, "every component has grants")
	}
}

// Each migration can be run again. Its tables in the schema sexton have Sexton's comment,
// by which a later installation recognizes them.
func TestMigrationsCanBeRunAgain(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(sqlfiles.Migrations, "migrations/*/*.up.sql")
	require.NoError(t, err)
	for _, file := range files {
		data, err := fs.ReadFile(sqlfiles.Migrations, file)
		require.NoError(t, err)
		require.NotRegexp(t, `CREATE (TABLE|INDEX|UNIQUE INDEX|SEQUENCE) [^I]`, string(data), file)
		require.NotRegexp(t, `ADD COLUMN [^I]`, string(data), file)
		for _, table := range regexp.MustCompile(`CREATE TABLE IF NOT EXISTS (\S+)`).FindAllStringSubmatch(string(data),
			-1) {
			require.Regexp(t, `COMMENT ON TABLE `+regexp.QuoteMeta(table[1])+` IS\s+'Sexton: `, string(data), file)
		}
	}
}

// Queries qualify all tables, because an unqualified name would depend on the
// search_path.
func TestEveryNameIsQualified(t *testing.T) {
	t.Parallel()
	statement := regexp.MustCompile(`(?im)^\s*(?:CREATE TABLE(?: IF NOT EXISTS)?|CREATE(?: OR REPLACE)? FUNCTION|DROP (?:TABLE|FUNCTION) IF EXISTS|INSERT INTO|DELETE FROM|COMMENT ON (?:TABLE|FUNCTION)) (\S+)`)
	for root, files := range map[string]embed.FS{"migrations": sqlfiles.Migrations, "functions": sqlfiles.Functions} {
		require.NoError(t, fs.WalkDir(files, root, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fs.ReadFile(files, file)
			if err != nil {
				return err
			}
			for _, match := range statement.FindAllStringSubmatch(string(text), -1) {
				require.Regexp(t, `^"(sexton|public)"\.`, match[1], file)
			}
			return nil
		}))
	}
}

// Every file of a function can be run again, and has one function with the name of the
// file.
func TestFunctionsCanBeInstalledAgain(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(sqlfiles.Functions, "functions/*/*.sql")
	require.NoError(t, err)
	require.Greater(t, len(files), 30)
	for _, file := range files {
		data, err := fs.ReadFile(sqlfiles.Functions, file)
		require.NoError(t, err)
		text, name := string(data), strings.TrimSuffix(path.Base(file), ".sql")
		if name == "may_remove_group" { // The application may replace this function, so it is created only once.
			continue
		}
		require.Contains(t, text, `CREATE OR REPLACE FUNCTION "sexton".`+name+"(", file)
		require.Regexp(t, `COMMENT ON FUNCTION "sexton"\.`+name+`\([a-z\[\], "{}]*\) IS`, text, file)
		require.Equal(t, 1, strings.Count(text, "\nCREATE OR REPLACE FUNCTION"), file)
		require.NotContains(t, text, "timestamptz) IS", "%s: write timestamp with time zone", file)
	}
}
