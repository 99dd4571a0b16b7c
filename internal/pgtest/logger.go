package pgtest

import (
	"bytes"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"sync"
	"testing"
)

// Logger returns a logger that writes all levels to the test's output. The testing
// package prints that output for failed tests and with -v.
func Logger(tb testing.TB) *slog.Logger {
	w := &testWriter{out: tb.Output()}
	tb.Cleanup(w.close)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// testWriter writes to the test's output and discards everything after the end of the
// test, because the testing package panics on late output.
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

// Journal collects log lines. It is safe for concurrent use. The zero value is an empty
// Journal.
type Journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *Journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Take empties the journal and returns its former content.
func (j *Journal) Take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.text.Reset()
	return j.text.String()
}

// Logger returns a logger that writes all levels to the journal.
func (j *Journal) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

var messageOf = regexp.MustCompile(`(?m)^time=\S+ level=\S+ msg=("(?:[^"\\]|\\.)*"|\S+)`)

// Messages returns the messages of the lines that Logger's handler wrote.
func (j *Journal) Messages() (messages []string) {
	for _, found := range messageOf.FindAllStringSubmatch(j.String(), -1) {
		text, err := strconv.Unquote(found[1])
		if err != nil {
			text = found[1] // The handler quotes only messages that need it.
		}
		messages = append(messages, text)
	}
	return messages
}
