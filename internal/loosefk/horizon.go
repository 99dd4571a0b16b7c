package loosefk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
)

// Confirming says for how long removed tombstones are remembered. The zero value of a field is its default.
type Confirming struct {
	// Within bounds the wait for older transactions (1 h).
	Within time.Duration
	// Grace is how long sessions are waited for whose transactions the role may not see (10 min).
	Grace time.Duration
}

func (c Confirming) within() float64 { return cmp.Or(c.Within, time.Hour).Seconds() }
func (c Confirming) grace() float64  { return cmp.Or(c.Grace, 10*time.Minute).Seconds() }

// A parent is gone for every transaction that begins after its deletion. One that is older may have seen it, and
// insert a child at any time: not only while it has no transaction id yet, so no horizon of ids tells. Hence the
// first horizon, before which all sessions must have ended their transactions that began before a tombstone was removed.
//
// Such a transaction may become a prepared one. It is listed as prepared before its session counts as idle, so
// a look at sessions first and at prepared transactions in a later statement misses none: the second horizon is
// passed when the prepared ones that were there after the first have ended. Both commits are visible before a transaction disappears
// from its list. The look at children must be a later statement again.
//
// Older rows fall behind both horizons first.
//
// Where a parent has children in another database, the transactions there count as well. Two servers' clocks cannot be
// compared, but lengths of time can: what is open there began at most so long before a moment here that was read first.
// A prepared transaction there does not tell when it began, and holds the horizon back.

// HorizonSQL returns in one row the time before which no session has a transaction open (infinity if none is open at all), and
// whether there are sessions whose transactions cannot be seen: those of other roles, and sessions that do not report. Autovacuum
// inserts nothing, parallel workers have a leader, and a long look of the engine does not insert either (longName). An idle session has no
// transaction, though it may show one: Postgres opens one for a moment to catch up on what others have defined, and shows the time of the last
// statement as its beginning. With a snapshot it is waited for all the same: a client that pipelines may have asked for no more than the columns
// of a statement yet. A transaction that began in the future began before the clock was set back, and counts as older than everything. grace is
// the number of the parameter with the grace time.
//
// open.sql returns it and the time if database $2 has anything to recheck, and no row otherwise. It keeps the horizon for the page in the same
// transaction, as seconds: as text a time may be read back in another zone. age.sql returns for how many seconds the oldest transaction of another
// database has been open.
func HorizonSQL(grace int) string {
	return strings.ReplaceAll(statement("horizon"), "$1", fmt.Sprintf("$%d", grace))
}

// PreparedSQL lists the prepared transactions of the database.
func PreparedSQL() string { return statement("prepared") }

const (
	// heldRetry is the pause before the next look at rows that transactions in other databases hold up, awayRetry that where
	// one of those databases cannot be reached, or does not show all of its transactions.
	heldRetry = 5 * time.Second
	awayRetry = time.Minute
)

// horizons hold what a run knows about transactions that may still insert children.
type horizons struct {
	// horizon is the time before which no transaction of this database is open, of those in sight.
	horizon pgtype.Timestamptz
	blind   bool
	// far are the parents with children in other databases, as tombstones name them, and their tables; farHorizon is the time for those.
	far        []string
	farTables  []uint32
	farHorizon pgtype.Timestamptz
	// retry is the pause for rows that only farHorizon keeps waiting.
	retry time.Duration
}

// closing is the beginning of confirming: transactions that are open, and the first page.
type closing struct {
	horizons horizons
	// now is when the horizons were read, waits is false where nothing waits to be confirmed.
	now   time.Time
	waits bool
	page  []recheck
}

// horizon is the statement that looks at the transactions of this database.
func (r *run) horizon(c *closing) batch.Statement {
	return batch.Statement{
		SQL: r.engine.statement("open"), Args: []any{r.engine.Confirming.grace(), r.engine.Database},
		Scan: func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&c.horizons.horizon, &c.horizons.blind, &c.now, new(string)}, func() error { c.waits = true; return nil })
			return err
		},
	}
}

// horizons looks at the transactions of this database and then at those of the others, and reads the first page behind them. A run without others
// has done both when it last looked for work.
func (r *run) horizons(ctx context.Context) (*closing, error) {
	if c := r.closing; c != nil {
		r.closing = nil
		return c, nil
	}
	c := &closing{}
	if _, err := r.engine.Session.Run(ctx, r.horizon(c)); err != nil || !c.waits {
		return c, err
	}
	var err error
	if err = r.remoteHorizons(ctx, &c.horizons, c.now); err == nil {
		c.page, err = r.page(ctx, 0, c.horizons)
	}
	return c, err
}

// remoteHorizons looks at the transactions of other databases.
func (r *run) remoteHorizons(ctx context.Context, g *horizons, now time.Time) error {
	var others []string
	g.far, g.farTables, others = r.far()
	g.farHorizon, g.retry = pgtype.Timestamptz{Time: now, Valid: true}, heldRetry
	for _, database := range others {
		age, prepared, blind, err := r.oldest(ctx, database)
		if blind {
			// The grace time has to pass: nothing is gained by looking often.
			g.blind, g.retry = true, awayRetry
		}
		switch {
		case err != nil && batch.Judge(err).Verdict == batch.Unavailable:
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

// far are the parents with children in other databases, by name and by table, and those databases.
func (r *run) far() (parents []string, tables []uint32, databases []string) {
	parents, tables = []string{}, []uint32{}
	for parent, reference := range References(r.engine.Parents) {
		if !reference.Remote {
			continue
		}
		if !slices.Contains(parents, parent.Recorded) {
			parents, tables = append(parents, parent.Recorded), append(tables, parent.OID)
		}
		if !slices.Contains(databases, reference.Database) {
			databases = append(databases, reference.Database)
		}
	}
	return parents, tables, databases
}

// oldest tells for how long the oldest transaction of another database has been open, whether any is prepared there, and
// whether some cannot be seen.
func (r *run) oldest(ctx context.Context, database string) (age time.Duration, prepared, blind bool, err error) {
	var seconds float64
	_, err = r.in(ctx, database, r.engine.Session.Limits,
		batch.Statement{SQL: statement("age"), Args: []any{r.engine.Confirming.grace()}, Scan: batch.One(&seconds, &blind)},
		// In a later statement, as within one database.
		batch.Statement{SQL: "SELECT EXISTS (" + PreparedSQL() + ")", Scan: batch.One(&prepared)})
	return time.Duration(seconds * float64(time.Second)), prepared, blind, err
}
