package extdiff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/database"
	"sexton/internal/lease"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

const (
	// agreedFor is how long a look at the marker counts: one small read for all objects of a minute.
	agreedFor = time.Minute
	// sealEvery is how often the seal changes, a little less than the hour between two ticks.
	sealEvery = 50 * time.Minute
	// holdFor is how long a server that was started anew waits: more than twice as long as a seal lasts.
	holdFor = 2 * time.Hour
	// mostLooks is how often marker and seal are read before they are held to differ: another process may change both in between.
	mostLooks = 5
	adoptFix  = "set another bucket or prefix; or run `sexton diffs adopt` where this database is the heir and no other database uses these objects"
)

// ErrNotOurs says that the objects of a store belong to another database. It is wrapped in a *blobstore.AccessError, which
// names both.
var ErrNotOurs = errors.New("the objects belong to another database")

// Owner ensures that the objects of one opened store belong to one database. It is safe for concurrent use.
type Owner struct {
	DB    database.Database
	Store *blobstore.Store

	mu     sync.Mutex
	agreed time.Time
	folder os.FileInfo
}

// Check returns nil where the store's marker is this database's; a store without one gets it. Otherwise it returns an
// *blobstore.AccessError that wraps ErrNotOurs. What it finds counts for a minute, in a folder for as long as the same disk is
// there. A nil Owner has nothing against anything.
func (o *Owner) Check(ctx context.Context) error {
	if o == nil {
		return nil
	}
	folder := o.Store.FolderInfo()
	o.mu.Lock()
	// Without its disk a folder is an empty one, which would take a minute's objects.
	fresh := !o.agreed.IsZero() && time.Since(o.agreed) < agreedFor && (folder == nil && o.folder == nil || os.SameFile(folder, o.folder))
	o.mu.Unlock()
	if fresh {
		return nil
	}
	asked := time.Now()
	if _, _, err := o.look(ctx); err != nil {
		return fmt.Errorf("look whose the objects are: %w", err)
	}
	o.mu.Lock()
	o.agreed, o.folder = asked, folder
	o.mu.Unlock()
	return nil
}

// self is who we are, and what we know of the store.
type self struct {
	Marker

	// next is the store's next seal while it is being changed; seals are those of all stores, as one may have two names.
	next  string
	seals []string
	// known reports that this database has used the store, sealed that it has seen its marker there.
	known, sealed bool
}

func (o *Owner) self(ctx context.Context) (self, error) {
	var s self
	row, err := o.DB.Queries().StoreSelf(ctx, o.Store.Identity())
	if errors.Is(err, pgx.ErrNoRows) {
		return s, errors.New(o.DB.Names.Render(`the table "sexton".external_diff_installation is empty`))
	}
	if err != nil {
		return s, fmt.Errorf("read who this installation is: %w", err)
	}
	s.Marker = Marker{Installation: row.Installation, Server: row.Server, Database: row.Database, Seal: row.Seal, CreatedAt: row.Now.UTC()}
	s.next, s.seals, s.known, s.sealed = row.Next, row.Seals, row.Known, row.Sealed
	return s, nil
}

// obstacle is why the objects under a marker are not ours; "" where they are.
func (s self) obstacle(m *Marker) string {
	switch {
	case m == nil:
		return "the marker " + MarkerKey + " that this installation has written is gone: another disk or bucket may stand in its place"
	case m.Installation != s.Installation:
		return fmt.Sprintf("the objects there belong to %s; this is %s", m, s.Marker)
	case m.Server != s.Server:
		return fmt.Sprintf("the objects there belong to %s; this is %s, a copy of it, or it has been moved", m, s.Marker)
	case s.known && !slices.Contains(s.seals, m.Seal):
		return fmt.Sprintf("the objects there belong to %s; this is an older copy of it, or one that was set back: its seal is %s, not %s",
			m, s.Seal, m.Seal)
	}
	return ""
}

// look compares the marker with what the database knows. Where neither knows anything of the other, they get to.
func (o *Owner) look(ctx context.Context) (self, time.Time, error) {
	var reason string
	for range mostLooks {
		m, written, err := readMarker(ctx, o.Store)
		if err != nil {
			return self{}, time.Time{}, err
		}
		s, err := o.self(ctx)
		if err != nil {
			return s, time.Time{}, err
		}
		if m == nil && !s.sealed {
			reason = ""
			if err := o.introduce(ctx, s); err != nil {
				return s, time.Time{}, err
			}
			continue // What is there now decides, no matter which worker wrote it.
		}
		if reason = s.obstacle(m); reason != "" {
			continue
		}
		if !s.sealed {
			if err := o.acquaint(ctx, m.Seal); err != nil {
				return s, time.Time{}, err
			}
		}
		s.CreatedAt = m.CreatedAt
		return s, written, nil
	}
	if reason == "" {
		return self{}, time.Time{}, fmt.Errorf("write %s in %s: it does not stay", MarkerKey, o.Store)
	}
	return self{}, time.Time{}, o.Store.Refuse(reason, adoptFix, ErrNotOurs)
}

// introduce writes the first marker. The row comes first: who has written a marker knows its seal.
func (o *Owner) introduce(ctx context.Context, s self) error {
	m := s.Marker
	var err error
	if m.Seal, err = o.DB.Queries().StoreIntroduce(ctx, o.Store.Identity()); err != nil {
		return fmt.Errorf("note the store %s: %w", o.Store, err)
	}
	if err := writeMarker(ctx, o.Store, "", m); err != nil && !errors.Is(err, blobstore.ErrChanged) {
		return err
	}
	return nil
}

