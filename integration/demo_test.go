package integration

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// demoSummary is the document that `demo --json` prints.
type demoSummary struct {
	RowsLoaded int64       `json:"rows_loaded"`
	Seconds    float64     `json:"seconds"`
	Scenes     []demoScene `json:"scenes"`
}

type demoScene struct {
	Kind     string `json:"kind"`
	Title    string `json:"title"`
	Acted    int64  `json:"acted"`
	Planned  int64  `json:"planned"`
	Waiting  int64  `json:"waiting"`
	Finished int64  `json:"finished"`
}

const (
	demoRows  = "2000"
	demoLimit = 3 * time.Minute
)

// demoRun is a demo that has been started, with a temporary folder of its own.
type demoRun struct {
	cmd *exec.Cmd
	// out is what it printed: on both streams in a pseudo-terminal, on standard output
	// otherwise.
	out, stderr *pgtest.Journal
	terminal    *os.File
	tmp         string
	ended       chan struct{}
}

// newDemoRun prepares a command line. The end of the test kills what becomes of it.
func newDemoRun(t *testing.T, name string, args ...string) *demoRun {
	return &demoRun{
		cmd: exec.CommandContext(t.Context(), name, args...),
		out: &pgtest.Journal{}, stderr: &pgtest.Journal{}, tmp: openFolder(t), ended: make(chan struct{}),
	}
}

// startDemo starts the program in a pipe or in a pseudo-terminal.
func startDemo(t *testing.T, p program, inTerminal bool, args ...string) *demoRun {
	d := newDemoRun(t, p.path, append([]string{"demo", "--rows", demoRows}, args...)...)
	d.cmd.Dir = d.tmp
	d.cmd.Env = []string{
		"TMPDIR=" + d.tmp, "PATH=" + os.Getenv("PATH"), "TERM=xterm",
		"SEXTON_PG_BIN=" + os.Getenv("SEXTON_PG_BIN"),
	}
	if inTerminal {
		d.inTerminal(t)
		return d
	}
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.stderr
	require.NoError(t, d.cmd.Start())
	d.started(t, nil)
	return d
}

// inTerminal starts the demo in a pseudo-terminal of 100 columns.
func (d *demoRun) inTerminal(t *testing.T) {
	d.terminal = pgtest.Must(pty.StartWithSize(d.cmd, &pty.Winsize{Rows: 40, Cols: 100}))(t)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(d.out, d.terminal) // EIO once the last process has closed its end.
	}()
	d.started(t, copied)
}

// started waits in the background for the end, and for that of the output where copied
// says when that is.
func (d *demoRun) started(t *testing.T, copied <-chan struct{}) {
	t.Helper()
	pgtest.Guard(t, d.cmd.Process.Pid)
	go func() {
		defer close(d.ended)
		_ = d.cmd.Wait() // ProcessState says how.
		if copied != nil {
			<-copied
		}
	}()
	t.Cleanup(func() {
		<-d.ended
		if d.terminal != nil {
			_ = d.terminal.Close()
		}
		if t.Failed() {
			t.Logf("standard output:\n%s\nstandard error:\n%s", d.out, d.stderr)
		}
	})
}

// openFolder makes a folder that the private server's user can enter, with a path that is
// short enough for a socket in it.
func openFolder(t *testing.T) string {
	dir := pgtest.Must(os.MkdirTemp("", "d"))(t)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// exit waits for the end and returns the exit code; -1 stands for the end by a signal.
func (d *demoRun) exit(t *testing.T) int {
	timer := time.NewTimer(demoLimit)
	defer timer.Stop()
	select {
	case <-d.ended:
	case <-timer.C:
		require.Fail(t, "the demo goes on", "%s after it began", demoLimit)
	}
	return d.cmd.ProcessState.ExitCode()
}

// nothingLeft waits until neither a file of the demo nor a process that names its folder
// is there: after a kill others clean up.
func (d *demoRun) nothingLeft(t *testing.T) {
	pgtest.WaitFor(t, "an empty folder "+d.tmp, func(context.Context) (bool, error) {
		entries, err := os.ReadDir(d.tmp)
		return len(entries) == 0, err
	})
	pgtest.WaitFor(t, "the end of all processes", func(ctx context.Context) (bool, error) {
		list, err := commandLines(ctx)
		return err == nil && !strings.Contains(list, d.tmp), err
	})
}

// commandLines are those of all processes.
func commandLines(ctx context.Context) (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		list, err := exec.CommandContext(ctx, "ps", "-ww", "-A", "-o", "args=").Output()
		return string(list), err
	}
	var all strings.Builder
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil { // It may have ended since.
			all.Write(line)
			all.WriteByte('\n')
		}
	}
	return all.String(), nil
}

// shows waits until the demo has printed something that matches.
func (d *demoRun) shows(t *testing.T, pattern string) {
	expression := regexp.MustCompile(pattern)
	pgtest.WaitFor(t, "output that matches "+pattern, func(context.Context) (bool, error) {
		return expression.MatchString(d.out.String()), nil
	})
}

