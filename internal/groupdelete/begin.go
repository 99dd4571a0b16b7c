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

// groupState is the state of a group and of its destruction.
type groupState struct {
	// Begun reports that the destruction has begun, by this statement or before.
	Begun                  bool
	Marked, Scheduled, Due bool
	// Undated reports that the application's settings have no period between mark and
	// deletion.
	Undated   bool
	Permitted bool
	// Done is the number of deleted rows and Total the estimate of all rows, if the
	// destruction had begun before.
	Done, Total int64
	// Touched reports that a row was deleted or changed, so that the deletion cannot be
	// canceled any more.
	Touched bool
}

// deferredFor is the time in seconds for which a group is deferred if its destruction
// cannot begin.
const deferredFor = 3600.0

// begin begins the destruction unless it has begun before. It reports whether the group
// must be deleted.
//
// The transaction that begins the destruction locks the group and repeats the checks. A
// session that restores the group takes the same lock.
func (r *run) begin(ctx context.Context) (bool, error) {
	plan := r.engine.Plan
	names, groups := r.Session.Names, plan.marked(r.Session.Names)
	const columns = "SELECT begun, marked, scheduled, due, undated, permitted, done, total, touched FROM "
	sql := columns + "(" + statement(names, "state", "{groups}", groups) + ") AS standing"
	before, err := r.readState(ctx, batch.Statement{SQL: sql, Args: []any{r.group()}})
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
	if reason := before.keepReason(); reason != "" {
		r.stats.Outcome, r.stats.Reason = Kept, reason
		return false, nil
	}
	total, err := plan.estimate(ctx, r.Read, r.engine.GroupID)
	if err != nil {
		return false, err
	}
	begin := batch.Statement{SQL: statement(names, "begin", "{groups}", groups), Args: []any{r.group(), total}}
	after, err := r.readState(ctx, begin, plan.lock(r.engine.GroupID))
	switch {
	case err != nil:
		return false, err
	case after == nil:
		r.stats.Outcome = Gone
		return false, r.forget(ctx, r.engine.GroupID)
	case !after.Begun:
		r.stats.Outcome, r.stats.Reason = Kept, after.keepReason()
		return false, nil
	}
	r.stats.Total = total
	r.Changes++
	return true, nil
}

// alter runs a transaction that deletes or changes rows. Until the first such transaction
// commits, another session may cancel the deletion by deleting the record of the
// destruction. To prevent this, alter inserts a statement at the given index that locks
// the record. The index must be after a statement that locks a group, because a session
// that cancels the deletion locks the group first.
func (r *run) alter(ctx context.Context, limits batch.Limits, index int, statements ...batch.Statement) error {
	if r.final {
		return r.send(ctx, limits, statements...)
	}
	confirm := batch.Statement{SQL: statement(r.Session.Names, "confirm"), Args: []any{r.group()}}
	err := r.send(ctx, limits, slices.Insert(slices.Clone(statements), index, confirm)...)
	if failed, ok := errors.AsType[*batch.StatementError](err); ok && failed.Index == index &&
		batch.Judge(err).SQLState == batch.Unmet {
		return drain.ErrCancelled
	}
	return err
}

// deferGroup records an error that occurred before the first step, and counts an attempt.
// If the destruction has not begun, it also defers the group. It returns the error if the
// error is fatal.
func (r *run) deferGroup(ctx context.Context, err error) error {
	f := batch.Judge(err)
	if f.Verdict == batch.Fatal {
		return err
	}
	f.Table = r.engine.Plan.groups.table.Label()
	r.stats.fail(f)
	r.stats.Outcome, r.stats.Reason = Stuck, f.Text()
	names := r.Session.Names
	return r.sendOwn(ctx,
		batch.Statement{SQL: statement(names, "blame"), Args: []any{r.group(), f.Text()}},
		batch.Statement{
			SQL:  statement(names, "refuse", "{type}", r.engine.Plan.key.KeyTypes[0]),
			Args: []any{r.group(), f.Text(), deferredFor},
		})
}

// readState runs the statements of first, and then query, which selects the state of the
// group. It returns nil if the group does not exist.
func (r *run) readState(ctx context.Context, query batch.Statement, first ...batch.Statement) (*groupState, error) {
	var found []*groupState
	query.Scan = batch.Collect(&found, pgx.RowToAddrOfStructByPos[groupState])
	if err := r.send(ctx, r.Session.Limits, append(first, query)...); err != nil {
		return nil, fmt.Errorf("check whether the group may be destroyed: %w", err)
	}
	if len(found) == 0 {
		return nil, nil //nolint:nilnil // documented: there is no such group
	}
	return found[0], nil
}

// keepReason returns the reason for which a destruction cannot begin, or "" if it can.
func (s *groupState) keepReason() string {
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
		return "the user who scheduled the group may no longer remove it"
	default:
		return ""
	}
}

// forget deletes the lease and the fence of a group that does not exist. The session
// works under that lease, so the caller must not use the session afterwards.
func (r *run) forget(ctx context.Context, g dml.ID) error {
	p := r.engine.Plan
	sql := statement(r.Session.Names, "forget", "{groups}", p.table(), "{id}", p.id("target"))
	err := r.sendOwn(ctx, batch.Statement{SQL: sql, Args: []any{p.key.Argument(g), LeaseKey(g)}})
	return problem.Doing(err, "delete the lease of group %s, which does not exist", g)
}

// finishStatement returns the statement that deletes a group if no rows refer to the
// group by refs.
func (p *Plan) finishStatement(names pgcatalog.Names, refs []*ref) string {
	terms := render.Each(refs, func(f *ref) string { return f.Exists("target") })
	schedule := ""
	if p.gitlab() {
		schedule = statement(names, "unscheduled")
	}
	return statement(names, "finish", "{schedule}", schedule, "{live}", strings.Join(terms, ", "), "{lineage}",
		p.lineageHolds(2),
		"{marked}", p.marked(names), "{groups}", p.table(), "{id}", p.id("target"), "{parent}", p.parent("target"),
		"{path}", p.path("target"),
		"{type}", p.key.KeyTypes[0])
}

//go:embed queries
var queries embed.FS

// statement returns the SQL of a file in the folder queries, rendered for the configured
// schemas. It replaces the parts after that, because they must not be rendered: they
// contain names of the application, which may use a schema called public.
func statement(names pgcatalog.Names, name string, parts ...string) string {
	return strings.NewReplacer(parts...).Replace(names.Render(pgcatalog.Texts{Files: queries}.Statement(name)))
}