// acquaint notes that the store's marker has been seen. A store that is known under another name so far keeps its seal.
func (o *Owner) acquaint(ctx context.Context, seal string) error {
	return problem.Doing(o.DB.Queries().StoreAcquaint(ctx, o.Store.Identity(), seal), "note the store %s", o.Store)
}

// Seal checks the marker and, where its seal has been there for the better part of an hour, changes it: first the database
// learns the next one, then the marker has it, then the database forgets the last one. A crash in between leaves both valid,
// and the next call goes on. For two hours after the server's start it changes nothing. It returns when the marker was written,
// by the store's clock: that time has passed there for sure.
func (o *Owner) Seal(ctx context.Context, fence *lease.Lease) (time.Time, error) {
	s, written, err := o.look(ctx)
	if err != nil {
		return written, fmt.Errorf("look whose the objects are: %w", err)
	}
	due := false
	err = fenced(ctx, o.DB, fence, func(tx pgx.Tx) error {
		on := o.DB.Names.Queries(tx)
		if err := on.StoreHold(ctx, holdFor.Seconds(), o.Store.Identity()); err != nil {
			return err
		}
		next, err := on.StoreNextSeal(ctx, o.Store.Identity(), sealEvery.Seconds())
		s.next, due = next, err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // What is on hold stays so.
		}
		return err
	})
	if err != nil {
		return written, fmt.Errorf("choose the store's next seal: %w", err)
	}
	if !due {
		return written, nil
	}
	return o.reseal(ctx, s)
}

func (o *Owner) reseal(ctx context.Context, s self) (time.Time, error) {
	over, err := o.Store.Version(ctx, MarkerKey)
	if err != nil {
		return time.Time{}, err
	}
	// It may be another than the one that was looked at.
	m, _, err := readMarker(ctx, o.Store)
	if err != nil {
		return time.Time{}, err
	}
	if reason := s.obstacle(m); reason != "" {
		return time.Time{}, o.Store.Refuse(reason, adoptFix, ErrNotOurs)
	}
	return o.stamp(ctx, s, over)
}

// stamp has the marker say who we are, under the next seal.
func (o *Owner) stamp(ctx context.Context, s self, over blobstore.Version) (time.Time, error) {
	m := s.Marker
	m.Seal = s.next
	if err := writeMarker(ctx, o.Store, over, m); err != nil {
		return time.Time{}, err
	}
	found, written, err := readMarker(ctx, o.Store)
	if err != nil {
		return time.Time{}, err
	}
	if found == nil || found.Seal != m.Seal || found.Installation != m.Installation {
		return time.Time{}, fmt.Errorf("write %s in %s: %w", MarkerKey, o.Store, blobstore.ErrChanged)
	}
	err = o.DB.Queries().StoreSealed(ctx, o.Store.Identity(), m.Seal)
	return written, problem.Doing(err, "note the store's seal")
}

// begin checks in a transaction that the lease is still held, and bounds it.
func begin(ctx context.Context, tx pgx.Tx, names pgcatalog.Names, fence *lease.Lease) error {
	if err := fence.Confirm(ctx, tx.Conn()); err != nil {
		return err //nolint:wrapcheck // It names the lease.
	}
	_, err := tx.Exec(ctx, names.Render(`SELECT "sexton".begin_batch($1, $2, $3, $4, true)`),
		fence.Key(), fence.Token(), defaultStatement.Milliseconds(), defaultLock.Milliseconds())
	return problem.Doing(err, "begin")
}

// fenced runs a transaction under a lease's fence.
func fenced(ctx context.Context, db database.Database, fence *lease.Lease, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := begin(ctx, tx, db.Names, fence); err != nil {
			return err
		}
		return do(tx)
	})
}

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
	// number, which a dump that is restored in another place does not.
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

// Adopted is the result of Adopt.
type Adopted struct {
	Store string `json:"store"`
	// Was is the database that the objects belonged to, nil where it is unknown; Now is this one.
	Was *Marker `json:"was"`
	Now Marker  `json:"now"`
	// Changed is false where they were this database's already.
	Changed bool `json:"changed"`
}

// Adopt makes the objects of the store this database's, no matter which database they belonged to: from then on that one is refused.
func (o *Owner) Adopt(ctx context.Context) (Adopted, error) {
	done := Adopted{Store: o.Store.String()}
	over, err := o.Store.Version(ctx, MarkerKey)
	if err != nil {
		return done, err
	}
	if done.Was, _, err = readMarker(ctx, o.Store); err != nil && !errors.Is(err, ErrNotOurs) {
		return done, err
	}
	s, err := o.self(ctx)
	if err != nil {
		return done, err
	}
	if done.Was != nil && s.obstacle(done.Was) == "" {
		done.Now = *done.Was
		return done, o.acquaint(ctx, done.Was.Seal)
	}
	if s.next, err = o.DB.Queries().StoreAdopt(ctx, o.Store.Identity()); err != nil {
		return done, fmt.Errorf("choose the store's next seal: %w", err)
	}
	if _, err := o.stamp(ctx, s, over); err != nil {
		return done, fmt.Errorf("adopt %s: %w", o.Store, err)
	}
	done.Now, done.Changed = s.Marker, true
	done.Now.Seal = s.next
	return done, nil
}
