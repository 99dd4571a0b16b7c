package placeholder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"sexton/internal/batch"
	"sexton/internal/each"
	"sexton/internal/lease"
)

// lookRows is how many placeholders one statement looks at.
const lookRows = 100

// looks reports whether an attempt looks at a placeholder that references have kept. They seldom go by themselves, so the looks
// double their distance: the attempts 1, 2, 4, 8 and the last one look, those between are only counted. The last one comes as early,
// and as late, as if each had looked.
func (r Rules) looks(attempt int) bool {
	return attempt >= r.MaxAttempts || attempt < 2 || bits.OnesCount(uint(attempt)) == 1
}

// nextLookSQL is an expression: the earliest time of the next attempt that looks at a tried placeholder, by the same rule.
const nextLookSQL = `(tried.last_deletion_attempt_at OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $2::pg_catalog.float8
    OPERATOR(pg_catalog.*) CASE WHEN tried.blocked_by IS NULL THEN 1 ELSE
        least($1::integer, 1 OPERATOR(pg_catalog.<<) pg_catalog.length(pg_catalog.ltrim(tried.deletion_attempts::integer::bit(31)::pg_catalog.text, '0')))
            OPERATOR(pg_catalog.-) tried.deletion_attempts
    END))`

// kept is a row whose attempt needs no job. Without blockers the attempt is only counted.
type kept struct {
	row
	blockers []Blocker
}

// keep counts the attempts of the rows that references keep, in a few statements for all of them, and returns the other rows.
// References that may go with tombstones are left to a job, which waits for these.
func (r *run) keep(ctx context.Context, rows []row) (rest []row, _ error) {
	var counted []kept
	var look []int64
	stuck := r.stuck()
	for _, next := range rows {
		switch {
		case !next.placeholder:
		case len(next.blockedBy) == 0 || r.Rules.looks(int(next.attempts)+1):
			look = append(look, next.userID)
		default:
			keeps, err := stuck(ctx, next.blockedBy)
			if err != nil {
				return nil, err
			}
			if keeps {
				counted = append(counted, kept{row: next})
			}
		}
	}
	found, err := r.lookTwice(ctx, look, stuck)
	if err != nil {
		return nil, err
	}
	for _, next := range rows {
		if blockers := found[next.userID]; len(blockers) > 0 {
			counted = append(counted, kept{row: next, blockers: blockers})
		}
	}
	done, err := r.count(ctx, counted)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(rows, func(next row) bool { return done[next.id] }), nil
}

// stuck returns a function that reports whether no tombstone may take rows of these columns along. It asks once for the same columns.
// An error, of a database that cannot be reached say, ends the asking of this run: jobs ask for one user each.
func (r *run) stuck() func(context.Context, []string) (bool, error) {
	known := map[string]bool{}
	return func(ctx context.Context, columns []string) (bool, error) {
		key := strings.Join(columns, "\n")
		if _, asked := known[key]; !asked && r.Pending != nil && !r.unasked {
			pending, err := r.Pending(ctx, columns)
			if err != nil {
				if ctx.Err() != nil {
					return false, fmt.Errorf("look for tombstones: %w", err)
				}
				// Whatever the verdict: the error may be of another database, and the next statement finds out about this one.
				f := batch.Judge(err)
				f.Message = err.Error()
				r.stats.Errors = batch.CountFault(r.stats.Errors, f)
				r.unasked = true
			}
			known[key] = err == nil && len(pending) == 0
		}
		return r.Pending == nil || known[key], nil
	}
}

// lookTwice returns what keeps the users: tombstones may have gone since the first look, and what refers to the user with them.
func (r *run) lookTwice(ctx context.Context, users []int64, stuck func(context.Context, []string) (bool, error)) (map[int64][]Blocker, error) {
	found, err := r.look(ctx, users)
	if err != nil || r.Pending == nil {
		return found, err
	}
	var again []int64
	for user, blockers := range found {
		keeps, err := stuck(ctx, labels(blockers))
		if err != nil {
			return nil, err
		}
		if keeps {
			again = append(again, user)
		}
	}
	return r.look(ctx, again)
}

func labels(blockers []Blocker) []string {
	return each.Of(blockers, func(b Blocker) string { return b.Column })
}

// look looks at many users in one statement. One that the database refuses, for its time say, ends the looks of this run: jobs look
// at one user each.
func (r *run) look(ctx context.Context, users []int64) (map[int64][]Blocker, error) {
	found := map[int64][]Blocker{}
	if len(users) == 0 || r.blind {
		return found, nil
	}
	var user int64
	var samples []*string
	_, err := r.Session.Run(ctx, batch.Statement{
		SQL: r.References.lookSQL(), Args: []any{users},
		Scan: batch.Each(func() {
			if blockers := r.References.blockers(samples); len(blockers) > 0 {
				found[user] = blockers
			}
		}, &user, &samples),
	})
	if err != nil {
		r.blind = true
		return map[int64][]Blocker{}, r.tolerate("look at placeholder users", err)
	}
	return found, nil
}

// tolerate notes an error of a statement on many rows and returns nil where the rows can still be offered one by one.
func (r *run) tolerate(doing string, err error) error {
	f := batch.Judge(err)
	if f.Verdict == batch.Fatal || errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	r.stats.Errors = batch.CountFault(r.stats.Errors, f)
	return nil
}

// count counts the attempts of these rows and returns which of them are done with.
func (r *run) count(ctx context.Context, rows []kept) (done map[int64]bool, _ error) {
	done = map[int64]bool{}
	if len(rows) == 0 {
		return done, nil
	}
	byID := map[int64]kept{}
	var ids, attempts []int64
	var reasons, columns []*string
	for _, k := range rows {
		byID[k.id] = k
		ids, attempts = append(ids, k.id), append(attempts, k.attempts)
		if k.blockers == nil {
			reasons, columns = append(reasons, nil), append(columns, nil)
			continue
		}
		named, err := json.Marshal(labels(k.blockers))
		if err != nil {
			return nil, fmt.Errorf("name what keeps placeholder user %d: %w", k.userID, err)
		}
		reasons, columns = append(reasons, new(reason(k.blockers))), append(columns, new(string(named)))
	}
	var id, attempt int64
	var items []Item
	_, err := r.Session.Run(ctx, batch.Statement{
		SQL: r.Session.Names.Render(statement("count")), Args: append(r.Rules.args(), ids, attempts, reasons, columns),
		Scan: batch.Each(func() {
			k := byID[id]
			items = append(items, Item{
				UserID: k.userID, Attempt: attempt, Final: attempt >= int64(r.Rules.MaxAttempts), Blockers: k.blockers, Kept: true,
			})
		}, &id, &attempt),
	})
	if err != nil {
		return done, r.tolerate("count attempts of placeholder users", err)
	}
	for _, k := range rows {
		done[k.id] = true
	}
	r.stats.Changed += int64(len(rows) - len(items))
	for _, item := range items {
		r.tell(ctx, item)
	}
	return done, nil
}
