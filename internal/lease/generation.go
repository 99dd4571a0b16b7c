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

// GenerationError reports that the definitions installed in a database differ from those
// that the holder has loaded. It is not a failure: a worker that has loaded the installed
// definitions does the work.
type GenerationError struct {
	Key      string
	Database string
	// Own and Installed are the digests.
	Own, Installed string
}

func (e *GenerationError) Error() string {
	return fmt.Sprintf("the definitions installed in database %s differ from the loaded ones (installed %s, loaded %s): "+
		"reload the process with the installed files, or run `sexton triggers install` with its files", e.Database,
		e.Installed, e.Own)
}

// Unwrap returns ErrLost, so that callers handle the error like a lost lease and write
// nothing.
func (*GenerationError) Unwrap() error { return ErrLost }

// outdated returns a *GenerationError if the generation that a database has installed for
// a lease differs from the holder's. It returns nil if either is unknown.
func (m *Manager) outdated(key string, db database.Database, installed string) error {
	own := m.Digests[key]
	if own == "" || installed == "" || own == installed {
		return nil
	}
	return &GenerationError{Key: key, Database: db.Name, Own: own, Installed: installed}
}

// CheckGeneration returns a *GenerationError if the jobs database has another generation
// installed for the lease than the holder has. No installation commits before the
// transaction that it queries on ends, so work without a lease can rely on the
// generation, too.
func (m *Manager) CheckGeneration(ctx context.Context, on dbsqlc.DBTX, key string) error {
	if m.Digests[key] == "" {
		return nil
	}
	installed, err := m.Jobs.Names.Queries(on).FenceDigest(ctx, key)
	if err != nil {
		return fmt.Errorf("read the installed generation: %w", err)
	}
	return m.outdated(key, m.Jobs, installed)
}

// LostToInstall reports whether an installation of definitions ended the work: the fence
// refuses the holder, but the holder still has the lease.
func (l *Lease) LostToInstall(ctx context.Context, err error) bool {
	if _, refused := errors.AsType[*pgconn.PgError](err); !refused || !errors.Is(err, ErrLost) ||
		l.manager.Digests[l.key] == "" {
		return false
	}
	kept, err := l.manager.Jobs.AsyncQueries().LeaseKept(ctx,
		dbsqlc.LeaseKeptParams{Key: l.key, Token: l.token, Holder: l.Holder(), AcquiredAt: l.acquired})
	return err == nil && kept
}

// UndoHolder is the prefix of the names of holders that undo or forget deletions.
const UndoHolder = "undo:"

// ByUndo reports whether a holder of this name undoes or forgets deletions.
func ByUndo(holder string) bool { return strings.HasPrefix(holder, UndoHolder) }

// UndoTTL is the duration of leases for undo. No lease that shares its key with leases of
// other durations is longer.
const UndoTTL = 2 * time.Minute

// LostToUndo reports whether an undo has taken the lease, which it releases when it ends.
func (l *Lease) LostToUndo(ctx context.Context, err error) bool {
	if !errors.Is(err, ErrLost) {
		return false
	}
	look, err := l.manager.Jobs.AsyncQueries().LeaseLook(ctx, l.key)
	return err == nil && ByUndo(look.Holder)
}
