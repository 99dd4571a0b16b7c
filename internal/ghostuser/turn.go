package ghostuser

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/problem"
)

const (
	// turnBatches is how many batches a user has in one turn: half a second's worth at the usual target.
	turnBatches = 25
	// mostBeaten is how many deadlocks and the like are tried again in one run.
	mostBeaten = 5
)

// result is how a turn ended.
type result int

const (
	// finished: the user is out of the queue.
	finished result = iota
	// yielded: there is more to do.
	yielded
	// blocked: all that is left is locked by others.
	blocked
	// failed: the user is to be put off, for the fault of the job.
	failed
)

// turn gives a user some batches. It keeps nothing in memory: each turn looks afresh at what there is to do, as a run
// after a crash would. The error is one that ends the run.
func (r *run) turn(ctx context.Context, j *job) (result, error) {
	r.left, j.fault = turnBatches, batch.Fault{}
	if j.cleared {
		j.cleared = false
		if gone, _, result, err := r.destroy(ctx, j, nil); gone || err != nil || result != yielded {
			return result, err
		}
	}
	for {
		if r.paused(ctx) {
			return yielded, nil
		}
		looks, f, err := r.look(ctx, []*job{j}, j.hardDelete)
		if err != nil {
			return r.beaten(j, f, err)
		}
		switch look := looks[0]; {
		case look.HardDelete == nil:
			r.cancelled(ctx, j)
			return finished, nil
		case look.UserType == nil:
			return r.drop(ctx, j)
		case *look.UserType == ghostType:
			return j.fails(batch.Fault{Message: "the ghost user cannot be deleted"})
		case !deletable(*look.UserType):
			return j.fails(batch.Fault{Message: fmt.Sprintf("an internal user (user_type %d) cannot be deleted", *look.UserType)})
		case !look.Ghost:
			if err := r.findGhost(ctx); err != nil {
				return 0, err
			}
			continue
		case *look.HardDelete != j.hardDelete:
			// The kind of deletion has been changed meanwhile. What was looked at are the columns of the other kind of deletion.
			j.hardDelete = *look.HardDelete
			continue
		}
		live := r.liveSteps(j.hardDelete, looks[0].Live)
		if s := restricted(live); s != nil {
			return r.refuse(ctx, j, s)
		}
		if result, err := r.drainAll(ctx, j, live); result != finished || err != nil {
			return result, err
		}
		return r.finish(ctx, j)
	}
}

func deletable(userType int32) bool {
	switch userType {
	case humanType, projectBotType, serviceAccountType, placeholderType:
		return true
	default:
		return false
	}
}

// drainAll works the steps off in their order. One that others are in the way of holds up only deletions that might take rows along which it has
// to tell of. finished means that there was nothing left of any.
func (r *run) drainAll(ctx context.Context, j *job, live []*step) (result, error) {
	stuck, untold := false, false
	for _, s := range live {
		if untold && s.Action == drain.Remove {
			continue
		}
		for _, leaf := range s.Leaves {
			result, err := r.drain(ctx, j, s, leaf)
			switch {
			case err != nil:
				j.fault = batch.FaultIn(err, s.tableLabel)
				return result, err
			case result == failed:
				return failed, nil
			case result == yielded:
				if sql, args := s.leftStatement(j); j.tide(s).Turns(ctx, r.Run, sql, args...) {
					return j.fails(comesBack(s.tableLabel))
				}
				return yielded, r.estimate(ctx, j, live)
			case result == blocked:
				stuck, untold = true, untold || s.toldOf()
			}
		}
	}
	if stuck {
		return blocked, nil
	}
	return finished, nil
}

// fails has the user put off for a fault.
func (j *job) fails(f batch.Fault) (result, error) {
	j.fault = f
	return failed, nil
}

// beaten decides about an error that no step is to blame for alone.
func (r *run) beaten(j *job, f batch.Fault, err error) (result, error) {
	j.fault = f
	switch {
	case f.Verdict == batch.Fatal:
		return 0, err
	case r.Pace.Ended():
		// The timeouts were cut to the lease's end.
		return yielded, nil
	case f.Verdict == batch.Conflict && j.beaten < mostBeaten:
		j.beaten++
		return yielded, nil
	case f.Lock():
		// That is no failure: the user stays, and is tried again until the run ends.
		if j.waits {
			f.Table = cmp.Or(f.Table, "users")
			j.obstacle.Again(f.Table+": "+f.Message, r.Session.Seen().Transaction)
			r.obstacles.Add(&j.obstacle)
		}
		return blocked, nil
	}
	return failed, nil
}

// look is how a user stands.
type look struct {
	User int64
	// HardDelete is the queue's flag, nil where the user is in there no more, UserType nil where there is no such user.
	HardDelete *bool
	UserType   *int32
	// Ghost reports that the ghost user is still one.
	Ghost bool
	Live  []bool
}

func (r *run) look(ctx context.Context, of []*job, hardDelete bool) (found []look, _ batch.Fault, err error) {
	sql, args := r.engine.Plan.lookStatement(r.Session.Names, of, hardDelete, r.ghost)
	r.Session.Seen() // Of an earlier wait.
	judge := r.Watch(ctx, r.ShortWaits())
	found, err = drain.Query(ctx, r.Run, pgx.RowToStructByPos[look], sql, args...)
	return found, judge(err), err
}

func (r *run) liveSteps(hardDelete bool, live []bool) []*step {
	var steps []*step
	for i, s := range r.engine.Plan.steps(hardDelete) {
		if live[i] {
			steps = append(steps, s)
		}
	}
	return steps
}

// findGhost finds or makes the ghost user.
func (r *run) findGhost(ctx context.Context) error {
	_, err := r.Session.Run(ctx, batch.Statement{
		SQL:  r.Session.Names.Render(`SELECT "sexton".ghost_user()`),
		Scan: batch.One(&r.ghost),
	})
	return problem.Doing(err, "find ghost user")
}
