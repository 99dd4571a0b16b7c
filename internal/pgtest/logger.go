package pgtest

import (
	"io"
	"log/slog"
	"sync"
	"testing"
)

// Logger returns a logger of all levels into the test's output, which shows only for failed tests and with -v.
func Logger(tb testing.TB) *slog.Logger {
	tb.Helper()
	w := &testWriter{out: tb.Output()}
	tb.Cleanup(w.close)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// testWriter drops what comes after the end of the test, when the testing package panics on output.
type testWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *testWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(line)
}

func (w *testWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = io.Discard
}
