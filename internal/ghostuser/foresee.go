package ghostuser

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// mostForeseen bounds the rows of one column that Foresee counts, foreseeTime a statement of it.
	mostForeseen = 10_000
	foreseeTime  = 5 * time.Second
)

// Foresight foresees the deletion of a user.
type Foresight struct {
	// Moved, Deleted and Nullified count rows by table, as the statistics of a run do. Capped reports that there are more.
	Moved, Deleted, Nullified map[string]int64
	Rows                      int64
	Capped                    bool
	// Forbidden names the rows that keep the user from being deleted.
	Forbidden []string
}

// Foresee counts what refers to a user, in one READ ONLY transaction.
func (p *Plan) Foresee(ctx context.Context, db interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}, user int64, hardDelete bool,
) (*Foresight, error) {
	seen := &Foresight{Moved: map[string]int64{}, Deleted: map[string]int64{}, Nullified: map[string]int64{}, Forbidden: []string{}}
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		const bound = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('statement_timeout', $1, true)"
		if _, err := tx.Exec(ctx, bound, foreseeTime.String()); err != nil {
			return err
		}
		for _, s := range p.steps(hardDelete) {
			if err := seen.count(ctx, tx, s, user); err != nil {
				return fmt.Errorf("count rows of %s: %w", s.label, err)
			}
		}
		return nil
	})
	return seen, err
}

// count adds the rows of one step.
func (seen *Foresight) count(ctx context.Context, tx pgx.Tx, s *step, user int64) error {
	args := &arguments{}
	from := s.table.SQL()
	if !s.partitioned() {
		from = "ONLY " + from
	}
	sql := fmt.Sprintf("SELECT pg_catalog.count(*) FROM (SELECT FROM %s AS child WHERE %s LIMIT $%d) AS counted",
		from, s.matches("child", &job{userID: user}, args), args.add(mostForeseen+1))
	var n int64
	if err := tx.QueryRow(ctx, sql, args.values...).Scan(&n); err != nil || n == 0 {
		return err
	}
	if n > mostForeseen {
		n, seen.Capped = mostForeseen, true
	}
	switch s.action {
	case restrict:
		seen.Forbidden = append(seen.Forbidden, fmt.Sprintf("%s: %s", s.label, s.refusal))
		return nil
	case move:
		seen.Moved[s.tableLabel] += n
	case remove:
		seen.Deleted[s.tableLabel] += n
	default:
		seen.Nullified[s.tableLabel] += n
	}
	seen.Rows += n
	return nil
}
