package extdiff

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/lease"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Table is the table of diffs. RemovalTable is the queue of objects to be removed.
const (
	Table        = "merge_request_diffs"
	RemovalTable = "external_diff_removals"
)

const (
	// windowRows is the number of diffs that one transaction reads.
	windowRows = 2000
	// longestSearch limits the time for which a run searches for due diffs. The run needs
	// the remaining time to remove objects.
	longestSearch = 15 * time.Second
	// mostWindows limits the transactions of a run. The next run continues after the last
	// window.
	mostWindows = 500
	// roundEvery is the minimum time between the starts of two rounds over all diffs. It
	// is a little less than the hour between two ticks.
	roundEvery = 50 * time.Minute
	// defaultLimit is the default of Scheduler.Limit.
	defaultLimit = 1000
)

// Schedule holds the statistics of one run of the scheduler.
type Schedule struct {
	// Looked counts the diffs in the database that were read. Due counts the diffs for
	// which jobs were requested. Inserted counts the new jobs.
	Looked   int64 `json:"looked_at"`
	Due      int64 `json:"due"`
	Inserted int64 `json:"inserted"`
	// OverLimit reports that the limit was reached before the last diff was read.
	OverLimit bool `json:"over_limit"`
	// More reports that the search time ended before the last diff was read. The next run
	// continues immediately.
	More bool `json:"more"`
}

// Scheduler inserts jobs for due diffs.
type Scheduler struct {
	Conn  *pgx.Conn
	Names pgcatalog.Names
	Fence *lease.Lease
	Rule  Rule
	// Limit is the number of diffs for which one run inserts jobs. 0 means 1000.
	Limit int
	// Insert inserts a job, in the given transaction, for each diff that has none. It
	// returns the number of new jobs. nil means Enqueue.
	Insert func(ctx context.Context, tx pgx.Tx, ids []int64, wait time.Duration) (int, error)
}

// Run reads the diffs from the position at which the last run stopped, and inserts jobs
// for at most Limit of them. After the last diff it starts a new round at the first diff,
// at most every 50 minutes. A diff that always fails therefore does not delay the others.
// Run ignores a skipped diff until the diff has changed. The jobs and the new position
// are committed together.
func (s *Scheduler) Run(ctx context.Context) (*Schedule, error) {
	stats := &Schedule{}
	limit := cmp.Or(s.Limit, defaultLimit)
	until := time.Now().Add(longestSearch)
	for range mostWindows {
		if ctx.Err() != nil || time.Now().After(until) {
			break
		}
		more, err := s.window(ctx, limit-int(stats.Due), stats)
		if err != nil {
			return stats, fmt.Errorf("schedule diffs: %w", err)
		}
		if !more {
			return stats, nil
		}
		if stats.Due >= int64(limit) {
			stats.OverLimit = true
			return stats, nil
		}
	}
	stats.More = true
	return stats, nil //nolint:nilerr // The next run continues.
}

// window inserts jobs for the due diffs of the next windowRows diffs in one transaction.
// It reports whether another window may find more.
func (s *Scheduler) window(ctx context.Context, room int, stats *Schedule) (more bool, err error) {
	err = pgx.BeginTxFunc(ctx, s.Conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := begin(ctx, tx, s.Names, s.Fence); err != nil {
			return err
		}
		on := s.Names.Queries(tx)
		found, err := on.DiffCursor(ctx, string(s.Rule), roundEvery.Seconds())
		if err != nil {
			return fmt.Errorf("read where the last run stopped: %w", err)
		}

		var looked, last int64
		var due []int64
		row := tx.QueryRow(ctx, s.Names.Render(s.Rule.statement("scan")), found.AfterID, windowRows, room)
		if err := row.Scan(&looked, &last, &due); err != nil {
			return fmt.Errorf("search for due diffs: %w", err)
		}
		ended := looked < windowRows
		if len(due) == room {
			// The limit is reached. The next run continues after the last due diff.
			ended, last = ended && last == due[len(due)-1], due[len(due)-1]
		}
		after, restart := max(last, found.AfterID), ended && found.Old
		if restart {
			after = 0
		}
		if err := on.DiffCursorAdvance(ctx, after, restart, string(s.Rule)); err != nil {
			return fmt.Errorf("save where this run stopped: %w", err)
		}

		due, inserted, err := s.insert(ctx, tx, due, firstWait)
		if err != nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
		// COMMIT waits for the lock on NOTIFY, which all databases of the server share.
		// The short lock timeout of the insert must not make the COMMIT fail.
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 0"); err != nil {
			return fmt.Errorf("reset the lock timeout: %w", err)
		}
		stats.Looked += looked
		stats.Due += int64(len(due))
		stats.Inserted += int64(inserted)
		// A run that starts again at the first diff ends if it has inserted jobs, because
		// it would find the same diffs again.
		more = !ended || restart && stats.Due == 0
		return nil
	})
	return more, err
}

// noRow is the SQLSTATE of the error that enqueue returns if a diff has no row.
const noRow = "22023"

// firstWait and laterWait limit the wait for another transaction that is enqueuing the
// same job. firstWait applies if all jobs of a window are inserted together. laterWait
// applies to each job if they are then inserted one by one.
const firstWait, laterWait = 100 * time.Millisecond, time.Millisecond

