package pgtest

import (
	"bytes"
	"log/slog"
	"regexp"
	"strconv"
	"sync"
)

// Journal keeps what is logged: it may be written while a test reads. The zero value is empty.
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

// Take empties the journal and returns what was in it.
func (j *Journal) Take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.text.Reset()
	return j.text.String()
}

// Logger logs lines of all levels to the journal.
func (j *Journal) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

var messageOf = regexp.MustCompile(`(?m)^time=\S+ level=\S+ msg=("(?:[^"\\]|\\.)*"|\S+)`)

// Messages are those of Logger's lines.
func (j *Journal) Messages() (messages []string) {
	for _, found := range messageOf.FindAllStringSubmatch(j.String(), -1) {
		text, err := strconv.Unquote(found[1])
		if err != nil {
			text = found[1] // It needed no quotes.
		}
		messages = append(messages, text)
	}
	return messages
}
