package root_test

import (
	"encoding/json"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli"
	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	before := s.Snapshot()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":    {[]string{"frobnicate"}, `unknown command "frobnicate" for "sexton"`},
		"unknown subcommand": {[]string{"job", "rnu"}, `unknown command "rnu" for "sexton job"`},
		"missing subcommand": {[]string{"migrate"}, "sexton migrate needs a subcommand"},
		"surplus argument": {
			[]string{"config", "check", "sexton.yaml"},
			`unknown command "sexton.yaml" for "sexton config check"`,
		},
		"unknown flag":       {[]string{"status", "--jsno"}, "unknown flag: --jsno"},
		"flag without value": {[]string{"status", "--config"}, "flag needs an argument: --config"},
		"flag of another type": {
			[]string{"failures", "list", "--limit", "x"},
			`invalid argument "x" for "--limit" flag`,
		},
		"wrong value of a boolean flag": {
			[]string{"failures", "retry", "--all=maybe"},
			`invalid argument "maybe" for "--all" flag`,
		},
		"plan and now": {
			[]string{"group", "delete", "1", "--plan", "--now"},
			"sexton group delete needs either --now or --plan",
		},
		"plan without user": {
			[]string{"group", "delete", "1", "--plan", "--by", "0"},
			"sexton group delete needs --by, the ID of the user",
		},
		"limit of 0":                 {[]string{"group", "list", "--limit", "0"}, "--limit 0 must be at least 1"},
		"surplus argument for diffs": {[]string{"diffs", "verify", "x"}, `unknown command "x" for "sexton diffs verify"`},
		"missing kind": {
			[]string{"job", "run"},
			"sexton job run needs the KIND of one job, such as loose_foreign_keys_cleanup; sexton job list shows them",
		},
		"two kinds": {
			[]string{"job", "run", clitest.Kind, clitest.Kind},
			"sexton job run needs the KIND of one job",
		},
		"unknown kind": {
			[]string{"job", "run", "cleanup"},
			`no job of kind "cleanup" is enabled (enabled: loose_foreign_keys_cleanup)`,
		},
		"unknown database": {
			[]string{"job", "run", clitest.Kind, "--database", "ci"},
			`no database "ci" is configured (configured: main)`,
		},
		"unknown database in args": {
			[]string{"job", "run", clitest.Kind, "--args", `{"database": "ci"}`},
			`no database "ci" is configured (configured: main)`,
		},
		"two databases": {
			[]string{"job", "run", clitest.Kind, "--database", "main", "--args", `{"database": "ci"}`},
			`--database main and --args {"database": "ci"} name different databases`,
		},
		"disabled kind": {
			[]string{"job", "run", "import_placeholder_user_cleanup"},
			"import_placeholder_user_cleanup is not enabled; set placeholder_users.enabled: true",
		},
		"unknown source": {
			[]string{"failures", "retry", "nope", "1"},
			`unknown source "nope"; the sources are tombstones, jobs`,
		},
		"rows not a number": {[]string{"demo", "--rows", "x"}, `invalid argument "x" for "--rows" flag`},
		"args not JSON": {
			[]string{"job", "run", clitest.Kind, "--args", "main"},
			`--args main: must be a JSON object; loose_foreign_keys_cleanup takes {"database": text}`,
		},
		"args with text after the object": {
			[]string{"job", "run", clitest.Kind, "--args", "{} {}"},
			`--args {} {}: must be a JSON object`,
		},
		"args not an object": {
			[]string{"job", "run", clitest.Kind, "--args", "null"},
			`--args null: must be a JSON object`,
		},
		"args unknown": {
			[]string{"job", "run", clitest.Kind, "--args", `{"db": "main"}`},
			`the job has no argument "db"; loose_foreign_keys_cleanup takes {"database": text}`,
		},
		"args of another type": {
			[]string{"job", "run", clitest.Kind, "--args", `{"database": 1}`}, `the argument database must be a text`,
		},
	} {
		r := s.Run(test.args...)
		require.Equal(t, 2, r.Code, name)
		require.Empty(t, r.Stdout, name)
		lines := strings.Split(strings.TrimSpace(r.Stderr), "\n")
		require.Len(t, lines, 2, "%s: %s", name, r.Stderr)
		require.Regexp(t, "^sexton: ", lines[0], name)
		require.Contains(t, lines[0], test.want, name)
		require.Regexp(t, `^Run "sexton( [a-z]+)* --help" for usage\.$`, lines[1], name)
	}
	require.Equal(t, before, s.Snapshot())
}

func TestCompletionOffersKindsAndCommands(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	require.Contains(t, s.OK("__complete", "job", "run", ""), clitest.Kind+"\t")
	require.Equal(t, ":4\n", s.OK("__complete", "job", "run", clitest.Kind, ""))
	require.Contains(t, s.OK("__complete", "help", "job", ""), "run\t")
	require.Equal(t, ":4\n", s.OK("__complete", "help", "jib", ""))
	require.Contains(t, s.OK("help", "exit-codes"), cli.ExitCodes[:40])
	require.Contains(t, s.Run("stauts").Stderr, "Did you mean this?\n\tstatus\n")
	require.Equal(t, ":4\n", clitest.Run(nil, "__complete", "job", "run", "").Stdout,
		"no kinds are completed without a configuration")
}

func TestVersion(t *testing.T) {
	t.Parallel()
	r := clitest.Run(nil, "version")
	newest := regexp.MustCompile(`(?m)^## (v\S+) - \d{4}-\d\d-\d\d$`).FindStringSubmatch(string(pgtest.Must(os.ReadFile("../../../CHANGELOG.md"))(t)))
	require.Len(t, newest, 2)
	require.True(t, strings.HasPrefix(r.Stdout, "sexton "+newest[1]), r.Stdout)
	require.Zero(t, r.Code)
	require.Regexp(t, `^sexton .+ \(`+runtime.Version()+
		`, river .+\)\nschema base \d+\nschema jobs \d+\nschema river \d+\nschema loose_foreign_keys \d+\nschema ghost_users \d+\nschema placeholder_users \d+\nschema adjourned_groups \d+\nschema external_diffs \d+\nschema undo \d+\nschema retention \d+\n$`, r.Stdout)

	var document struct {
		Version, Go, River string
		Schema             []struct {
			Component string
			Version   int64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(clitest.Run(nil, "version", "--json").Stdout), &document))
	require.Equal(t, runtime.Version(), document.Go)
	require.NotEmpty(t, document.Version)
	require.Len(t, document.Schema, 10)
	for _, c := range document.Schema {
		require.Positive(t, c.Version, c.Component)
	}
}

func TestMain(m *testing.M) { clitest.Main(m) }
