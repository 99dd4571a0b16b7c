package sqlfiles_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// static is how many whole statements may still stand in Go strings. It only goes down: a statement that does not depend on the user's
// tables belongs into a file in sql/queries, typed by sqlc, or into a package's own folder queries.
const static = 62

// slack is how far the number may be behind, so that two changes that move statements at the same time do not meet in it.
const slack = 30

var (
	isStatement = regexp.MustCompile(`(?s)^\s*(--[^\n]*\n\s*)*(SELECT\s.*\sFROM|INSERT INTO|UPDATE\s.*\sSET|DELETE FROM|WITH\s.*\sAS)\s`)
	isTemplate  = regexp.MustCompile(`%\[?\d*\]?[a-z]|\{`)
)

// statements are the literals of a file that are a whole statement: nothing is put into it or added to it.
func statements(file *ast.File) (found []*ast.BasicLit) {
	parts := map[ast.Node]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		if sum, ok := node.(*ast.BinaryExpr); ok {
			parts[sum.X], parts[sum.Y] = true, true
		}
		literal, ok := node.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING || parts[node] {
			return true
		}
		if text := literal.Value[1:len(literal.Value)-1] + " "; isStatement.MatchString(text) && !isTemplate.MatchString(text) {
			found = append(found, literal)
		}
		return true
	})
	return found
}

func TestStaticStatementsLeaveGo(t *testing.T) {
	t.Parallel()
	counts, sum := map[string]int{}, 0
	for _, root := range []string{"../internal", "../river_jobs", "../triggers"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || private.MatchString(path) || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			n := len(statements(file))
			counts[filepath.ToSlash(filepath.Dir(path))] += n
			sum += n
			return nil
		}))
	}
	var lines []string
	for _, dir := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) }) {
		if counts[dir] > 0 {
			lines = append(lines, fmt.Sprintf("%3d %s", counts[dir], strings.TrimPrefix(dir, "../")))
		}
	}
	require.LessOrEqual(t, sum, static, "a new static statement stands in a Go string: write it in a .sql file of sql/queries\n%s", strings.Join(lines, "\n"))
	require.LessOrEqual(t, static-sum, slack, "set static in sql/static_test.go to %d", sum)
}

func TestStaticStatementsAreFound(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "planted.go", `package x

const a = "SELECT id FROM t WHERE id = $1"
var b = run(`+"`\n-- A comment.\nUPDATE t\nSET a = 1`"+`)
var part = "SELECT a FROM " + table
var formatted = "DELETE FROM %s"
var filled = "SELECT a FROM t{condition}"
var words = []string{"select a table from the list", "WITH care", "SELECT"}
`, 0)
	require.NoError(t, err)
	require.Len(t, statements(file), 2)
}
