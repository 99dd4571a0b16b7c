package sqlfiles_test

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	sqlfiles "sexton/sql"
)

func TestMigrationsCountFromOneAndHaveAWayBack(t *testing.T) {
	t.Parallel()
	folders, err := fs.ReadDir(sqlfiles.Migrations, "migrations")
	require.NoError(t, err)
	for _, folder := range folders {
		if !folder.IsDir() {
			require.Equal(t, "registry.sql", folder.Name())
			continue
		}
		ups, err := fs.Glob(sqlfiles.Migrations, path.Join("migrations", folder.Name(), "*.up.sql"))
		require.NoError(t, err)
		require.NotEmpty(t, ups, folder.Name())
		for i, up := range ups {
			require.Regexp(t, fmt.Sprintf(`^%05d_[a-z0-9_]+\.up\.sql$`, i+1), path.Base(up))
			down := strings.TrimSuffix(up, ".up.sql") + ".down.sql"
			_, err := fs.Stat(sqlfiles.Migrations, down)
			require.NoError(t, err)
		}
		files, err := fs.ReadDir(sqlfiles.Migrations, path.Join("migrations", folder.Name()))
		require.NoError(t, err)
		require.Len(t, files, 2*len(ups), "%s holds nothing else", folder.Name())

		_, err = fs.Stat(sqlfiles.Grants, path.Join("grants", folder.Name()+".sql"))
		require.NoError(t, err, "every component says who may use it")
	}
}

// A name without its qualifier would land wherever the search path points.
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

// Every file can be run again, names its function as the registry does, and keeps it from PUBLIC.
func TestFunctionsAreInstalledAnew(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(sqlfiles.Functions, "functions/*/*.sql")
	require.NoError(t, err)
	require.Greater(t, len(files), 30)
	for _, file := range files {
		data, err := fs.ReadFile(sqlfiles.Functions, file)
		require.NoError(t, err)
		text, name := string(data), strings.TrimSuffix(path.Base(file), ".sql")
		if name == "may_remove_group" { // The application's, installed once.
			continue
		}
		require.Contains(t, text, `CREATE OR REPLACE FUNCTION "sexton".`+name+"(", file)
		require.Contains(t, text, `REVOKE ALL ON FUNCTION "sexton".`+name+"(", file)
		require.Regexp(t, `COMMENT ON FUNCTION "sexton"\.`+name+`\([a-z, ]*\) IS`, text, file)
		require.Equal(t, 1, strings.Count(text, "\nCREATE OR REPLACE FUNCTION"), file)
		require.NotContains(t, text, "timestamptz) IS", "%s: the registry writes timestamp with time zone", file)
	}
}
