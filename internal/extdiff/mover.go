package extdiff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/database"
	"sexton/internal/problem"
)

// Skip is the reason for which a diff was not moved.
type Skip string

// The reasons for which a diff is not moved. TooLarge and the reasons after it are stored
// with the diff until it is moved, and counted.
const (
	// Gone means that the diff does not exist.
	Gone Skip = "gone"
	// External means that the texts are already in the store.
	External Skip = "already_external"
	// NotDue means that the diff is empty, or not due by the rule.
	NotDue Skip = "not_due"
	// Kept means that an operator has restored the diff to the database.
	Kept Skip = "kept_in_database"
	// TooLarge means that the texts exceed the range of the 4-byte columns for offset and
	// size.
	TooLarge Skip = "too_large"
	// FilesMissing means that the diff has fewer file rows than files_count.
	FilesMissing Skip = "files_missing"
	// Inconsistent means that a file is external although the diff is not.
	Inconsistent Skip = "inconsistent"
)

// Skips returns all reasons.
func Skips() []Skip {
	return []Skip{Gone, External, NotDue, Kept, TooLarge, FilesMissing, Inconsistent}
}

// Point is a step of the work at which tests can interrupt it.
type Point string

// The points of a move, of a restore, and of the removal of an object. At PointSwitched,
// the transaction has changed the rows but not committed.
const (
	PointClaimed  Point = "claimed"
	PointReading  Point = "reading"
	PointUploaded Point = "uploaded"
	PointVerified Point = "verified"
	PointSwitched Point = "switched"
	PointMoved    Point = "moved"

	PointCollected Point = "collected"
	PointRestored  Point = "restored"

	PointEntry   Point = "entry"
	PointUnused  Point = "unused"
	PointDeleted Point = "deleted"
)

const (
	// mostTries limits the tries of a move whose rows or object change, and the tries to
	// take a claim.
	mostTries = 3
	// defaultTransfer limits each statement that writes texts of an object to rows.
	// defaultStatement limits every other statement.
	defaultTransfer  = 10 * time.Minute
	defaultStatement = 30 * time.Second
	defaultLock      = 5 * time.Second
	defaultSnapshot  = time.Minute
)

// Limits are time limits for one diff. The defaults are 10 minutes for Transfer, 30
// seconds for Statement, 5 seconds for Lock, and one minute for Snapshot. The total time
// of an upload or a restore has no limit.
type Limits struct {
	// Transfer limits each statement that writes texts of an object to rows.
	Transfer time.Duration
	// Statement limits every other statement except the one that streams the texts. Lock
	// limits each wait for a lock.
	Statement, Lock time.Duration
	// Snapshot is the time for which an upload reads from one snapshot.
	Snapshot time.Duration
}

func (l Limits) orDefaults() Limits {
	return Limits{
		Transfer: cmp.Or(l.Transfer, defaultTransfer), Statement: cmp.Or(l.Statement, defaultStatement),
		Lock: cmp.Or(l.Lock, defaultLock), Snapshot: cmp.Or(l.Snapshot, defaultSnapshot),
	}
}

// Engine moves single diffs of one database to one store, and restores them. It is safe
// for concurrent use.
type Engine struct {
	DB    database.Database
	Store *blobstore.Store
	// Owner is checked before an object is written or deleted. Nil skips the check.
	Owner *Owner
	Rule  Rule
	// Holder identifies this process in messages, for example "host:pid:random".
	Holder string
	Limits Limits
	// TTL is the length of a claim that is not renewed. 0 means one minute.
	TTL time.Duration
	// Reached, if set, is called at each Point.
	Reached func(Point)
}

func (e *Engine) ttl() time.Duration { return cmp.Or(e.TTL, defaultTTL) }

// snapshotLimit returns the time after which the server ends a snapshot. It exceeds
// Limits.Snapshot, because the last piece of a snapshot may take as long as all earlier
// pieces.
func (e *Engine) snapshotLimit() time.Duration {
	limits := e.Limits.orDefaults()
	return max(limits.Statement, 3*limits.Snapshot)
}

func (e *Engine) reach(p Point) {
	if e.Reached != nil {
		e.Reached(p)
	}
}

// Moved is the outcome of Move for one diff.
type Moved struct {
	DiffID int64 `json:"diff_id"`
	// Skipped is empty if the diff was moved.
	Skipped Skip `json:"skipped,omitempty"`
	// Key, Bytes and Files describe the object.
	Key   string `json:"key,omitempty"`
	Bytes int64  `json:"bytes"`
	Files int64  `json:"files"`
}

// Move moves a diff that is in the database and due by the rule. It starts again if the
// claim is lost, or if the rows or the object change. It returns a *BusyError if another
// worker holds the diff, and the *OutageError or *AccessError of the store.
func (e *Engine) Move(ctx context.Context, diffID int64) (Moved, error) {
	for tried := range mostTries {
		moved, err := e.try(ctx, diffID, tried > 0)
		switch {
		case err == nil:
			return moved, nil
		case !errors.Is(err, errChanged) && !errors.Is(err, errLost) && !errors.Is(err, blobstore.ErrChanged):
			return Moved{DiffID: diffID}, fmt.Errorf("move diff %d: %w", diffID, err)
		}
	}
	return Moved{DiffID: diffID}, fmt.Errorf("move diff %d: its rows or its object changed during each of %d attempts",
		diffID, mostTries)
}

// DueSince returns the time at which a diff became due by the rule. The time is never
// before the installation of external diffs.
func (e *Engine) DueSince(ctx context.Context, diffID int64) (since time.Time, err error) {
	err = e.DB.Pool.QueryRow(ctx, e.DB.Names.Render(statement("due_since")), diffID, e.Rule == Outdated).Scan(&since)
	return since, problem.Doing(err, "read the time since which diff %d is due", diffID)
}

