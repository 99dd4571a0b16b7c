package ghostuser

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/fault"
)

const (
	// crowdUsers is the most users that are worked off together. Rows of users who are deleted together lie scattered over
	// the same pages: one visit serves them all.
	crowdUsers = 50
	// crowdRows is how many rows a user may have of one step in a crowd. A user with more leaves it, so that the others do not wait for
	// rows that take long.
	crowdRows = 500
)

// pointer leads to a row of a user.
type pointer struct {
	At    pgtype.TID
	Owner int64
}

// crowd is some users of one kind of deletion whose rows are worked off together, until each of them has a turn of its own
// to be deleted. It is there for speed alone: whatever does not go smoothly is left to those turns, which know whom to
// blame and for what to wait.
type crowd struct {
	hardDelete bool
	members    map[int64]*job
	// apart are the steps that are left to the members' own turns.
	apart map[*step]bool
	turns int
}

// gather forms a crowd of users who have not been in one yet; nil where there are not two of them.
func (r *run) gather() *crowd {
	c := &crowd{members: map[int64]*job{}, apart: map[*step]bool{}}
	for _, j := range r.active {
		if j.alone || len(c.members) > 0 && j.hardDelete != c.hardDelete {
			continue
		}
		c.hardDelete = j.hardDelete
		if c.members[j.userID] = j; len(c.members) == crowdUsers {
			break
		}
	}
	if len(c.members) >= 2 {
		return c
	}
	c.disperse()
	return nil
}

// users are the members in the order of their ids.
func (c *crowd) users() []int64 { return slices.Sorted(maps.Keys(c.members)) }

// leave leaves a user to turns of its own.
func (c *crowd) leave(user int64) {
	c.members[user].alone = true
	delete(c.members, user)
}

// disperse leaves all to turns of their own.
func (c *crowd) disperse() {
	for user := range c.members {
		c.leave(user)
	}
}

// together gives the crowd one turn, if there is one. A crowd that takes too many turns ends, no matter which user is the cause.
func (r *run) together(ctx context.Context) error {
	if r.crowd == nil {
		r.crowd = r.gather()
	}
	c := r.crowd
	if c == nil {
		return nil
	}
	r.left = turnBatches
	finished, err := r.crowdTurn(ctx, c)
	if err != nil {
		if fault.Judge(err).Verdict == fault.Fatal {
			return fmt.Errorf("delete users together: %w", err)
		}
		finished = true
	}
	if c.turns++; finished || c.turns == mostRounds {
		for _, j := range c.members {
			j.cleared = err == nil && finished && len(c.apart) == 0
		}
		c.disperse()
		r.crowd = nil
	}
	return nil
}

// crowdTurn works off the steps in their order. It reports whether that was all.
func (r *run) crowdTurn(ctx context.Context, c *crowd) (finished bool, err error) {
	live, err := r.lookAtAll(ctx, c)
	if err != nil {
		return false, err
	}
	for _, s := range live {
		if s.Action == drain.Forbid {
			continue // The users that it is about have left the crowd.
		}
		for _, leaf := range s.Leaves {
			if s.doubled {
				c.apart[s] = true
			}
			if c.apart[s] {
				continue
			}
			through, err := r.clear(ctx, c, s, leaf)
			if err != nil || !through {
				return false, err
			}
		}
	}
	return true, nil
}

// lookAtAll returns the steps of which somebody in the crowd has rows. Who is not in the queue any more, or not for
// this kind of deletion, or may not be deleted, leaves it.
func (r *run) lookAtAll(ctx context.Context, c *crowd) (steps []*step, err error) {
	sql, args := r.engine.Plan.crowdLookStatement(r.Session.Names, c, r.ghost)
	var entitled []int64
	var ghost bool
	var live []bool
	err = r.Send(ctx, r.Hasty(), batch.Statement{SQL: sql, Args: args, Scan: batch.One(&entitled, &ghost, &live)})
	if err != nil {
		return nil, err
	}
	for _, user := range c.users() {
		if !slices.Contains(entitled, user) {
			c.leave(user)
		}
	}
	if !ghost {
		if err := r.findGhost(ctx); err != nil {
			return nil, err
		}
	}
	return r.liveSteps(c.hardDelete, live), nil
}

// clear works off what the members have of one step in one leaf. It is not through where the turn was over first.
func (r *run) clear(ctx context.Context, c *crowd, s *step, leaf Table) (through bool, err error) {
	if r.paused(ctx) {
		return false, nil
	}
	pointers, err := r.crowdWindow(ctx, c, s, leaf)
	if err != nil {
		return false, err
	}
	rows := map[int64]int{}
	for _, p := range pointers {
		rows[p.Owner]++
	}
	l := r.engine.Sizes.ladder(s, false)
	l.Skip = true // Rows that others have locked are left to the members' own turns.
	_, ended, f, err := r.Pieces(ctx, len(pointers), l, func(ctx context.Context, at, n int, limits batch.Limits) error {
		return r.crowdPiece(ctx, c, s, leaf, pointers[at:at+n], limits)
	})
	switch {
	case err != nil && f.Verdict == fault.Fatal:
		return false, err
	case ended == drain.Blocked:
		c.apart[s] = true
		return true, nil // The members' own turns meet it again, and know whom to blame.
	}
	for owner, n := range rows {
		if n >= crowdRows {
			c.leave(owner)
		}
	}
	return ended == drain.Finished, nil
}

// crowdWindow reads pointers in the order of the rows on disk.
func (r *run) crowdWindow(ctx context.Context, c *crowd, s *step, leaf Table) ([]pointer, error) {
	sql, args := s.crowdWindowStatement(leaf, c)
	pointers, err := drain.Query(ctx, r.Run, pgx.RowToStructByPos[pointer], sql, args...)
	slices.SortFunc(pointers, func(a, b pointer) int {
		return cmp.Or(cmp.Compare(a.At.BlockNumber, b.At.BlockNumber), cmp.Compare(a.At.OffsetNumber, b.At.OffsetNumber))
	})
	return pointers, err
}

// crowdPiece runs one statement on the rows that pointers lead to.
func (r *run) crowdPiece(ctx context.Context, c *crowd, s *step, leaf Table, pointers []pointer, limits batch.Limits) error {
	sql, args := s.crowdPieceStatement(r.Session.Names, leaf, r.ghost, pointers)
	type change struct{ Owner, Rows, Kept int64 }
	var changes []change
	err := r.Send(ctx, limits, batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&changes, pgx.RowToStructByPos[change])})
	if err != nil {
		return err
	}
	for _, one := range changes {
		j := c.members[one.Owner]
		j.begun = true
		r.stats.Current = &j.done
		r.stats.count(j, s, s.Action, one.Rows)
		if one.Kept > 0 {
			err = keeps(s)
		}
	}
	return err
}
