package extdiff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/database"
	"sexton/internal/problem"
)

const (
	// checkValidFor is the time for which a check of the marker is valid. Each worker
	// therefore reads the marker once a minute instead of once per object.
	checkValidFor = time.Minute
	adoptFix      = "set another bucket or prefix; or run `sexton diffs adopt` if this database is the successor and no other database uses these objects"
)

// ErrNotOurs reports that the objects of a store belong to another database. It is
// wrapped in a *blobstore.AccessError that names both databases.
var ErrNotOurs = errors.New("the objects belong to another database")

// Owner checks that the objects of a store belong to one database. It is safe for
// concurrent use.
type Owner struct {
	DB    database.Database
	Store *blobstore.Store

	mu        sync.Mutex
	checkedAt time.Time
	folder    os.FileInfo
}

// Check returns nil if the store's marker names this database. If the store has no
// marker, Check writes it. Otherwise it returns a *blobstore.AccessError that wraps
// ErrNotOurs. The result is valid for a minute or, for a folder, until another disk is
// mounted. The Check of a nil Owner returns nil.
func (o *Owner) Check(ctx context.Context) error {
	if o == nil {
		return nil
	}
	folder := o.Store.FolderInfo()
	o.mu.Lock()
	// If the disk of a folder is unmounted, the mount point is an empty folder. No object
	// may be written there, even if the last check is still valid.
	fresh := !o.checkedAt.IsZero() && time.Since(o.checkedAt) < checkValidFor &&
		(folder == nil && o.folder == nil || os.SameFile(folder, o.folder))
	o.mu.Unlock()
	if fresh {
		return nil
	}

	now := time.Now()
	if err := o.check(ctx); err != nil {
		return fmt.Errorf("check the owner of the objects: %w", err)
	}
	o.mu.Lock()
	o.checkedAt, o.folder = now, folder
	o.mu.Unlock()
	return nil
}

func (o *Owner) check(ctx context.Context) error {
	ours, known, err := o.ownMarker(ctx)
	if err != nil {
		return err
	}
	found, err := readMarker(ctx, o.Store)
	// Several workers may write the marker at the same time. In a folder, each of them
	// may remove the unfinished file of another, so the marker may be missing after a
	// write.
	for range mostWrites {
		if err != nil || found != nil || known {
			break
		}
		if err = writeMarker(ctx, o.Store, "", ours); err == nil || errors.Is(err, blobstore.ErrChanged) {
			found, err = readMarker(ctx, o.Store)
		}
	}
	if err != nil {
		return err
	}
	if reason := ours.obstacle(found); reason != "" {
		return o.Store.Refuse(reason, adoptFix, ErrNotOurs)
	}
	if known {
		return nil
	}
	return o.recordStore(ctx)
}

// ownMarker returns the marker of this database. known reports whether the database has
// seen its marker in the store before.
func (o *Owner) ownMarker(ctx context.Context) (ours Marker, known bool, err error) {
	row, err := o.DB.Queries().StoreInstallation(ctx, o.Store.Identity())
	if errors.Is(err, pgx.ErrNoRows) {
		return ours, false, errors.New(o.DB.Names.Render(`the table "sexton".external_diff_installation is empty`))
	}
	if err != nil {
		return ours, false, fmt.Errorf("read the identity of this installation: %w", err)
	}
	return Marker{Installation: row.Installation, Server: row.Server, Database: row.Database, CreatedAt: row.Now.UTC()},
		row.Known, nil
}

// recordStore records in the database that the marker was seen in the store.
func (o *Owner) recordStore(ctx context.Context) error {
	return problem.Doing(o.DB.Queries().StoreAdd(ctx, o.Store.Identity()), "record the store %s", o.Store)
}

