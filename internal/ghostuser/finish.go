package ghostuser

import (
	"context"
	"errors"
	"slices"
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain"
)

const usersTable = "users"

// finish deletes a user who has nothing left. What is found under the lock, a batch of each step at most, goes in the
// same transaction; where there is more than that the user stays and has another turn.
func (r *run) finish(ctx context.Context, j *job) (result, error) {
	heavy := slices.Contains(j.heavy, usersTable)
	if heavy {
		if result, err := r.clearUser(ctx, j); result != finished || err != nil {
			return result, err
		}
	}
	destroyed, left, result, err := r.destroy(ctx, j, nil)
	if err == nil && result == failed && j.fault.Verdict == batch.Timeout && !heavy {
		return r.makeHeavy(ctx, j, usersTable)
	}
	if s := restricted(left); err == nil && s != nil {
		return r.refuse(ctx, j, s)
	}
	if err == nil && !destroyed && len(left) > 0 && result == yielded {
		destroyed, _, result, err = r.destroy(ctx, j, left)
	}
	switch {
	case err != nil || result == failed || result == blocked:
		return result, err
	case destroyed:
		return finished, nil
	}
	j.rounds++
	if j.rounds > drain.MostRounds {
		f := j.fault
		if f.Message == "" {
			f = comesBack("")
			if len(left) > 0 {
				f.Table = left[0].tableLabel
			}
		}
		return j.fails(f)
	}
	return yielded, nil
}

// destroy locks the user, works off a batch of each of the steps and deletes the user if nothing is left. The result is
// yielded where the user stays without anybody's fault.
func (r *run) destroy(ctx context.Context, j *job, steps []*step) (gone bool, left []*step, _ result, _ error) {
	j.fault = batch.Fault{}
	names := r.Session.Names
	lockSQL, lockArgs := r.engine.Plan.lockStatement(j)
	statements := []batch.Statement{{SQL: lockSQL, Args: lockArgs}}
	about := []*step{nil}
	changes := map[int]*[]change{}
	for _, s := range steps {
		limit := r.engine.Sizes.rows(s)
		for _, leaf := range s.Leaves {
			waitSQL, waitArgs := s.waitStatement(leaf, j, limit)
			cleanSQL, cleanArgs := s.cleanStatement(names, leaf, j, r.ghost, limit, true)
			changed := &[]change{}
			changes[len(statements)+1] = changed
			statements = append(statements, batch.Statement{SQL: waitSQL, Args: waitArgs}, changing(changed, cleanSQL, cleanArgs))
			about = append(about, s, s)
		}
	}
	sql, args := r.engine.Plan.destroyStatement(names, j)
	var live []bool
	var total Current
	statements = append(statements, batch.Statement{SQL: sql, Args: args, Scan: batch.One(&gone, &live, &total.Moved, &total.Deleted, &total.Nullified)})
	limits := r.ShortWaits()
	if len(steps) > 0 {
		limits = r.Session.Limits
	}
	judge := r.Watch(ctx, limits)
	err := r.Send(ctx, limits, statements...)
	if f := judge(err); err != nil {
		var duplicate bool
		if at, ok := errors.AsType[*batch.StatementError](err); ok && at.Index > 0 && at.Index < len(about) {
			f.Table, duplicate = about[at.Index].tableLabel, about[at.Index].duplicate(err)
		} else if f.Verdict != batch.Fatal {
			f.Table = usersTable
			// At the COMMIT, by a deferred constraint.
			duplicate = slices.ContainsFunc(steps, func(s *step) bool { return s.duplicate(err) })
		}
		if duplicate || f.Verdict == batch.Timeout && len(steps) > 0 {
			j.fault = f
			return false, nil, yielded, nil // They go the usual way, in pieces.
		}
		result, err := r.beaten(j, f, err)
		return false, nil, result, err
	}
	for at, changed := range changes {
		r.count(about[at], about[at].Action, *changed)
	}
	if !gone {
		return false, r.liveSteps(j.hardDelete, live), yielded, nil
	}
	r.stats.UsersProcessed++
	r.stats.Latency.Add(time.Since(j.queued))
	item := r.item(j, Destroyed)
	item.Moved, item.Deleted, item.Nullified = total.Moved, total.Deleted, total.Nullified
	r.progress(ctx)
	r.tell(ctx, item)
	return true, nil, finished, nil
}
