package extdiff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"sexton/internal/blobstore"
)

const (
	// MarkerKey is the object that says whose the other ones are.
	MarkerKey = rootPrefix + ".sexton.json"
	// mostMarker is more than any marker has, in bytes.
	mostMarker = 16 << 10
	about      = "The objects beside this one belong to the database named here. Sexton removes objects that its rows do not refer to."
)

// Marker is the content of the marker of a store.
type Marker struct {
	About string `json:"about"`
	// Installation is a random number that a copy of the database shares; Server is the server's identifier and the database's
	// number, which a dump that is restored elsewhere does not.
	Installation string `json:"installation"`
	Server       string `json:"server"`
	Database     string `json:"database"`
	// Seal changes every hour. A copy of the whole server shares all but the next one.
	Seal      string    `json:"seal"`
	CreatedAt time.Time `json:"created_at"`
}

// String names the owner.
func (m Marker) String() string {
	return fmt.Sprintf("database %q (server %s, installation %s)", m.Database, m.Server, m.Installation)
}

// readMarker returns the marker and when it was written, by the store's clock; nil where there is none.
func readMarker(ctx context.Context, store *blobstore.Store) (*Marker, time.Time, error) {
	content, written, err := store.Get(ctx, MarkerKey, mostMarker)
	if errors.Is(err, blobstore.ErrNotFound) {
		return nil, time.Time{}, nil
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	m := &Marker{}
	if err := json.Unmarshal(content, m); err != nil || m.Installation == "" {
		return nil, time.Time{}, store.Refuse("its marker "+MarkerKey+" cannot be read", adoptFix, errors.Join(ErrNotOurs, err))
	}
	return m, written, nil
}

// writeMarker writes the marker in place of a version of it. The error is blobstore.ErrChanged where it is another by then.
func writeMarker(ctx context.Context, store *blobstore.Store, over blobstore.Version, m Marker) error {
	m.About = about
	content, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	_, err = store.Put(ctx, MarkerKey, over, func(w io.Writer) error {
		_, err := w.Write(append(content, '\n'))
		return err
	})
	return err
}
