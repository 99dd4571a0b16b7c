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

// GenerationError reports that the definitions installed in a database differ from the
// definitions that the holder has loaded. It is not a failure: a worker that has loaded
// the installed definitions does the work.
type GenerationError struct {
	Key      string
	Database string
	// Own and Installed are the digests of the loaded and of the installed definitions.
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

// outdated returns a *GenerationError if the digest that a database has installed for a
// lease differs from the holder's digest. It returns nil if either digest is unknown.
func (m *Manager) outdated(key string, db database.Database, installed string) error {
	own := m.Digests[key]
	if own == "" || installed == "" || own == installed {
		return nil
	}
	return &GenerationError{Key: key, Database: db.Name, Own: own, Installed: installed}
}

// CheckGeneration returns a *GenerationError if the definitions that the jobs database
// has installed for the lease differ from the holder's. If on is a transaction, no
// installation commits before it ends, so work without a lease can rely on the result,
// too.
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

// LostToInstall reports whether err is the loss of the lease to an installation of
// definitions: the fence refuses the holder's token, but the holder still has the lease.
func (l *Lease) LostToInstall(ctx context.Context, err error) bool {
	if _, refused := errors.AsType[*pgconn.PgError](err); !refused || !errors.Is(err, ErrLost) ||
		l.manager.Digests[l.key] == "" {
		return false
	}
	kept, err := l.manager.Jobs.AsyncQueries().LeaseKept(ctx,
		dbsqlc.LeaseKeptParams{Key: l.key, Token: l.token, Holder: l.Holder(), AcquiredAt: l.acquired})
	return err == nil && kept
}

// UndoHolder is the prefix of lease-holder names of processes that undo or forget
// deletions.
const UndoHolder = "undo:"

// ByUndo reports whether the lease holder with this name undoes or forgets deletions.
func ByUndo(holder string) bool { return strings.HasPrefix(holder, UndoHolder) }

// UndoTTL is the duration of leases for undo. Workers acquire leases with the same keys
// for a shorter time.
const UndoTTL = 2 * time.Minute

// LostToUndo reports whether err means that an undo took the lease. The undo releases the
// lease when it ends.
func (l *Lease) LostToUndo(ctx context.Context, err error) bool {
	if !errors.Is(err, ErrLost) {
		return false
	}
	row, err := l.manager.Jobs.AsyncQueries().LeaseHolder(ctx, l.key)
	return err == nil && ByUndo(row.Holder)
}
