package cleanup

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"sexton/internal/database"
	"sexton/internal/listen"
	"sexton/internal/problem"
)

// dueSQL returns whether there are tombstones that the kind may take now, in how many seconds the next one falls due, and whether a
// removed one can be rechecked. $1 is the kind, $2 the database, $3 are the parents that definitions name, $4 is confirm_after in
// seconds. {barred} is the part that is asked of the jobs database: paused, or cut short by this tick's limits. Another database is
// queried first, and the jobs database only if something is due.
//
// clock_timestamp() is volatile and bounds no index: with it every query reads all due tombstones, or all that are deferred.
// The order keeps the planner from reading the table for the first that is due.
//
//go:embed queries/due.sql
var dueSQL string

// waitingSQL is the part of it about tombstones, with the same parameters.
//
//go:embed queries/waiting.sql
var waitingSQL string

// recheckEvery is how often a worker without other work rechecks removed tombstones. Nothing notifies it of the end of the transactions
// that a recheck waits for.
const recheckEvery = 30 * time.Second

// dueText is dueSQL with all parts but {barred}.
var dueText = strings.Replace(dueSQL, "{waiting}", waitingSQL, 1) //nolint:gochecknoglobals // a constant

// Called reports whether the jobs database has tombstones that may be taken now.
func (w *Work) Called(ctx context.Context, on listen.Querier, db database.Database, barredSQL string) (now bool, err error) {
	sql := "SELECT " + waitingSQL + " AND NOT (" + barredSQL + ") AS now"
	err = on.QueryRow(ctx, db.Names.Render(sql), Kind, db.Name, w.Memory.Noted(db.Name)).Scan(&now)
	return now, problem.Doing(err, "look for new tombstones")
}

// Due returns when the next pass is due, on any connection or transaction of the database. barredSQL reports, of kind $1 and database
// $2 in the jobs database, whether nothing may be done now.
func (w *Work) Due(ctx context.Context, on listen.Querier, db database.Database, barredSQL string) (listen.Due, error) {
	args := []any{Kind, db.Name, w.Memory.Noted(db.Name), w.Config.LooseForeignKeys.ConfirmAfter.Seconds()}
	condition, jobs := barredSQL, w.Jobs
	if jobs.Name != db.Name {
		condition, args[0] = "$1::boolean", false
	}
	var due listen.Due
	var seconds float64
	var recheck bool
	sql := strings.Replace(dueText, "{barred}", condition, 1)
	err := on.QueryRow(ctx, db.Names.Render(sql), args...).Scan(&due.Now, &seconds, &recheck)
	if err != nil {
		return listen.Due{}, fmt.Errorf("look for due tombstones: %w", err)
	}
	every := min(recheckEvery, w.Config.LooseForeignKeys.ConfirmAfter)
	due.Now = due.Now || recheck && w.Memory.Since(db.Name) >= every
	if due.Now && jobs.Name != db.Name {
		var barred bool
		if err := jobs.Async().QueryRow(ctx, jobs.Names.Render("SELECT "+barredSQL), Kind, db.Name).Scan(&barred); err != nil {
			return listen.Due{}, fmt.Errorf("look whether %s may run: %w", Kind, err)
		}
		due.Now = !barred
	}
	due.In = max(0, time.Duration(seconds*float64(time.Second)))
	if recheck && !due.Now && (due.In == 0 || due.In > every) {
		due.In = every
	}
	return due, nil
}