// insert inserts the jobs of due diffs. It leaves out diffs that were deleted since the
// scan. If another open transaction has enqueued the job of a diff, insert leaves that
// diff to that job or to a later round.
func (s *Scheduler) insert(ctx context.Context, tx pgx.Tx, due []int64,
	wait time.Duration,
) (scheduled []int64, inserted int, _ error) {
	enqueue := s.Insert
	if enqueue == nil {
		enqueue = s.Enqueue
	}
	for len(due) > 0 {
		err := pgx.BeginFunc(ctx, tx, func(attempt pgx.Tx) (err error) {
			inserted, err = enqueue(ctx, attempt, due, wait)
			return err
		})
		f := batch.Judge(err)
		if f.Lock() {
			break
		}
		if f.SQLState != noRow {
			return due, inserted, err
		}
		present, scanErr := s.Names.Queries(tx).DiffPresent(ctx, due)
		if scanErr != nil {
			return nil, 0, errors.Join(err, fmt.Errorf("query the remaining diffs: %w", scanErr))
		}
		if len(present) == len(due) {
			return nil, 0, err
		}
		due = present
	}
	if len(due) < 2 {
		return due, 0, nil
	}
	inserted = 0
	for _, id := range due {
		one, made, err := s.insert(ctx, tx, []int64{id}, laterWait)
		if err != nil {
			return nil, 0, err
		}
		scheduled, inserted = append(scheduled, one...), inserted+made
	}
	return scheduled, inserted, nil
}

// Enqueue inserts all missing jobs in one statement and returns their number. If one
// insert fails, it inserts none.
func (s *Scheduler) Enqueue(ctx context.Context, tx pgx.Tx, ids []int64, wait time.Duration) (inserted int, err error) {
	var jobs []int64
	if err := tx.QueryRow(ctx, s.Names.Render(statement("enqueue")), MoveKind, ids,
		wait.Milliseconds()).Scan(&jobs); err != nil {
		return 0, fmt.Errorf("enqueue %s: %w", MoveKind, err)
	}
	err = tx.QueryRow(ctx, s.Names.Render(statement("count_enqueued")), jobs).Scan(&inserted)
	return inserted, problem.Doing(err, "count enqueued jobs")
}

// DueSQL returns a condition, to be rendered for the configured schemas, that is true if
// a run would find due diffs now. It reads one window from the position of the last run.
func (r Rule) DueSQL() string { return r.search("due") }

// CountDueSQL returns a statement, to be rendered for the configured schemas, that counts
// the diffs that a run without a limit would find now. It also returns whether there may
// be more diffs than it reads.
func (r Rule) CountDueSQL() string { return r.search("count_due") }

func (r Rule) search(name string) string {
	return r.statement(name, "cursor", string(r), "window", strconv.Itoa(windowRows),
		"looked", strconv.Itoa(10*windowRows), "round", strconv.Itoa(int(roundEvery.Seconds())))
}

// begin verifies the lease in a transaction, and sets the time limits of the transaction.
func begin(ctx context.Context, tx pgx.Tx, names pgcatalog.Names, fence *lease.Lease) error {
	if err := fence.Confirm(ctx, tx.Conn()); err != nil {
		return err //nolint:wrapcheck // It names the lease.
	}
	_, err := tx.Exec(ctx, names.Render(`SELECT "sexton".begin_batch($1, 0, $2, $3, $4, true)`),
		fence.Key(), fence.Token(), defaultStatement.Milliseconds(), defaultLock.Milliseconds())
	return problem.Doing(err, "begin")
}

// Rule selects the diffs that are moved.
type Rule string

// Always selects all diffs. Outdated selects the diffs of merge requests that were merged
// or closed more than 7 days ago, and all versions except the latest.
const (
	Always   Rule = "always"
	Outdated Rule = "outdated"
)

//go:embed queries
var queryFiles embed.FS

// statement returns a query of the folder queries, to be rendered for the configured
// schemas. more holds names and values of further placeholders.
func statement(name string, more ...string) string {
	return pgcatalog.Texts{Files: queryFiles, Parts: map[string]string{
		// The partial index on diffs has the condition in_database.
		"in_database": "diff.files_count OPERATOR(pg_catalog.>) 0 AND (NOT diff.stored_externally OR diff.stored_externally IS NULL)",
		"kept":        `EXISTS (SELECT FROM "sexton".external_diffs AS ledger WHERE ledger.diff_id OPERATOR(pg_catalog.=) diff.id AND ledger.kept)`,
		"always":      "{in_database} AND NOT {kept}",
	}}.Statement(name, more...)
}

// statement returns a query in which {eligible} is the condition of the rule. An unknown
// rule makes an invalid statement.
func (r Rule) statement(name string, more ...string) string {
	eligible := map[Rule]string{Always: "{always}", Outdated: "{always} AND {outdated}"}[r]
	return statement(name, append(more, "eligible", eligible)...)
}

const (
	// mostBytes is the maximum value of the columns for offset and size.
	mostBytes = 1<<31 - 1
	// pieceBytes is the maximum size of a piece of a text.
	pieceBytes = 1 << 18
)

// Key returns the key of the object of a diff.
func Key(mergeRequestID, diffID int64) string {
	return fmt.Sprintf("%s%d/%s", folderPrefix, mergeRequestID, objectName(diffID))
}

const (
	rootPrefix   = "merge_request_diffs/"
	folderPrefix = rootPrefix + "mr-"
	namePrefix   = "diff-"
)

// objectName returns the last part of the key, which is stored in external_diff.
func objectName(diffID int64) string { return fmt.Sprintf("%s%d", namePrefix, diffID) }