// testDemoEndsByItself runs it whole in a pipe and checks its lines and its summary.
func testDemoEndsByItself(t *testing.T, p program) {
	d := startDemo(t, p, false, "--exit", "--json")
	require.Zero(t, d.exit(t))
	d.nothingLeft(t)
	var s demoSummary
	require.NoError(t, json.Unmarshal([]byte(d.out.String()), &s), "standard output is one JSON document")
	require.InDelta(t, 2000, s.RowsLoaded, 400)
	require.Positive(t, s.Seconds)
	for _, scene := range s.Scenes {
		require.LessOrEqual(t, scene.Acted, scene.Planned, scene.Title)
		require.Zero(t, scene.Waiting, scene.Title)
		if scene.Title != "undo" { // Which is no job.
			require.Positive(t, scene.Finished, scene.Title)
		}
	}
	require.Regexp(t, `(?m)^loading sample data: [0-9,]+ of [0-9,]+ rows$`, d.stderr.String())
	lines := regexp.MustCompile(`(?m)^ *\d+ s \| .*$`).FindAllString(d.stderr.String(), -1)
	const scenes = 6
	require.Greater(t, len(lines), 2*scenes, "one line a second and scene")
	last := lines[len(lines)-scenes:]
	for i, want := range []string{
		`loose foreign keys: [0-9,]+ of [0-9,]+ parents deleted, 0 pending, [0-9,]+ rows changed`,
		`ghost users: [0-9,]+ of [0-9,]+ users deleted, 0 pending, [0-9,]+ users removed`,
		`placeholder users: [0-9,]+ of [0-9,]+ left without an owner, 0 pending, [0-9,]+ queued for deletion`,
		`groups: [0-9,]+ of [0-9,]+ groups scheduled, 0 pending, [0-9,]+ groups destroyed`,
		`external diffs: [0-9,]+ of [0-9,]+ diffs added, 0 pending, [0-9,]+ files moved`,
		`undo: 2 of 2 wrong deletions and restores, 0 pending`,
	} {
		require.Regexp(t, `^ *\d+ s \| `+want+`$`, last[i])
	}
}

// testDemoOnADownloadedServer hides the servers that are installed, and those that were
// downloaded before.
func testDemoOnADownloadedServer(t *testing.T, p program) {
	for _, needed := range [][]string{{"unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"}, {"npm", "ping"}} {
		if out, err := exec.CommandContext(t.Context(), needed[0], needed[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s: %s: %s", strings.Join(needed, " "), err, out)
		}
	}
	const script = `
		for bin in /usr/lib/postgresql /usr/pgsql-* /usr/libexec/postgresql* /usr/local/pgsql /var/cache/sexton; do
			[ ! -d "$bin" ] || mount -t tmpfs tmpfs "$bin"
		done
		exec "$0" demo --rows 2000 --exit --json`
	d := newDemoRun(t, "unshare", "-m", "bash", "-eu", "-c", script, p.path)
	d.cmd.Env = []string{
		"TMPDIR=" + d.tmp, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"XDG_CACHE_HOME=" + openFolder(t),
	}
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.stderr
	require.NoError(t, d.cmd.Start())
	d.started(t, nil)
	require.Zero(t, d.exit(t))
	require.Contains(t, d.out.String(), `"rows_loaded"`)
}

// testDemoIsStopped stops it in the middle.
func testDemoIsStopped(t *testing.T, p program, inTerminal bool, stop func(t *testing.T, d *demoRun), code int) {
	d := startDemo(t, p, inTerminal)
	d.shows(t, `[1-9][0-9,]* rows changed`)
	d.servesThePage(t)
	stop(t, d)
	require.Equal(t, code, d.exit(t))
	if code == 0 {
		require.Regexp(t, `(?m)^loose foreign keys: [0-9,]+ of [0-9,]+ parents deleted`, d.out.String())
		require.NotContains(t, d.out.String(), "orphans left", "a scene that has not ended has no counts")
	}
	d.nothingLeft(t)
}

// servesThePage opens the address that the demo prints.
func (d *demoRun) servesThePage(t *testing.T) {
	address := regexp.MustCompile(`http://(127\.0\.0\.1:[0-9]+)/`).FindStringSubmatch(d.out.String())
	require.Len(t, address, 2, "the page's address")
	pgtest.WaitFor(t, "the demo's page", func(ctx context.Context) (bool, error) {
		code, body := ask(ctx, address[1], "/")
		return code == http.StatusOK && strings.Contains(body, `id="job-loose_foreign_keys_cleanup"`), nil
	})
}

// stopDemoBy are the ways to end a demo, with the exit code that follows.
func stopDemoBy() map[string]func(t *testing.T, d *demoRun) {
	send := func(signal os.Signal) func(*testing.T, *demoRun) {
		return func(t *testing.T, d *demoRun) {
			require.NoError(t, d.cmd.Process.Signal(signal))
		}
	}
	return map[string]func(*testing.T, *demoRun){
		"SIGTERM": send(syscall.SIGTERM), "SIGKILL": send(syscall.SIGKILL),
		"Ctrl-C": func(t *testing.T, d *demoRun) {
			if d.terminal == nil {
				send(syscall.SIGINT)(t, d)
				return
			}
			pgtest.Must(d.terminal.WriteString("\x03"))(t)
		},
	}
}

// testDemoInterruptedBeforeItsEnd asks for a summary that cannot be given.
func testDemoInterruptedBeforeItsEnd(t *testing.T, p program) {
	d := startDemo(t, p, false, "--exit")
	d.shows(t, `(?m)^loading sample data`)
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 1, d.exit(t))
	require.Equal(t, "sexton: interrupted\n", d.stderr.String())
	d.nothingLeft(t)
}
