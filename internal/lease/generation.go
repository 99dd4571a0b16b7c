package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
)

// GenerationError says that other definitions are installed than the holder works with.
// It is no failure: the work waits for a worker that has the installed ones.
type GenerationError struct {
	Key      string
	Database string
	// Own and Installed are the digests.
	Own, Installed string
}

func (e *GenerationError) Error() string {
	return fmt.Sprintf("other definitions are installed in database %s than this process has read (%s is installed, %s is its own): "+
		"let it read the files that were installed, or run `sexton triggers install` with its own", e.Database,
		e.Installed, e.Own)
}

// Unwrap makes it a lost lease: nothing may be written.
func (*GenerationError) Unwrap() error { return ErrLost }

// outdated compares what a database has installed for a lease with what the holder works
// with. Where either is not known, it fits.
func (m *Manager) outdated(key string, db database.Database, installed string) error {
	own := m.Digests[key]
	if own == "" || installed == "" || own == installed {
		return nil
	}
	return &GenerationError{Key: key, Database: db.Name, Own: own, Installed: installed}
}

// Current returns a *GenerationError where the jobs database has another generation
// installed for the lease than the holder has. No installation commits before the
// transaction on which it asks, so that work without a lease is held to the generation,
// too.
func (m *Manager) Current(ctx context.Context, on dbsqlc.DBTX, key string) error {
	if m.Digests[key] == "" {
		return nil
	}
	installed, err := m.Jobs.Names.Queries(on).FenceDigest(ctx, key)
	if err != nil {
		return fmt.Errorf("look which definitions are installed: %w", err)
	}
	return m.outdated(key, m.Jobs, installed)
}

// Installed reports whether it was an installation of definitions that ended the work:
// the fence refuses the holder, yet the lease is still its own.
func (l *Lease) Installed(ctx context.Context, err error) bool {
	if _, refused := errors.AsType[*pgconn.PgError](err); !refused || !errors.Is(err, ErrLost) ||
		l.manager.Digests[l.key] == "" {
		return false
	}
	kept, err := l.manager.Jobs.AsyncQueries().LeaseKept(ctx,
		dbsqlc.LeaseKeptParams{Key: l.key, Token: l.token, Holder: l.Holder(), AcquiredAt: l.acquired})
	return err == nil && kept
}

// UndoHolder begins the names of the holders of leases that take deletions back or forget
// them.
const UndoHolder = "undo:"

// ByUndo reports whether a holder of this name takes deletions back.
func ByUndo(holder string) bool { return strings.HasPrefix(holder, UndoHolder) }

// UndoTTL is the length of their leases: no lease that shares its key with leases of
// other lengths is longer.
const UndoTTL = 2 * time.Minute

// Undoing reports whether the lease has passed to a holder that takes deletions back: it
// does so on purpose, and gives the lease back.
func (l *Lease) Undoing(ctx context.Context, err error) bool {
	if !errors.Is(err, ErrLost) {
		return false
	}
	look, err := l.manager.Jobs.AsyncQueries().LeaseLook(ctx, l.key)
	return err == nil && ByUndo(look.Holder)
}
