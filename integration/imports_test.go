package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// listed is a package as `go list -json` describes it.
type listed struct {
	ImportPath string
	// Imports are direct and without those of tests, Deps are all.
	Imports []string
	Deps    []string
	GoFiles []string
}

func listPackages(t *testing.T) []listed {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps,GoFiles", "./...")
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "list packages: %s", &stderr)
	var packages []listed
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			require.NoError(t, err, "decode go list")
		}
		packages = append(packages, p)
	}
}

// paths are import paths; one that ends in /... also stands for all below it, as in go list.
type paths []string

func (p paths) contain(path string) bool {
	return slices.ContainsFunc(p, func(pattern string) bool {
		prefix, tree := strings.CutSuffix(pattern, "/...")
		return path == prefix || tree && strings.HasPrefix(path, prefix+"/")
	})
}

// domains do the work of one job each.
var domains = paths{
	"sexton/internal/loosefk", "sexton/internal/ghostuser", "sexton/internal/placeholder", "sexton/internal/groupdelete", "sexton/internal/groupschedule",
	"sexton/internal/extdiff",
}

// shared stands below the domains and is the same to all of them.
var shared = paths{"sexton/internal/batch", "sexton/internal/lease", "sexton/internal/pgcatalog", "sexton/internal/fault", "sexton/internal/pace", "sexton/internal/drain"}

// card are the libraries that the program was asked to be made of.
var card = []string{
	"github.com/jackc/pgx/v5", "github.com/jackc/pgxlisten", "github.com/riverqueue/river", "github.com/riverqueue/river/riverdriver/riverpgxv5",
	"github.com/robfig/cron/v3", "github.com/lmittmann/tint",
}

// commands are the command line, readers what it and the worker know of an installation as a whole.
var (
	commands = paths{"sexton/internal/cli/..."}
	readers  = paths{"sexton/internal/installation", "sexton/internal/operator", "sexton/internal/component", "sexton/internal/components"}
)

// testHelpers are imported by tests only.
var testHelpers = paths{"sexton/internal/pgtest", "sexton/internal/dbtest", "sexton/internal/s3test", "sexton/internal/cli/clitest"}

// rule forbids packages to import others.
type rule struct {
	why string
	// of are the packages the rule is about, but not those in except.
	of, except paths
	// never must not be imported; among what stays within only, if there is any, everything else must not.
	never, within, only paths
	// indirectly also looks at what is imported by way of other packages.
	indirectly bool
}

var everything = paths{"sexton/..."}

func rules() []rule {
	return []rule{
		{
			why: "main only hands over to the command line",
			of:  paths{"sexton/cmd/..."}, within: everything, only: paths{"sexton/internal/cli/root"},
		},
		{
			why: "the command line stands at the top and knows all parts",
			of:  everything, except: slices.Concat(commands, paths{"sexton/cmd/..."}), never: slices.Concat(commands, paths{"sexton/cmd/..."}),
		},
		{
			why: "jobs are run by the command line",
			of:  everything, except: slices.Concat(commands, readers), never: paths{"sexton/river_jobs"},
		},
		{
			why: "domains are used by the jobs; the command line looks at their results, and undo knows whose children come back",
			of:  everything, except: slices.Concat(domains, commands, readers, paths{"sexton/river_jobs", "sexton/internal/loosefk/...", "sexton/internal/undo"}), never: domains,
		},
		{
			why: "domains know neither each other, nor the job queue, nor the configuration",
			of:  domains, indirectly: true,
			never: slices.Concat(domains, paths{"github.com/riverqueue/...", "riverqueue.com/...", "sexton/internal/config", "sexton/internal/listen"}),
		},
		{
			why: "what domains share knows none of them, nor their lists, nor the configuration",
			of:  shared, indirectly: true,
			never: slices.Concat(domains, paths{
				"github.com/riverqueue/...", "riverqueue.com/...", "sexton/internal/config", "sexton/internal/definitions", "sexton/internal/listen",
			}),
		},
		{
			why: "triggers are code for the database and need nothing but a connection",
			of:  paths{"sexton/triggers"}, within: paths{"sexton/...", "github.com/...", "go.uber.org/...", "pgregory.net/...", "golang.org/..."},
			only: paths{"github.com/jackc/pgx/v5/..."},
		},
		{
			why: "the folder sql carries files",
			of:  paths{"sexton/sql"}, within: paths{"..."}, only: paths{"embed"},
		},
		{
			why: "definitions are read without a database",
			of:  paths{"sexton/internal/definitions", "sexton/internal/yamlfile", "sexton/internal/problem"}, indirectly: true,
			never: paths{"github.com/jackc/...", "sexton/internal/database", "sexton/internal/dbsqlc"},
		},
		{
			why: "tests and their servers are no part of the program",
			of:  everything, except: testHelpers, indirectly: true,
			never: slices.Concat(testHelpers, paths{"github.com/stretchr/...", "go.uber.org/goleak", "pgregory.net/..."}),
		},
		{
			why: "this folder holds tests only",
			of:  everything, never: paths{"sexton/integration"},
		},
	}
}

