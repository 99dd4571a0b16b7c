package riverjobs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/metrics"
	"sexton/internal/pgtest"
)

func TestReferenceHasEachMetricOfOneKind(t *testing.T) {
	t.Parallel()
	text := readReference(t)
	_, jobs := everyJob(t)
	var told []string
	for _, job := range jobs {
		_, rest, _ := strings.Cut(string(text.section(t, job.Kind)), "\nMetrics: ")
		paragraph, _, _ := strings.Cut(rest, "\n\n")
		told = append(told, coded(paragraph)...)
	}
	common := coded(string(text.section(t, "What all kinds have in common")))
	for _, metric := range metrics.Table() {
		if metric.Type == metrics.Gauge {
			continue // They show the state of a database, whichever kind has made it so.
		}
		prefix := func(name string) bool { return strings.HasSuffix(name, "_") && strings.HasPrefix(metric.Name, name) }
		require.True(t, slices.Contains(told, metric.Name) || slices.ContainsFunc(told, prefix) || slices.Contains(common, metric.Name),
			"docs/jobs.md does not name %s", metric.Name)
	}
	for _, name := range told {
		require.True(t, slices.ContainsFunc(metrics.Table(), func(m metrics.Metric) bool {
			return m.Name == name || strings.HasSuffix(name, "_") && strings.HasPrefix(m.Name, name)
		}), "docs/jobs.md names %s, which is no metric", name)
	}
}

func TestReferenceHasEachLogLine(t *testing.T) {
	t.Parallel()
	text := readReference(t)
	var documented []string
	for _, title := range []string{"log line", "log line of all kinds"} {
		for rest := string(text); ; {
			_, after, found := strings.Cut(rest, "\n| "+title+" |")
			if !found {
				break
			}
			documented = append(documented, named(reference(rest).table(title))...)
			rest = after
		}
	}
	var logged []string
	for _, folder := range []string{".", "../internal/jobrun", "../internal/throttle", "../internal/loosefk/cleanup"} {
		logged = append(logged, messages(t, folder)...)
	}
	for _, message := range logged {
		require.Contains(t, documented, message, "log lines in docs/jobs.md")
	}
	// The number in it is configured, so it is put together.
	logged = append(logged, fmt.Sprintf("Maximum deletion attempts (%d) reached for deletion of placeholder user. Making final deletion attempt.", 15))
	for _, message := range documented {
		require.Contains(t, logged, message, "docs/jobs.md has a log line that nobody writes")
	}
}

// messages are the texts of the log lines that the files of a folder write, at levels that are on by default.
func messages(t *testing.T, folder string) []string {
	t.Helper()
	files := pgtest.Must(filepath.Glob(filepath.Join(folder, "*.go")))(t)
	var found []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		ast.Inspect(pgtest.Must(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t), func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"InfoContext", "WarnContext", "ErrorContext"}, method.Sel.Name) {
				return true
			}
			if text, ok := call.Args[1].(*ast.BasicLit); ok {
				found = append(found, pgtest.Must(strconv.Unquote(text.Value))(t))
			}
			return true
		})
	}
	require.NotEmpty(t, found)
	return found
}
