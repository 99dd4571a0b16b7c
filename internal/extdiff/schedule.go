package extdiff

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/lease"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Table is the name of the table in which diffs wait to be moved, RemovalTable of the one in which objects wait to be removed after their diffs.
const (
	Table        = "merge_request_diffs"
	RemovalTable = "external_diff_removals"
)

const (
	// windowRows is how many diffs that are in the database one transaction looks at.
	windowRows = 2000
	// measuredRows is the same where all files of the diffs are measured.
	measuredRows = 500
	// longestSearch leaves the job time to remove objects and to sweep two stores.
	longestSearch = 15 * time.Second
	// mostWindows bounds a run: where few diffs of many are due, the next run goes on.
	mostWindows = 500
	// roundEvery is how long a round over all diffs takes at least, a little less than the hour between two ticks.
	roundEvery = 50 * time.Minute
	// defaultLimit is the number of diffs per run.
	defaultLimit = 1000
)

// Schedule are the statistics of one run of the scheduler.
type Schedule struct {
	// Looked counts diffs in the database that were looked at, Due those among them that were handed on, Inserted the jobs that
	// were not there yet.
	Looked   int64 `json:"looked_at"`
	Due      int64 `json:"due"`
	Inserted int64 `json:"inserted"`
	// OverLimit reports that the limit, or the time, was met before the last diff was looked at.
	OverLimit bool `json:"over_limit"`
}

// Scheduler hands diffs that are due on to the jobs that move them.
type Scheduler struct {
	Conn  *pgx.Conn
	Names pgcatalog.Names
	Fence *lease.Lease
	Rule  Rule
	// BySize hands on the biggest diffs first, in bands of sizes.
	BySize bool
	// Limit is the number of diffs per run; 0 means 1000.
	Limit int
	// Insert makes a job for each diff in the transaction, where there is none, and returns how many it made; nil stands for Enqueue.
	Insert func(ctx context.Context, tx pgx.Tx, ids []int64, wait time.Duration) (int, error)
}

// Run looks through the diffs from where the last run has stopped, and hands at most Limit of them on, each once. What comes after
// the last diff begins anew at the first, in a round at most every 50 minutes, so that no diff that fails again and again holds up
// the ones behind it. One that was refused is handed on again when it has changed. With BySize a round goes through all diffs once per band.
// Handing on and the place where the next run begins commit together.
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
			break
		}
	}
	stats.OverLimit = true
	return stats, nil //nolint:nilerr // the next run goes on
}

// leastBytes are the bands of sizes, from the first on: a diff is in the first one whose bytes it has.
func leastBytes() []int64 { return []int64{16 << 20, 4 << 20, 1 << 20, 256 << 10, 0} }

// position is where a search goes on.
type position struct {
	after int64
	// band is one of leastBytes. Behind known, which is 0 in the first one, diffs came in after the earlier bands of the round.
	band  int
	known int64
}

// bounds are the least bytes of the position's band, and those of the band before.
func (p position) bounds() (least, below int64) {
	bands := leastBytes()
	band := min(p.band, len(bands)-1)
	if band == 0 {
		return bands[0], math.MaxInt64
	}
	return bands[band], bands[band-1]
}

// cursor is the name of a search's position.
func (r Rule) cursor(bySize bool) string {
	if bySize {
		return string(r) + " by size"
	}
	return string(r)
}

// window is one transaction of a run. It reports whether another one may find more.
func (s *Scheduler) window(ctx context.Context, room int, stats *Schedule) (more bool, err error) {
	err = pgx.BeginTxFunc(ctx, s.Conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := begin(ctx, tx, s.Names, s.Fence); err != nil {
			return err
		}
		on, cursor := s.Names.Queries(tx), s.Rule.cursor(s.BySize)
		found, err := on.DiffCursor(ctx, cursor, roundEvery.Seconds())
		if err != nil {
			return fmt.Errorf("read where the last run stopped: %w", err)
		}
		at := position{after: found.AfterID, band: found.Band, known: found.KnownID}
		var looked, last int64
		var due []int64
		window, band, args := windowRows, "", []any{at.after, windowRows, room}
		if s.BySize {
			least, below := at.bounds()
			window, band, args = measuredRows, "\n{band_of_sizes}", []any{at.after, measuredRows, room, least, below, at.known}
		}
		if err := tx.QueryRow(ctx, s.Names.Render(s.Rule.statement("scan", "band", band)), args...).Scan(&looked, &last, &due); err != nil {
			return fmt.Errorf("look for diffs that are due: %w", err)
		}
		ended := looked < int64(window)
		if len(due) == room {
			// Those between the last one that is handed on and the end of the window are looked at again.
			ended, last = ended && last == due[len(due)-1], due[len(due)-1]
		}
		descend := ended && s.BySize && at.band < len(leastBytes())-1
		restart := ended && !descend && found.Old
		last = max(last, at.after)
		switch {
		case descend:
			at = position{band: at.band + 1, known: max(at.known, last)}
		case restart:
			at = position{}
		default:
			at.after = last
		}
		if err := on.DiffCursorAdvance(ctx, at.after, restart, at.band, at.known, cursor); err != nil {
			return fmt.Errorf("note where this run stopped: %w", err)
		}
		due, inserted, err := s.insert(ctx, tx, due, firstWait)
		if err != nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
		stats.Looked += looked
		stats.Due += int64(len(due))
		stats.Inserted += int64(inserted)
		// A run that has handed on diffs already might meet them again.
		more = !ended || descend || restart && stats.Due == 0
		return nil
	})
	return more, err
}

