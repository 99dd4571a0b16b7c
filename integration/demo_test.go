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

// demoRun is a demo process with its own temporary folder.
type demoRun struct {
	cmd *exec.Cmd
	// out holds the output. In a pseudo-terminal this is the output of both streams,
	// otherwise only standard output.
	out, stderr *pgtest.Journal
	terminal    *os.File
	tmp         string
	ended       chan struct{}
}

// newDemoRun prepares a command without starting it. The process is killed when the test
// ends.
func newDemoRun(t *testing.T, name string, args ...string) *demoRun {
	return &demoRun{
		cmd: exec.CommandContext(t.Context(), name, args...),
		out: &pgtest.Journal{}, stderr: &pgtest.Journal{}, tmp: openFolder(t), ended: make(chan struct{}),
	}
}

// startDemo starts the demo with pipes or in a pseudo-terminal.
func startDemo(t *testing.T, p program, inTerminal bool, args ...string) *demoRun {
	d := newDemoRun(t, p.path, append([]string{"demo", "--rows", demoRows}, args...)...)
	d.cmd.Dir = d.tmp
	d.cmd.Env = []string{
		"TMPDIR=" + d.tmp, "PATH=" + os.Getenv("PATH"), "TERM=xterm",
		"SEXTON_PG_BIN=" + os.Getenv("SEXTON_PG_BIN"),
	}
	if inTerminal {
		d.startInTerminal(t)
		return d
	}
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.stderr
	require.NoError(t, d.cmd.Start())
	d.watch(t, nil)
	return d
}

// startInTerminal starts the demo in a pseudo-terminal of 100 columns.
func (d *demoRun) startInTerminal(t *testing.T) {
	d.terminal = pgtest.Must(pty.StartWithSize(d.cmd, &pty.Winsize{Rows: 40, Cols: 100}))(t)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(d.out, d.terminal) // Copy returns EIO after the last process has closed the terminal.
	}()
	d.watch(t, copied)
}

// watch waits in the background for the end of the process and, if copied is set, for the
// end of its output.
func (d *demoRun) watch(t *testing.T, copied <-chan struct{}) {
	t.Helper()
	pgtest.Guard(t, d.cmd.Process.Pid)
	go func() {
		defer close(d.ended)
		// The error is ignored, because tests read the exit code from ProcessState.
		_ = d.cmd.Wait()
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

// openFolder creates a temporary folder that the private server's user can enter. Its
// path is short enough for a socket.
func openFolder(t *testing.T) string {
	dir := pgtest.Must(os.MkdirTemp("", "d"))(t)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// waitExit waits until the process has ended and returns its exit code, or -1 if a signal
// ended it.
func (d *demoRun) waitExit(t *testing.T) int {
	timer := time.NewTimer(demoLimit)
	defer timer.Stop()
	select {
	case <-d.ended:
	case <-timer.C:
		require.Fail(t, "the demo has not ended", "waited %s", demoLimit)
	}
	return d.cmd.ProcessState.ExitCode()
}

// requireNothingLeft waits until the demo's folder is empty and no process has that
// folder in its command line. After a kill, other processes clean up.
func (d *demoRun) requireNothingLeft(t *testing.T) {
	pgtest.WaitFor(t, "an empty folder "+d.tmp, func(context.Context) (bool, error) {
		entries, err := os.ReadDir(d.tmp)
		return len(entries) == 0, err
	})
	pgtest.WaitFor(t, "the end of all processes", func(ctx context.Context) (bool, error) {
		list, err := commandLines(ctx)
		return err == nil && !strings.Contains(list, d.tmp), err
	})
}

// commandLines returns the command lines of all processes.
func commandLines(ctx context.Context) (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		list, err := exec.CommandContext(ctx, "ps", "-ww", "-A", "-o", "args=").Output()
		return string(list), err
	}
	var all strings.Builder
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil { // The process may have ended.
			all.Write(line)
			all.WriteByte('\n')
		}
	}
	return all.String(), nil
}

// waitForOutput waits until the demo's output matches a pattern.
func (d *demoRun) waitForOutput(t *testing.T, pattern string) {
	expression := regexp.MustCompile(pattern)
	pgtest.WaitFor(t, "output that matches "+pattern, func(context.Context) (bool, error) {
		return expression.MatchString(d.out.String()), nil
	})
}

// testDemoUntilItsEnd runs the demo until its end with pipes, and checks its progress
// lines and its summary.
func testDemoUntilItsEnd(t *testing.T, p program) {
	d := startDemo(t, p, false, "--exit", "--json")
	require.Zero(t, d.waitExit(t))
	d.requireNothingLeft(t)
	var s demoSummary
	require.NoError(t, json.Unmarshal([]byte(d.out.String()), &s), "standard output must be one JSON document")
	require.InDelta(t, 2000, s.RowsLoaded, 400)
	require.Positive(t, s.Seconds)
	for _, scene := range s.Scenes {
		require.LessOrEqual(t, scene.Acted, scene.Planned, scene.Title)
		require.Zero(t, scene.Waiting, scene.Title)
		// The restores of the scene undo are not done by a job, so the summary counts
		// none.
		if scene.Title != "undo" {
			require.Positive(t, scene.Finished, scene.Title)
		}
	}
	require.Regexp(t, `(?m)^loading sample data: [0-9,]+ of [0-9,]+ rows$`, d.stderr.String())
	lines := regexp.MustCompile(`(?m)^ *\d+ s \| .*$`).FindAllString(d.stderr.String(), -1)
	const scenes = 6
	require.Greater(t, len(lines), 2*scenes, "one line per second and scene")
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

// testDemoOnADownloadedServer runs the demo with installed and cached servers hidden, so
// that it must download one.
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
	d.watch(t, nil)
	require.Zero(t, d.waitExit(t))
	require.Contains(t, d.out.String(), `"rows_loaded"`)
}

// testDemoStop stops the demo while it is running.
func testDemoStop(t *testing.T, p program, inTerminal bool, stop func(t *testing.T, d *demoRun), code int) {
	d := startDemo(t, p, inTerminal)
	d.waitForOutput(t, `[1-9][0-9,]* rows changed`)
	d.requirePage(t)
	stop(t, d)
	require.Equal(t, code, d.waitExit(t))
	if code == 0 {
		require.Regexp(t, `(?m)^loose foreign keys: [0-9,]+ of [0-9,]+ parents deleted`, d.out.String())
		require.NotContains(t, d.out.String(), "orphans left", "an unfinished scene must not show counts")
	}
	d.requireNothingLeft(t)
}

// requirePage requests the page at the address that the demo prints.
func (d *demoRun) requirePage(t *testing.T) {
	address := regexp.MustCompile(`http://(127\.0\.0\.1:[0-9]+)/`).FindStringSubmatch(d.out.String())
	require.Len(t, address, 2, "the output must contain the page's address")
	pgtest.WaitFor(t, "the demo's page", func(ctx context.Context) (bool, error) {
		code, body := httpGet(ctx, address[1], "/")
		return code == http.StatusOK && strings.Contains(body, `id="job-loose_foreign_keys_cleanup"`), nil
	})
}

// demoStops returns the ways to stop a demo.
func demoStops() map[string]func(t *testing.T, d *demoRun) {
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

// testDemoInterruptedWhileLoading interrupts a demo before it can print a summary.
func testDemoInterruptedWhileLoading(t *testing.T, p program) {
	d := startDemo(t, p, false, "--exit")
	d.waitForOutput(t, `(?m)^loading sample data`)
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 1, d.waitExit(t))
	require.Equal(t, "sexton: interrupted\n", d.stderr.String())
	d.requireNothingLeft(t)
}
