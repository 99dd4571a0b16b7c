package cleanup

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"sexton/internal/database"
	"sexton/internal/listen"
)

// dueSQL returns whether the kind has tombstones to process now, in how many seconds the
// next tombstone is due, and whether a removed tombstone can be rechecked. $1 is the
// kind, $2 the database, $3 the parents of the definitions, and $4 confirm_after in
// seconds.
//
// {barred} is a condition on the jobs database: the kind is paused, or the limits of this
// tick were reached. If the tombstones are in another database, that database is queried
// first. The jobs database is then queried only if a tombstone is due.
//
// The query compares consume_after with statement_timestamp(), because clock_timestamp()
// is volatile and does not limit an index scan: each query would read all due or all
// deferred tombstones. ORDER BY keeps the planner from reading the table to find the
// first due tombstone.
//
//go:embed queries/due.sql
var dueSQL string

// recheckEvery is the interval at which a worker without other work rechecks removed
// tombstones. The worker is not notified when the transactions end for which a recheck
// waits.
const recheckEvery = 30 * time.Second

// Due returns the time until the next pass is due. It may use any connection or
// transaction of the database. barredSQL is a condition on the jobs database under which
// no pass may run now. It has the parameters kind ($1) and database ($2).
func (w *Work) Due(ctx context.Context, on listen.Querier, db database.Database, barredSQL string) (listen.Due, error) {
	args := []any{Kind, db.Name, w.Memory.ParentNames(db.Name), w.Config.LooseForeignKeys.ConfirmAfter.Seconds()}
	condition, jobs := barredSQL, w.Jobs
	if jobs.Name != db.Name {
		condition, args[0] = "$1::boolean", false
	}
	var due listen.Due
	var seconds float64
	var recheck bool
	sql := strings.Replace(dueSQL, "{barred}", condition, 1)
	err := on.QueryRow(ctx, db.Names.Render(sql), args...).Scan(&due.Now, &seconds, &recheck)
	if err != nil {
		return listen.Due{}, fmt.Errorf("query due tombstones: %w", err)
	}
	every := min(recheckEvery, w.Config.LooseForeignKeys.ConfirmAfter)
	due.Now = due.Now || recheck && w.Memory.SinceLastPass(db.Name) >= every
	if due.Now && jobs.Name != db.Name {
		var barred bool
		if err := jobs.Async().QueryRow(ctx, jobs.Names.Render("SELECT "+barredSQL), Kind,
			db.Name).Scan(&barred); err != nil {
			return listen.Due{}, fmt.Errorf("query whether %s may run: %w", Kind, err)
		}
		due.Now = !barred
	}
	due.In = max(0, time.Duration(seconds*float64(time.Second)))
	if recheck && !due.Now && (due.In == 0 || due.In > every) {
		due.In = every
	}
	return due, nil
}