// errChanged reports that the rows differ from the ones that were read for the object.
var errChanged = errors.New("the diff has changed since it was read")

// survey holds the number and size of the files of a diff that is being moved, and the
// fingerprint of their row versions.
type survey struct {
	// skip is the reason for which the diff must not be moved any more, or "".
	skip         Skip
	files        int64
	bytes        int64
	inconsistent bool
	fingerprint  string
}

func (e *Engine) try(ctx context.Context, diffID int64, again bool) (Moved, error) {
	moved := Moved{DiffID: diffID}
	found, err := e.readDiff(ctx, e.DB.Pool, diffID, "")
	if err != nil || found.skip != "" {
		moved.Skipped = found.skip
		return moved, err
	}
	if err := e.Owner.Check(ctx); err != nil {
		return moved, err
	}
	claimed, found, err := e.claim(ctx, diffID)
	if err != nil || found.skip != "" {
		moved.Skipped = found.skip
		return moved, err
	}
	e.reach(PointClaimed)
	claimed.again = again
	err = claimed.run(ctx, func(held context.Context) error { return e.moveClaimed(held, claimed, found, &moved) })
	return moved, err
}

func (e *Engine) moveClaimed(ctx context.Context, claimed *claim, found diffRow, moved *Moved) error {
	moved.Key = Key(found.mergeRequestID, found.diffID)
	surveyed, digest, err := e.upload(ctx, claimed, found, moved.Key)
	if err != nil {
		return err
	}
	if moved.Skipped = surveyed.obstacle(found); moved.Skipped != "" {
		return e.record(ctx, claimed, moved.Skipped, surveyed.state(found))
	}
	if err := e.compare(ctx, moved.Key, digest); err != nil {
		return err
	}
	moved.Bytes, moved.Files = digest.Size, surveyed.files
	if moved.Skipped, err = e.finish(ctx, claimed, found, surveyed, digest); err == nil && moved.Skipped == "" {
		e.reach(PointMoved)
	}
	return err
}

// diffRow is the row of a diff. skip is the reason for which it must not be moved, or "".
type diffRow struct {
	diffID, mergeRequestID int64
	filesCount             int64
	skip                   Skip
}

// readDiff reads the row of a diff. lock is a locking clause or "".
func (e *Engine) readDiff(ctx context.Context, on queryer, diffID int64, lock string) (diffRow, error) {
	return scanDiff(on.QueryRow(ctx, e.diffStatement(lock), diffID), diffID)
}

func (e *Engine) diffStatement(lock string) string {
	return e.DB.Names.Render(e.Rule.statement("diff", "lock", lock))
}

// scanDiff scans the result of diffStatement. It sets skip if the diff does not exist, is
// external, is kept in the database, or is not due.
func scanDiff(row pgx.Row, diffID int64) (diffRow, error) {
	found := diffRow{diffID: diffID}
	var external, kept, due bool
	err := row.Scan(&found.mergeRequestID, &found.filesCount, &external, &kept, &due)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		found.skip = Gone
	case err != nil:
		return found, fmt.Errorf("read the diff: %w", err)
	case external:
		found.skip = External
	case kept:
		found.skip = Kept
	case !due:
		found.skip = NotDue
	}
	return found, nil
}

type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// claim claims a diff, locks its row, and reads it again. It claims nothing if the diff
// must not be moved.
func (e *Engine) claim(ctx context.Context, diffID int64) (claimed *claim, found diffRow, err error) {
	err = e.transact(ctx, func(tx pgx.Tx) error {
		taken, err := take(ctx, tx, e.DB, diffID, e.Holder, e.ttl())
		if err != nil {
			return err
		}
		found, err = e.readDiff(ctx, tx, diffID, "FOR NO KEY UPDATE OF diff")
		if err == nil && found.skip != "" {
			return errNothingToDo
		}
		if err == nil {
			claimed = taken
		}
		return err
	})
	switch {
	case errors.Is(err, errNothingToDo):
		err = nil
	case err != nil && claimed != nil:
		// The commit failed, but it may have succeeded if only the response was lost. The
		// claim is released in either case.
		err = errors.Join(err, claimed.release(ctx))
	}
	return claimed, found, err
}

// errNothingToDo rolls back the transaction of a claim if the diff must not be moved.
var errNothingToDo = errors.New("nothing to do")

// obstacle returns the reason for which the files cannot be moved, or "".
func (s survey) obstacle(found diffRow) Skip {
	switch {
	case s.skip != "":
		return s.skip
	case s.inconsistent:
		return Inconsistent
	case s.files < found.filesCount || s.files == 0:
		return FilesMissing
	case s.bytes > mostBytes:
		return TooLarge
	}
	return ""
}

// state returns a text that identifies the state in which a diff was skipped.
// queries/refused.sql compares the text with the current state of the diff.
func (s survey) state(found diffRow) string {
	return fmt.Sprintf("%d %s", found.filesCount, s.fingerprint)
}

// compare reads an object back. It returns an error if the object differs from the
// written bytes.
func (e *Engine) compare(ctx context.Context, key string, want blobstore.Digest) error {
	e.reach(PointUploaded)
	found, err := e.Store.Digest(ctx, key)
	switch {
	case err != nil:
		return err
	case found.Size != want.Size:
		return fmt.Errorf("read %s back: it has %d bytes instead of %d", key, found.Size, want.Size)
	case found != want:
		return fmt.Errorf("read %s back: its checksum differs from the written bytes", key)
	}
	e.reach(PointVerified)
	return nil
}
