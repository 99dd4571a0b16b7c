package cleanup

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"sexton/internal/database"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	"sexton/internal/problem"
)

// dueSQL is the kind's one predicate: whether there are tombstones that it may take now, and
// in how many seconds the next falls due. Removed tombstones that can be confirmed count as well; the third column
// reports whether any wait for that. $1 is the kind, $2 the database, $3 are the parents that definitions name, with
// the positions in their queues, $4 and $5, above which to look; $6 and $7 are the settings for confirming. {barred} is the
// part that is asked of the jobs database: paused, or cut short by this tick's limits: not now. Another database is asked first, and the
// jobs database only where something is due.
//
// clock_timestamp() is volatile and bounds no index: with it every look reads all due tombstones, or all that are put off.
// The order keeps the planner from reading the table for the first that is due.
//
// A pass begins for the sake of a removed tombstone alone once that is a second old; a pass with other work confirms younger ones on the way.
//
//go:embed queries/due.sql
var dueSQL string

// waitingSQL is the part of it about tombstones that were not removed yet, by the same parameters.
//
//go:embed queries/waiting.sql
var waitingSQL string

// ConfirmEvery is how often a worker without other work looks whether older transactions have ended, of which no
// notification tells.
const ConfirmEvery = 5 * time.Second

// dueText is dueSQL with all parts but {barred}.
var dueText = strings.NewReplacer( //nolint:gochecknoglobals // a constant
	"{waiting}", waitingSQL, "{prepared}", loosefk.PreparedSQL(), "{horizon}", loosefk.HorizonSQL(7)).Replace(dueSQL)

// Called reports whether the jobs database, on a connection of its own, has tombstones of which a writer may have told, and that may be taken now.
func (w *Work) Called(ctx context.Context, on listen.Querier, db database.Database, barredSQL string) (now bool, err error) {
	parents := w.Memory.Noted(db.Name)
	times, ids := w.Memory.Cursors(db.Name).Positions(parents, false)
	sql := "SELECT " + waitingSQL + " AND NOT (" + barredSQL + ") AS now"
	err = on.QueryRow(ctx, db.Names.Render(sql), Kind, db.Name, parents, times, ids).Scan(&now)
	return now, problem.Doing(err, "look for new tombstones")
}

// Due asks the predicate on any connection or transaction of the database: from the cursors on or,
// with fresh, from the beginning: the next run must not overlook what is found there. barredSQL reports, of kind $1 and database $2 in the
// jobs database, whether nothing may be done now.
func (w *Work) Due(ctx context.Context, on listen.Querier, db database.Database, fresh bool, barredSQL string) (listen.Due, error) {
	cursors, settings := w.Memory.Cursors(db.Name), w.Config.LooseForeignKeys
	parents := w.Memory.Noted(db.Name)
	times, ids := cursors.Positions(parents, fresh)
	args := []any{Kind, db.Name, parents, times, ids, settings.ConfirmWithin.Seconds(), settings.ConfirmGrace.Seconds()}
	condition, jobs := barredSQL, w.Jobs
	if jobs.Name != db.Name {
		condition, args[0] = "$1::boolean", false
	}
	var due listen.Due
	var seconds float64
	var confirming bool
	sql := strings.Replace(dueText, "{barred}", condition, 1)
	err := on.QueryRow(ctx, db.Names.Render(sql), args...).Scan(&due.Now, &seconds, &confirming)
	if err != nil {
		return listen.Due{}, fmt.Errorf("look for due tombstones: %w", err)
	}
	if due.Now && jobs.Name != db.Name {
		var barred bool
		if err := jobs.Async().QueryRow(ctx, jobs.Names.Render("SELECT "+barredSQL), Kind, db.Name).Scan(&barred); err != nil {
			return listen.Due{}, fmt.Errorf("look whether %s may run: %w", Kind, err)
		}
		due.Now = !barred
	}
	due.In = max(0, time.Duration(seconds*float64(time.Second)))
	if fresh && due.Now {
		cursors.Forget()
	}
	if confirming && (due.In == 0 || due.In > ConfirmEvery) {
		due.In = ConfirmEvery
	}
	return due, nil
}