// noRow is the SQLSTATE of enqueue for an id without a row.
const noRow = "22023"

// The waits for another transaction that asks for the same job and does not end: any role that may enqueue may leave one open. The jobs of a run
// wait once, and not for each further one.
const firstWait, laterWait = 100 * time.Millisecond, time.Millisecond

// insert makes the jobs. A diff that others have deleted since the scan is not handed on, and each turn leaves out one at least. One that another
// transaction asks for is left to that one's job, or to a later round.
func (s *Scheduler) insert(ctx context.Context, tx pgx.Tx, due []int64, wait time.Duration) (handedOn []int64, inserted int, _ error) {
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
			return nil, 0, errors.Join(err, fmt.Errorf("look which diffs are left: %w", scanErr))
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
		handedOn, inserted = append(handedOn, one...), inserted+made
	}
	return handedOn, inserted, nil
}

// Enqueue makes all jobs that are not there yet in one statement, or none, and counts them.
func (s *Scheduler) Enqueue(ctx context.Context, tx pgx.Tx, ids []int64, wait time.Duration) (inserted int, err error) {
	var jobs []int64
	if err := tx.QueryRow(ctx, s.Names.Render(statement("enqueue")), MoveKind, ids, wait.Milliseconds()).Scan(&jobs); err != nil {
		return 0, fmt.Errorf("enqueue %s: %w", MoveKind, err)
	}
	err = tx.QueryRow(ctx, s.Names.Render(statement("count_enqueued")), jobs).Scan(&inserted)
	return inserted, problem.Doing(err, "count enqueued jobs")
}

// DueSQL is a condition, to be rendered for the configured schemas: there are diffs for a run that begins now. It looks at a window
// of diffs behind the place where the last run stopped; the next round finds the others.
func (r Rule) DueSQL(bySize bool) string { return r.ahead("due", bySize) }

// CountDueSQL is a statement, to be rendered for the configured schemas: how many diffs a run that begins now would hand on, had it
// no limit, and whether there may be more, as only so many are looked at. Where the last round is over for long enough they are
// those of the next one.
func (r Rule) CountDueSQL(bySize bool) string { return r.ahead("count_due", bySize) }

func (r Rule) ahead(name string, bySize bool) string {
	lastBand := 0
	if bySize {
		lastBand = len(leastBytes()) - 1
	}
	return r.statement(name, "cursor", r.cursor(bySize), "last_band", strconv.Itoa(lastBand), "window", strconv.Itoa(windowRows),
		"looked", strconv.Itoa(10*windowRows), "round", strconv.Itoa(int(roundEvery.Seconds())))
}

// Rule says which diffs leave the database. Configurations know no other ones.
type Rule string

// The rules: all diffs; or those of merge requests that were merged or closed more than 7 days ago, and all versions but the
// latest.
const (
	Always   Rule = "always"
	Outdated Rule = "outdated"
)

//go:embed queries
var queryFiles embed.FS

// statement is a text of the folder queries, to be rendered for the configured schemas.
func statement(name string, more ...string) string {
	return pgcatalog.Texts{Files: queryFiles, Parts: map[string]string{
		// It is written as the partial index that finds such diffs has it.
		"in_database": "diff.files_count OPERATOR(pg_catalog.>) 0 AND (NOT diff.stored_externally OR diff.stored_externally IS NULL)",
		"kept":        `EXISTS (SELECT FROM "sexton".external_diffs AS ledger WHERE ledger.diff_id OPERATOR(pg_catalog.=) diff.id AND ledger.kept)`,
		"always":      "{in_database} AND NOT {kept}",
	}}.Statement(name, more...)
}

// statement has the one condition, on a diff, that scheduler and mover share as {eligible}.
func (r Rule) statement(name string, more ...string) string {
	eligible := map[Rule]string{Always: "{always}", Outdated: "{always} AND {outdated}"}[r] // Postgres refuses the statement of any other rule.
	return statement(name, append(more, "eligible", eligible)...)
}

const (
	// mostBytes is the greatest value of the columns for offset and size.
	mostBytes = 1<<31 - 1
	// pieceBytes is how much of a text one row of a stream has.
	pieceBytes = 1 << 18
)

// Key is where the object of a diff is.
func Key(mergeRequestID, diffID int64) string {
	return fmt.Sprintf("%s%d/%s", folderPrefix, mergeRequestID, objectName(diffID))
}

const (
	rootPrefix   = "merge_request_diffs/"
	folderPrefix = rootPrefix + "mr-"
	namePrefix   = "diff-"
)

// objectName is the last part of the key, which the column external_diff has.
func objectName(diffID int64) string { return fmt.Sprintf("%s%d", namePrefix, diffID) }
