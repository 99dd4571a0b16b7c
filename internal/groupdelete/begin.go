package groupdelete

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// standing is how a group stands.
type standing struct {
	// Begun reports that its destruction has begun, by this statement or before.
	Begun                  bool
	Marked, Scheduled, Due bool
	// Undated reports that the application's settings have no period.
	Undated   bool
	Permitted bool
	// Done and Total count the rows of a destruction that had begun before.
	Done, Total int64
	// Touched reports that one of them has gone or changed, after which there is no way
	// back.
	Touched bool
}

// refusedFor is how long, in seconds, the daily job leaves a group alone that cannot be
// destroyed as foreign keys are.
const refusedFor = 3600.0

// begin ensures that the destruction has begun, and reports whether there is anything to
// do. The checks are made again in the transaction that begins it, under the lock of the
// group that a session that restores it has to have as well.
func (r *run) begin(ctx context.Context) (bool, error) {
	plan := r.engine.Plan
	names, groups := r.Session.Names, plan.marked(r.Session.Names)
	const columns = "SELECT begun, marked, scheduled, due, undated, permitted, done, total, touched FROM "
	sql := columns + "(" + statement(names, "standing", "{groups}", groups) + ") AS standing"
	before, err := r.standing(ctx, batch.Statement{SQL: sql, Args: []any{r.group()}})
	if err != nil {
		return false, err
	}
	if before == nil {
		r.stats.Outcome = Gone
		return false, r.forget(ctx, r.engine.GroupID)
	}
	if before.Begun {
		r.stats.Done, r.stats.Total, r.doneBefore, r.final = before.Done, before.Total, before.Done, before.Touched
		return true, nil
	}
	if reason := before.kept(); reason != "" {
		r.stats.Outcome, r.stats.Reason = Kept, reason
		return false, nil
	}
	total, err := plan.estimate(ctx, r.Read, r.engine.GroupID)
	if err != nil {
		return false, err
	}
	begin := batch.Statement{SQL: statement(names, "begin", "{groups}", groups), Args: []any{r.group(), total}}
	after, err := r.standing(ctx, begin, plan.lock(r.engine.GroupID))
	switch {
	case err != nil:
		return false, err
	case after == nil:
		r.stats.Outcome = Gone
		return false, r.forget(ctx, r.engine.GroupID)
	case !after.Begun:
		r.stats.Outcome, r.stats.Reason = Kept, after.kept()
		return false, nil
	}
	r.stats.Total = total
	r.Changes++
	return true, nil
}

// sender runs a transaction.
type sender = func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error

// alter runs a transaction that deletes or changes rows. As long as none has, the
// deletion may be cancelled, which deletes the record of the destruction: the statement
// number at of the transaction, which must come after the lock of a group that the
// cancelling session locks first, holds that record until the commit.
func (r *run) alter(ctx context.Context, limits batch.Limits, at int, statements ...batch.Statement) error {
	return r.alterBy(ctx, r.send, limits, at, statements...)
}

func (r *run) alterBy(ctx context.Context, send sender, limits batch.Limits, at int,
	statements ...batch.Statement,
) error {
	r.mu.Lock()
	final := r.final
	r.mu.Unlock()
	if final {
		return send(ctx, limits, statements...)
	}
	confirm := batch.Statement{SQL: statement(r.Session.Names, "confirm"), Args: []any{r.group()}}
	err := send(ctx, limits, slices.Insert(slices.Clone(statements), at, confirm)...)
	if failed, ok := errors.AsType[*batch.StatementError](err); ok && failed.Index == at &&
		batch.Judge(err).SQLState == batch.Unmet {
		return drain.ErrCancelled
	}
	return err
}

// handleBeginning records an error that came before the first step; one that ends the run
// it returns.
func (r *run) handleBeginning(ctx context.Context, err error) error {
	f := batch.Judge(err)
	if f.Verdict == batch.Fatal {
		return err
	}
	f.Table = "groups"
	return r.refuse(ctx, f)
}

// refuse counts an attempt and records the reason, whether or not the destruction has
// begun.
func (r *run) refuse(ctx context.Context, f batch.Fault) error {
	r.stats.fail(f)
	r.stats.Outcome, r.stats.Reason = Stuck, f.Text()
	names := r.Session.Names
	return r.sendOwn(ctx,
		batch.Statement{SQL: statement(names, "blame"), Args: []any{r.group(), f.Text()}},
		batch.Statement{
			SQL:  statement(names, "refuse", "{type}", r.engine.Plan.key.KeyTypes[0]),
			Args: []any{r.group(), f.Text(), refusedFor},
		})
}

// standing runs a statement that tells how the group stands, behind others; nil where
// there is no such group.
func (r *run) standing(ctx context.Context, asking batch.Statement, first ...batch.Statement) (*standing, error) {
	var found []*standing
	asking.Scan = batch.Collect(&found, pgx.RowToAddrOfStructByPos[standing])
	if err := r.send(ctx, r.Session.Limits, append(first, asking)...); err != nil {
		return nil, fmt.Errorf("look whether the group may be destroyed: %w", err)
	}
	if len(found) == 0 {
		return nil, nil //nolint:nilnil // documented: there is no such group
	}
	return found[0], nil
}

// kept says why a destruction does not begin.
func (s *standing) kept() string {
	switch {
	case !s.Marked:
		return "the group is not marked for deletion: it was restored"
	case !s.Scheduled:
		return "the group is marked for deletion, but it is not scheduled"
	case s.Undated:
		return "the application's settings have no period (deletion_adjourned_period)"
	case !s.Due:
		return "the group is not due"
	case !s.Permitted:
		return "the user who scheduled the group may not remove it any more"
	default:
		return ""
	}
}

// forget deletes the lease and the fence of a group that is gone. The session works under
// that lease, and does nothing after it.
func (r *run) forget(ctx context.Context, g dml.ID) error {
	p := r.engine.Plan
	sql := statement(r.Session.Names, "forget", "{groups}", p.table(), "{id}", p.id("target"))
	err := r.sendOwn(ctx, batch.Statement{SQL: sql, Args: []any{p.parameter(g), LeaseKey(g)}})
	return problem.Doing(err, "forget the lease of group %s, which is gone", g)
}

func (p *Plan) finishStatement(names pgcatalog.Names, refs []*ref) string {
	terms := render.Each(refs, func(f *ref) string { return f.Exists("target") })
	schedule := ""
	if p.gitlab() {
		schedule = statement(names, "unscheduled")
	}
	return statement(names, "finish", "{schedule}", schedule, "{live}", strings.Join(terms, ", "), "{line}",
		p.lineHolds(2),
		"{marked}", p.marked(names), "{groups}", p.table(), "{id}", p.id("target"), "{parent}", p.parent("target"),
		"{path}", p.path("target"),
		"{type}", p.key.KeyTypes[0])
}

//go:embed queries
var queries embed.FS

// statement renders a text of the folder queries for the configured schemas and then puts
// in what must not be rendered: names of the application's, which may have a schema
// called public.
func statement(names pgcatalog.Names, name string, parts ...string) string {
	return strings.NewReplacer(parts...).Replace(names.Render(pgcatalog.Texts{Files: queries}.Statement(name)))
}
