package extdiff_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
	"sexton/internal/extdiff"
)

// pager is a writer that calls pause before it accepts the first bytes.
type pager struct {
	bytes.Buffer

	pause func()
}

func (p *pager) Write(b []byte) (int, error) {
	if p.Len() == 0 {
		p.pause()
	}
	return p.Buffer.Write(b)
}

// A slow reader exceeds no time limit of a statement or transaction. Texts in a store are
// read without a transaction.
func TestSlowReaderExceedsNoLimit(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new("")})
	// The text is larger than the buffers of the connection, so the statement is still
	// running while the reader pauses.
	b.Exec("UPDATE merge_request_diff_files SET diff = repeat('0123456789abcde' || chr(10), 1 << 20)")
	read := func(external bool) {
		limits := b.engine.Limits
		b.engine.Limits.Statement = 300 * time.Millisecond
		defer func() { b.engine.Limits = limits }()
		pause := func() {
			began := b.Rows("SELECT clock_timestamp()")[0][0]
			b.waitFor(t, "the limit to pass", "clock_timestamp() > $1::timestamptz + interval '600 ms'", began)
		}
		shown := &pager{pause: pause}
		require.NoError(t, b.reader().Read(t.Context(), 1, func(r *extdiff.Reading) error {
			pause()
			idle := b.Rows("SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'")
			require.Equal(t, external, len(idle) == 0)
			return r.WriteText(t.Context(), r.Files[0], shown)
		}))
		require.Equal(t, 16<<20, shown.Len())
	}
	read(false)
	b.move(t, 1)
	read(true)
}

// A diff in the database can be read even if the store cannot be opened.
func TestDiffInDatabaseIsReadWithoutStore(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new(onePart)})
	b.addMoved(t, 2, file{path: "a", text: new(onePart)})
	missing := errors.New("the folder is missing")
	reader := extdiff.Reader{DB: b.Connected, Open: func(context.Context) (*blobstore.Store, error) {
		return nil,
			missing
	}}

	var shown bytes.Buffer
	require.NoError(t, reader.Read(t.Context(), 1, func(r *extdiff.Reading) error {
		return r.WriteText(t.Context(),
			r.Files[0], &shown)
	}))
	require.Equal(t, onePart, shown.String())
	require.ErrorIs(t, reader.Read(t.Context(), 2, func(*extdiff.Reading) error { return nil }), missing)
}
