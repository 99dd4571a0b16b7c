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
// next one is due, and whether a removed one can be rechecked. $1 is the kind, $2 the
// database, $3 the parents of the definitions, and $4 confirm_after in seconds. {barred}
// is a condition on the jobs database: the kind is paused, or the limits of this tick
// were reached. If the tombstones are in another database, that one is queried first, and
// the jobs database only if something is due.
//
// clock_timestamp() is volatile, so it does not limit an index scan: with it every query
// would read all due tombstones, or all deferred ones. The order keeps the planner from
// reading the table for the first due one.
//
//go:embed queries/due.sql
var dueSQL string

// recheckEvery is how often a worker without other work rechecks removed tombstones.
// Nothing notifies it when the transactions end that a recheck waits for.
const recheckEvery = 30 * time.Second

// Due returns when the next pass is due. It may use any connection or transaction of the
// database. barredSQL is a condition on the jobs database, with the kind $1 and the
// database $2: no pass may run now.
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
