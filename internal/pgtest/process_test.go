package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder is a testing.TB that records failure messages instead of failing the test.
type recorder struct {
	testing.TB

	messages strings.Builder
	cleanups []func()
}

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { fmt.Fprintf(&r.messages, format+"\n", args...) }
func (r *recorder) FailNow()                          { runtime.Goexit() }
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }

// failure runs f with a recorder and returns the failure messages. It fails the test if f
// does not fail.
func failure(t *testing.T, f func(tb testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	for _, cleanup := range r.cleanups {
		cleanup()
	}
	require.NotEmpty(t, r.messages.String(), "f should have failed the test")
	return r.messages.String()
}

// After close, an external server has neither templates nor databases of tests.
func TestExternalServerIsLeftClean(t *testing.T) {
	t.Parallel()
	server := Server(t)
	p := &process{}
	p.enterMain(server.URL("postgres"))
	t.Run("user", func(t *testing.T) {
		p.create(t, p.buildOnce(t, "key", "template0", func(context.Context,
			string,
		) error {
			return nil
		})).Exec("CREATE TABLE t (id int)")
	})
	require.NoError(t, p.close())

	left := &process{}
	left.enterMain(server.URL("postgres"))
	d := left.create(t, "template0")
	require.Equal(t, [][]string{{d.Name}}, d.Rows(
		"SELECT datname FROM pg_database WHERE datname NOT IN ('postgres', 'template0', 'template1')"))
}

func TestInvalidExternalServer(t *testing.T) {
	t.Parallel()
	for external, want := range map[string]string{
		"host=localhost dbname=x":               "TEST_DATABASE_URL must have the form",
		"postgres://x@/y?host=/nowhere/to/be/s": "connect to test server",
	} {
		p := &process{}
		p.enterMain(external)
		require.Contains(t, failure(t, func(tb testing.TB) { p.create(tb, "template0") }), want)
	}
}

func TestMainIsRequired(t *testing.T) {
	t.Parallel()
	p := &process{}
	require.Contains(t, failure(t, func(tb testing.TB) { p.create(tb, "template0") }), "must call pgtest.Main")
}

func TestFailedTemplateFailsEveryTest(t *testing.T) {
	t.Parallel()
	for range 2 {
		got := failure(t, func(tb testing.TB) {
			FromTemplate(tb, "broken", func(context.Context, string) error { return errors.New("no such migration") })
		})
		require.Contains(t, got, "no such migration")
		require.Contains(t, got, `broken"`, "the message names the template")
	}
}

func TestWaitForNamesTheCondition(t *testing.T) {
	t.Parallel()
	got := failure(t, func(tb testing.TB) {
		WaitFor(tb, "the cows", func(context.Context) (bool, error) { return false, errors.New("barn is closed") })
	})
	require.Contains(t, got, "while waiting for the cows")
	require.Contains(t, got, "barn is closed")
}

func TestExecNamesTheStatement(t *testing.T) {
	t.Parallel()
	d := New(t)
	got := failure(t, func(tb testing.TB) {
		(&Database{Name: d.Name, URL: d.URL, tb: tb}).Exec("SELECT nonsense")
	})
	require.Contains(t, got, "exec: SELECT nonsense")
}

func TestLoggerDiscardsOutputAfterTheTest(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := &testWriter{out: &out}
	Must(io.WriteString(w, "kept\n"))(t)
	w.close()
	Must(io.WriteString(w, "dropped\n"))(t)
	require.Equal(t, "kept\n", out.String())
	Logger(t).Debug("shown with -v")
}
