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

// Skip is why a diff was not moved.
type Skip string

// The reasons. Those behind Kept are recorded with the diff, and counted, until it is
// moved.
const (
	// Gone: there is no such diff.
	Gone Skip = "gone"
	// External: it has been moved before.
	External Skip = "already_external"
	// NotDue: it is empty, or the rule has it stay in the database.
	NotDue Skip = "not_due"
	// Kept: it was brought back into the database by hand.
	Kept Skip = "kept_in_database"
	// TooLarge: its texts are longer than the 4-byte columns for offset and size can
	// tell.
	TooLarge Skip = "too_large"
	// FilesMissing: it has fewer rows of files than its files_count says.
	FilesMissing Skip = "files_missing"
	// Inconsistent: a file's text is external already although the diff is not.
	Inconsistent Skip = "inconsistent"
)

// Skips are all reasons.
func Skips() []Skip {
	return []Skip{Gone, External, NotDue, Kept, TooLarge, FilesMissing, Inconsistent}
}

// Point is a step of the work, for tests that stop it there.
type Point string

// The points of a move, in their order; at PointSwitched the rows are changed but not
// committed. Then those of bringing back, and those of removing an object.
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
	// mostTries is how often a diff is begun anew because its rows or its object changed
	// meanwhile.
	mostTries = 3
	// defaultTransfer bounds each statement that puts an object back into rows,
	// defaultStatement any other statement.
	defaultTransfer  = 10 * time.Minute
	defaultStatement = 30 * time.Second
	defaultLock      = 5 * time.Second
	defaultSnapshot  = time.Minute
)

// Limits bound the work on one diff. Zero values stand for 10 min, 30 s, 5 s and a
// minute. Neither an upload nor a restore has one as a whole.
type Limits struct {
	// Transfer bounds each statement that puts an object back into rows: some pieces of
	// it, or all of its files.
	Transfer time.Duration
	// Statement bounds every statement but the one that streams the texts; Lock each wait
	// for a lock.
	Statement, Lock time.Duration
	// Snapshot is how long an upload reads from one snapshot of the rows before it takes
	// another.
	Snapshot time.Duration
}

func (l Limits) orDefaults() Limits {
	return Limits{
		Transfer: cmp.Or(l.Transfer, defaultTransfer), Statement: cmp.Or(l.Statement, defaultStatement),
		Lock: cmp.Or(l.Lock, defaultLock), Snapshot: cmp.Or(l.Snapshot, defaultSnapshot),
	}
}

// Engine moves single diffs of one database to one store, and back. It is safe for
// concurrent use.
type Engine struct {
	DB    database.Database
	Store *blobstore.Store
	// Owner is checked before an object is written or deleted. Nil skips the check.
	Owner *Owner
	Rule  Rule
	// Holder names this process to others, such as "host:pid:random".
	Holder string
	Limits Limits
	// TTL is how long a claim lasts without being renewed; 0 means a minute.
	TTL time.Duration
	// Reached, if set, is told of every point that the work comes to.
	Reached func(Point)
}

func (e *Engine) ttl() time.Duration { return cmp.Or(e.TTL, defaultTTL) }

// snapshotLimit is when the server ends a snapshot whose end was missed. A piece may take
// as long as all those before it.
func (e *Engine) snapshotLimit() time.Duration {
	limits := e.Limits.orDefaults()
	return max(limits.Statement, 3*limits.Snapshot)
}

func (e *Engine) reach(p Point) {
	if e.Reached != nil {
		e.Reached(p)
	}
}

// Moved is the outcome for one diff.
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
// claim is lost or the rows change. It returns a *BusyError if another worker holds the
// diff, and the *OutageError or *AccessError of the store.
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

// DueSince is the time from which a diff had to be moved by the rule, and not before
// external diffs came into the database.
func (e *Engine) DueSince(ctx context.Context, diffID int64) (since time.Time, err error) {
	err = e.DB.Pool.QueryRow(ctx, e.DB.Names.Render(statement("due_since")), diffID, e.Rule == Outdated).Scan(&since)
	return since, problem.Doing(err, "read since when diff %d is due", diffID)
}

// errChanged says that the rows differ from the ones that were read for the object.
var errChanged = errors.New("the diff has changed meanwhile")

// survey holds the rows read for an object.
type survey struct {
	// skip is why the diff is not to be moved any more.
	skip         Skip
	files        int64
	bytes        int64
	inconsistent bool
	fingerprint  string
}

func (e *Engine) try(ctx context.Context, diffID int64, again bool) (Moved, error) {
	moved := Moved{DiffID: diffID}
	found, err := e.look(ctx, e.DB.Pool, diffID, "")
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
	err = claimed.under(ctx, func(held context.Context) error { return e.moveClaimed(held, claimed, found, &moved) })
	return moved, err
}

func (e *Engine) moveClaimed(ctx context.Context, claimed *claim, found look, moved *Moved) error {
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

// look is how a diff stands.
type look struct {
	diffID, mergeRequestID int64
	filesCount             int64
	skip                   Skip
}

// look reads the diff's row, with a locking clause or none.
func (e *Engine) look(ctx context.Context, on queryer, diffID int64, lock string) (look, error) {
	return scanLook(on.QueryRow(ctx, e.lookStatement(lock), diffID), diffID)
}

func (e *Engine) lookStatement(lock string) string {
	return e.DB.Names.Render(e.Rule.statement("look", "lock", lock))
}

// scanLook reads the row of a look.
func scanLook(row pgx.Row, diffID int64) (look, error) {
	found := look{diffID: diffID}
	var external, kept, due bool
	err := row.Scan(&found.mergeRequestID, &found.filesCount, &external, &kept, &due)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		found.skip = Gone
	case err != nil:
		return found, fmt.Errorf("look at the diff: %w", err)
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

// claim takes the diff's claim, and looks again under a lock.
func (e *Engine) claim(ctx context.Context, diffID int64) (claimed *claim, found look, err error) {
	err = e.transact(ctx, func(tx pgx.Tx) error {
		taken, err := take(ctx, tx, e.DB, diffID, e.Holder, e.ttl())
		if err != nil {
			return err
		}
		found, err = e.look(ctx, tx, diffID, "FOR NO KEY UPDATE OF diff")
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
		// It has come to the commit, behind which the answer may have got lost. What
		// fails before is rolled back.
		err = errors.Join(err, claimed.release(ctx))
	}
	return claimed, found, err
}

// errNothingToDo rolls a claim back.
var errNothingToDo = errors.New("nothing to do")

// obstacle is why these files cannot be moved.
func (s survey) obstacle(found look) Skip {
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

// state is the state that a refusal was for; queries/refused.sql compares it.
func (s survey) state(found look) string {
	return fmt.Sprintf("%d %s", found.filesCount, s.fingerprint)
}

// compare reads an object back.
func (e *Engine) compare(ctx context.Context, key string, want blobstore.Digest) error {
	e.reach(PointUploaded)
	found, err := e.Store.Digest(ctx, key)
	switch {
	case err != nil:
		return err
	case found.Size != want.Size:
		return fmt.Errorf("read %s back: it has %d bytes, %d were written", key, found.Size, want.Size)
	case found != want:
		return fmt.Errorf("read %s back: its checksum is not that of what was written", key)
	}
	e.reach(PointVerified)
	return nil
}
