package loosefk

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/fault"
)

const (
	// heldRetry is the pause before the next look at rows that transactions in other databases hold up, awayRetry that where
	// one of those databases cannot be reached, or does not show all of its transactions.
	heldRetry = 5 * time.Second
	awayRetry = time.Minute
)

// gates holds what a run knows about transactions that may still insert children.
type gates struct {
	// horizon is the time before which no transaction of this database is open, of those in sight.
	horizon pgtype.Timestamptz
	blind   bool
	// far are the parents with children in other databases, as tombstones name them, farHorizon the time for those.
	far        []string
	farHorizon pgtype.Timestamptz
	// retry is the pause for rows that only farHorizon keeps waiting.
	retry time.Duration
}

// closing is the beginning of confirming: transactions that are open, and the first page.
type closing struct {
	gates gates
	// now is when the gates were read, waits is false where nothing waits to be confirmed.
	now   time.Time
	waits bool
	page  []swept
}

// horizon is the statement that looks at the transactions of this database.
func (r *run) horizon(c *closing) batch.Statement {
	return batch.Statement{
		SQL: r.engine.Session.Names.Render(horizonSQL()), Args: []any{r.engine.Database, r.engine.Confirming.grace()},
		Scan: func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&c.gates.horizon, &c.gates.blind, &c.now, new(string)}, func() error { c.waits = true; return nil })
			return err
		},
	}
}

// gates looks at the transactions of this database and then at those of the others, and reads the first page behind them. A run without others
// has done both when it last looked for work.
func (r *run) gates(ctx context.Context) (*closing, error) {
	if c := r.closing; c != nil {
		r.closing = nil
		return c, nil
	}
	c := &closing{}
	if _, err := r.engine.Session.Run(ctx, r.horizon(c)); err != nil || !c.waits {
		return c, err
	}
	var err error
	if err = r.farGates(ctx, &c.gates, c.now); err == nil {
		c.page, err = r.page(ctx, 0, c.gates)
	}
	return c, err
}

// farGates looks at the transactions of other databases.
func (r *run) farGates(ctx context.Context, g *gates, now time.Time) error {
	var others []string
	g.far, others = r.far()
	g.farHorizon, g.retry = pgtype.Timestamptz{Time: now, Valid: true}, heldRetry
	for _, database := range others {
		age, prepared, blind, err := r.oldest(ctx, database)
		if blind {
			// The grace time has to pass: nothing is gained by looking often.
			g.blind, g.retry = true, awayRetry
		}
		switch {
		case err != nil && fault.Judge(err).Verdict == fault.Unavailable:
			g.farHorizon.InfinityModifier, g.retry = pgtype.NegativeInfinity, awayRetry
		case err != nil:
			return err
		case prepared:
			g.farHorizon.InfinityModifier = pgtype.NegativeInfinity
		}
		if began := now.Add(-age); began.Before(g.farHorizon.Time) {
			g.farHorizon.Time = began
		}
	}
	return nil
}

// far are the parents with children in other databases, and those databases.
func (r *run) far() (parents, databases []string) {
	parents = []string{}
	for _, parent := range r.engine.Parents {
		for _, reference := range parent.References {
			if !reference.Remote {
				continue
			}
			if !slices.Contains(parents, parent.Recorded) {
				parents = append(parents, parent.Recorded)
			}
			if !slices.Contains(databases, reference.Database) {
				databases = append(databases, reference.Database)
			}
		}
	}
	return parents, databases
}

// oldest tells for how long the oldest transaction of another database has been open, whether any is prepared there, and
// whether some cannot be seen.
func (r *run) oldest(ctx context.Context, database string) (age time.Duration, prepared, blind bool, err error) {
	var seconds float64
	_, err = r.in(ctx, database, r.engine.Session.Limits,
		batch.Statement{SQL: ageSQL(), Args: []any{r.engine.Confirming.grace()}, Scan: batch.One(&seconds, &blind)},
		// In a later statement, as within one database.
		batch.Statement{SQL: "SELECT EXISTS (" + preparedQuery + ")", Scan: batch.One(&prepared)})
	return time.Duration(seconds * float64(time.Second)), prepared, blind, err
}
