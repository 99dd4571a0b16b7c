package sqlfiles_test

import (
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
	require.NoError(t, fs.WalkDir(sqlfiles.Migrations, "migrations", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(sqlfiles.Migrations, file)
		if err != nil {
			return err
		}
		for _, match := range statement.FindAllStringSubmatch(string(text), -1) {
			require.Regexp(t, `^"(sexton|public)"\.`, match[1], file)
		}
		return nil
	}))
}
