package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"sexton/internal/pgtest"
)

func deployed(t *testing.T, name string) string {
	t.Helper()
	return string(pgtest.Must(os.ReadFile(filepath.Join("..", "deploy", name)))(t))
}

// The image and the released binaries are built in the same way, with the compiler that the module asks for.
func TestReleasesAreBuiltAlike(t *testing.T) {
	t.Parallel()
	flags := regexp.MustCompile(`go build -trimpath -ldflags "-s -w -X (sexton/internal/cli\.version)=\$(?:VERSION|version)" -o \S+ \./cmd/worker`)
	require.Regexp(t, flags, deployed(t, "Dockerfile"))
	require.Regexp(t, flags, deployed(t, "release"))
	module := pgtest.Must(os.ReadFile(filepath.Join("..", "go.mod")))(t)
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module))
	require.Len(t, language, 2)
	require.Contains(t, deployed(t, "Dockerfile"), " golang:"+language[1]+" AS build")
	require.Contains(t, deployed(t, "Dockerfile"), "\nUSER 65532:65532\n", "not root, by number: an empty image has no names")
}

// A version that would end up as further flags of the linker is refused before anything is built.
func TestReleaseRefusesAStrangeVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1 -X other=1", "$(id)", "a/b"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join("..", "deploy", "release"), version, t.TempDir())
		out, err := cmd.CombinedOutput()
		require.Error(t, err, version)
		require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s", out)
		require.Contains(t, string(out), "is no version")
	}
}

// A stamped binary says its version.
func testVersionIsStamped(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sexton")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-X sexton/internal/cli.version=v7.8.9", "-o", path, "./cmd/worker")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out = pgtest.Must(exec.CommandContext(t.Context(), path, "version").Output())(t)
	require.True(t, strings.HasPrefix(string(out), "sexton v7.8.9 ("), "%s", out)
}

// testExample does what the compose file does, with its files and in its order.
func testExample(t *testing.T, p program) {
	t.Helper()
	var compose struct {
		Services map[string]struct {
			Command        []string
			ReadOnly       bool `yaml:"read_only"`
			Environment    map[string]string
			Secrets, Ports []string
			CapDrop        []string `yaml:"cap_drop"`
			DependsOn      map[string]struct{ Condition string }
		}
		Secrets map[string]struct{ File string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(deployed(t, "compose.yml")), &compose))
	for _, name := range []string{"migrate", "triggers", "worker"} {
		require.True(t, compose.Services[name].ReadOnly, name)
		require.Equal(t, []string{"ALL"}, compose.Services[name].CapDrop, name)
	}
	db := pgtest.New(t)
	db.Exec(deployed(t, "example/schema.sql"))
	folder := filepath.Join("..", "deploy", "example")
	for _, name := range []string{"migrate", "triggers"} {
		p.run(t, folder, db.URL, 0, compose.Services[name].Command...)
	}
	db.Exec("DELETE FROM projects WHERE id = 1")
	p.run(t, folder, db.URL, 0, "job", "run", kind)
	require.EqualValues(t, 900, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM issues"))

	worker := compose.Services["worker"]
	require.Equal(t, []string{"127.0.0.1:8686:8686"}, worker.Ports, "this machine alone")
	require.Equal(t, "0.0.0.0:8686", worker.Environment["SEXTON_HTTP__LISTEN"])
	require.Contains(t, deployed(t, "Dockerfile"), "\nEXPOSE 8686\n")
	require.Len(t, worker.Secrets, 1)
	require.Equal(t, "/run/secrets/"+worker.Secrets[0], worker.Environment["SEXTON_HTTP__PASSWORD_FILE"])
	require.Contains(t, compose.Secrets[worker.Secrets[0]].File, "${PAGE_PASSWORD_FILE:?", "no password that everybody knows")
	require.NotEmpty(t, worker.Environment["DATABASE_URL"])
	asConfigured(t, p, folder, db.URL, worker.Environment)
}

// asConfigured takes the program's own variables from a deployment, and has the program read its configuration with them.
func asConfigured(t *testing.T, p program, folder, url string, environment map[string]string) {
	t.Helper()
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("geheim\n"), 0o600))
	require.NotEmpty(t, environment["SEXTON_HTTP__PASSWORD_FILE"])
	p.environ = slices.Clone(p.environ)
	for name, value := range environment {
		switch {
		case name == "SEXTON_HTTP__PASSWORD_FILE":
			p.environ = append(p.environ, name+"="+password)
		case strings.HasPrefix(name, "SEXTON_"):
			p.environ = append(p.environ, name+"="+value)
		}
	}
	var shown struct {
		HTTP struct {
			Listen, User string
			PasswordFile string `yaml:"password_file"`
		}
	}
	p.run(t, folder, url, 0, "config", "check")
	require.NoError(t, yaml.Unmarshal([]byte(p.run(t, folder, url, 0, "config", "show")), &shown))
	require.Equal(t, environment["SEXTON_HTTP__LISTEN"], shown.HTTP.Listen)
	require.Equal(t, environment["SEXTON_HTTP__USER"], shown.HTTP.User)
	require.Equal(t, password, shown.HTTP.PasswordFile)
}

// testPageUnit reads the drop-in that opens the page, and hands the password over as systemd does.
func testPageUnit(t *testing.T, p program) {
	t.Helper()
	unit := deployed(t, "systemd/page.conf")
	environment := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^Environment=(\w+)=(.*)$`).FindAllStringSubmatch(unit, -1) {
		environment[line[1]] = line[2]
	}
	credential := regexp.MustCompile(`(?m)^LoadCredential=(\w+):/etc/sexton/\w+$`).FindStringSubmatch(unit)
	require.Len(t, credential, 2)
	require.Equal(t, "%d/"+credential[1], environment["SEXTON_HTTP__PASSWORD_FILE"], "where systemd puts it")
	folder := filepath.Join("..", "deploy", "example")
	asConfigured(t, p, folder, "postgres://ann@localhost/app", environment)

	// Or in a file, as documented.
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, credential[1]), []byte("geheim\n"), 0o600))
	path := filepath.Join(dir, "sexton.yaml")
	definitions := pgtest.Must(filepath.Abs(filepath.Join(folder, "loose_foreign_keys.yml")))(t)
	settings := "databases: {main: {url: \"${DATABASE_URL}\"}}\nloose_foreign_keys: {definitions: [\"" + definitions + "\"]}\n" +
		"http: {listen: \":8686\", user: ops, password_file: \"${CREDENTIALS_DIRECTORY}/" + credential[1] + "\"}\n"
	require.NoError(t, os.WriteFile(path, []byte(settings), 0o600))
	p.environ = append(slices.Clone(p.environ), "CREDENTIALS_DIRECTORY="+dir)
	p.run(t, dir, "postgres://ann@localhost/app", 0, "config", "check", "--config", path)
}

// The unit starts the program as the documentation installs it, and gives it time to stop.
func TestTheUnitFitsTheProgram(t *testing.T) {
	t.Parallel()
	unit := deployed(t, "systemd/sexton.service")
	require.Contains(t, unit, "\nExecStart=/usr/local/bin/sexton run --config /etc/sexton/sexton.yaml\n")
	require.Contains(t, unit, "\nRestartPreventExitStatus=2 3\n")
	require.Contains(t, unit, "\nTimeoutStopSec=30\n")
}