const (
	// MarkerKey is the key of the object that identifies the owner of all objects in the
	// store.
	MarkerKey = rootPrefix + ".sexton.json"
	// mostWrites limits the attempts to write the marker while other workers write it.
	mostWrites = 20
	// mostMarker is the largest accepted marker, in bytes.
	mostMarker = 16 << 10
	about      = "The other objects here belong to this database. Sexton deletes the objects of deleted diffs."
)

// Marker identifies the installation that owns the objects in a store. It is the content
// of the object MarkerKey.
type Marker struct {
	About string `json:"about"`
	// Installation is a random id, which a copy of the database shares. Server contains
	// the server's identifier and the database's oid, which differ if a dump is restored
	// elsewhere.
	Installation string    `json:"installation"`
	Server       string    `json:"server"`
	Database     string    `json:"database"`
	CreatedAt    time.Time `json:"created_at"`
}

// String returns a text that identifies the owner.
func (m Marker) String() string {
	return fmt.Sprintf("database %q (server %s, installation %s)", m.Database, m.Server, m.Installation)
}

// obstacle returns the reason for which the objects of a store with the marker found do
// not belong to this database, or "".
func (m Marker) obstacle(found *Marker) string {
	switch {
	case found == nil:
		return "the marker " + MarkerKey +
			" that this installation wrote is missing: another disk or bucket may be in its place"
	case found.Installation != m.Installation:
		return fmt.Sprintf("the objects there belong to %s; this is %s", found, m)
	case found.Server != m.Server:
		return fmt.Sprintf("the objects there belong to %s; this is %s, a copy of it, or it has been moved", found, m)
	}
	return ""
}

// readMarker returns the marker, or nil if the store has none.
func readMarker(ctx context.Context, store *blobstore.Store) (*Marker, error) {
	content, err := store.Get(ctx, MarkerKey, mostMarker)
	if errors.Is(err, blobstore.ErrNotFound) {
		return nil, nil //nolint:nilnil // A store without a marker is not an error.
	}
	if err != nil {
		return nil, err
	}
	m := &Marker{}
	if err := json.Unmarshal(content, m); err != nil || m.Installation == "" {
		return nil, store.Refuse("its marker "+MarkerKey+" cannot be read", adoptFix, errors.Join(ErrNotOurs, err))
	}
	return m, nil
}

// writeMarker writes the marker, and replaces the version over of the old marker. It
// returns blobstore.ErrChanged if the store has another version.
func writeMarker(ctx context.Context, store *blobstore.Store, over blobstore.Version, m Marker) error {
	m.About = about
	content, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the marker: %w", err)
	}
	_, err = store.Put(ctx, MarkerKey, over, func(w io.Writer) error {
		_, err := w.Write(append(content, '\n'))
		return err
	})
	return err
}

// Adopted is the result of Adopt.
type Adopted struct {
	Store string `json:"store"`
	// Was is the previous owner, or nil if it is unknown. Now is this database.
	Was *Marker `json:"was"`
	Now Marker  `json:"now"`
	// Changed is false if this database already was the owner.
	Changed bool `json:"changed"`
}

// Adopt makes this database the owner of the store's objects. The checks of the previous
// owner fail from then on.
func (o *Owner) Adopt(ctx context.Context) (Adopted, error) {
	done := Adopted{Store: o.Store.String()}
	over, err := o.Store.Version(ctx, MarkerKey)
	if err != nil {
		return done, err
	}
	if done.Was, err = readMarker(ctx, o.Store); err != nil && !errors.Is(err, ErrNotOurs) {
		return done, err
	}
	if done.Now, _, err = o.ownMarker(ctx); err != nil {
		return done, err
	}
	if done.Changed = done.Now.obstacle(done.Was) != ""; !done.Changed {
		done.Now = *done.Was
		return done, o.recordStore(ctx)
	}
	if err := writeMarker(ctx, o.Store, over, done.Now); err != nil {
		return done, fmt.Errorf("adopt %s: %w", o.Store, err)
	}
	return done, o.recordStore(ctx)
}