// broken lists the imports of a package that the rule forbids.
func (r rule) broken(p listed) []string {
	if !r.of.contain(p.ImportPath) || r.except.contain(p.ImportPath) {
		return nil
	}
	imports := p.Imports
	if r.indirectly {
		imports = p.Deps
	}
	var found []string
	for _, path := range imports {
		outside := slices.Contains(r.within, "...") || r.within.contain(path)
		if r.never.contain(path) || outside && !r.only.contain(path) {
			found = append(found, path)
		}
	}
	return found
}

// TestImports keeps the imports running one way: cmd/worker, internal/cli, what reads an installation,
// river_jobs, domains, and below them what the domains share.
func TestImports(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	require.NotEmpty(t, packages)
	for _, r := range rules() {
		for _, p := range packages {
			for _, path := range r.broken(p) {
				t.Errorf("%s imports %s, but %s", p.ImportPath, path, r.why)
			}
		}
	}
	for _, p := range packages {
		switch p.ImportPath {
		case "sexton/sql":
			require.Equal(t, []string{"embed.go"}, p.GoFiles, "Go files in sql")
		case "sexton/integration":
			require.Empty(t, p.GoFiles, "files in integration that are no tests")
		case "sexton/cmd/worker":
			for _, named := range card {
				require.Contains(t, p.Deps, named, "what the program is made of")
			}
		}
	}
}

// TestImportRules shows that each rule forbids what it is there for.
func TestImportRules(t *testing.T) {
	t.Parallel()
	for _, p := range []listed{
		{ImportPath: "sexton/cmd/worker", Imports: []string{"sexton/internal/config"}},
		{ImportPath: "sexton/river_jobs", Imports: []string{"sexton/internal/cli/root"}},
		{ImportPath: "sexton/internal/batch", Imports: []string{"sexton/river_jobs"}},
		{ImportPath: "sexton/internal/batch", Imports: []string{"sexton/internal/loosefk"}},
		{ImportPath: "sexton/internal/loosefk", Deps: []string{"github.com/riverqueue/river/rivertype"}},
		{ImportPath: "sexton/internal/loosefk", Deps: []string{"sexton/internal/ghostuser"}},
		{ImportPath: "sexton/internal/fault", Deps: []string{"sexton/internal/definitions"}},
		{ImportPath: "sexton/internal/pace", Deps: []string{"sexton/internal/config"}},
		{ImportPath: "sexton/triggers", Imports: []string{"sexton/internal/batch"}},
		{ImportPath: "sexton/sql", Imports: []string{"fmt"}},
		{ImportPath: "sexton/internal/definitions", Deps: []string{"github.com/jackc/pgx/v5"}},
		{ImportPath: "sexton/internal/cli/root", Deps: []string{"sexton/internal/pgtest"}},
		{ImportPath: "sexton/internal/installation", Imports: []string{"sexton/internal/cli"}},
		{ImportPath: "sexton/internal/cli/root", Imports: []string{"sexton/integration"}},
	} {
		broken := slices.ContainsFunc(rules(), func(r rule) bool { return len(r.broken(p)) > 0 })
		require.True(t, broken, "%s may not import %q", p.ImportPath, slices.Concat(p.Imports, p.Deps))
	}
}

func TestMainIsShort(t *testing.T) {
	t.Parallel()
	_, worker, _ := strings.Cut(string(pgtest.Must(os.ReadFile("../cmd/worker/main.go"))(t)), "\n")
	require.LessOrEqual(t, strings.Count(worker, "\n"), 20, "lines of cmd/worker/main.go")
	_, sexton, _ := strings.Cut(string(pgtest.Must(os.ReadFile("../cmd/sexton/main.go"))(t)), "\n")
	require.Equal(t, worker, sexton, "the same program under its own name")
}
