package ghostuser

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/each"
)

const (
	// batchUsers is the most users that are worked off together. Rows of users who are deleted together lie scattered over
	// the same pages: one visit serves them all.
	batchUsers = 50
	// batchRows is how many rows a user may have of one step in a batch. A user with more has only those worked off there, so that the others
	// do not wait for rows that take long.
	batchRows = 500
)

// pointer leads to a row of a user.
type pointer struct {
	At    pgtype.TID
	Owner int64
}

// userBatch is some users of one kind of deletion whose rows are worked off together, until each of them has a turn of its own
// to be deleted. It is there for speed alone: whatever does not go smoothly is left to those turns, which know whom to
// blame and for what to wait.
type userBatch struct {
	sync.Mutex

	hardDelete bool
	members    map[int64]*job
	// apart are the steps that are left to the members' own turns; more are members with rows that the batch has not looked for.
	apart map[*step]bool
	more  map[int64]bool
	turns int
	// errands are what there is to do, in the order of the steps. A turn may end in the midst of some.
	errands []*errand

	// One goroutine per session works on errands. Each has the lock, except while its statement runs. Moved tells them that one has ended.
	moved *sync.Cond
	busy  []*errand
	// passed has the run's own goroutine learn from statements of the others; over ends their work, and failed, if set, ends the turn.
	passed []func()
	over   bool
	failed error
}

// errand is a batch's work on one step in one leaf: to read pointers, and to work them off in the order of the rows on disk.
type errand struct {
	*drain.Ladder

	step     *step
	leaf     Table
	read     bool
	pointers []pointer
	// part is the part of the members that the rows belong to, from 1 on; 0 is all of them.
	part int
}

// beside reports whether two errands can go at once. Each has a table of its own: what users have written comes to stand at one place of an index,
// where two statements would wait for each other. And each counts for users of its own.
func (e *errand) beside(other *errand) bool {
	return e.leaf.OID != other.leaf.OID && (!e.read || !other.read || e.part > 0 && other.part > 0 && e.part != other.part)
}

// sort is the same for errands that go at once: rows that a step deletes may have rows of other steps below them. Of tables that are told of, each has
// to be through before the next one begins.
func (e *errand) sort() any {
	if e.step.toldOf() {
		return e.step
	}
	return e.step.Action
}

// gather forms a batch of users who have not been in one yet; nil where there are not two of them.
func (r *run) gather() *userBatch {
	c := &userBatch{members: map[int64]*job{}, apart: map[*step]bool{}, more: map[int64]bool{}}
	c.moved = sync.NewCond(c)
	for _, j := range r.active {
		if j.alone || len(c.members) > 0 && j.hardDelete != c.hardDelete {
			continue
		}
		c.hardDelete, j.seat = j.hardDelete, len(c.members)
		if c.members[j.userID] = j; len(c.members) == batchUsers {
			break
		}
	}
	if len(c.members) >= 2 {
		return c
	}
	c.disperse()
	return nil
}

// users are the members whose rows are still looked for, in the order of their ids.
func (c *userBatch) users() []*job {
	users := slices.DeleteFunc(slices.Sorted(maps.Keys(c.members)), func(user int64) bool { return c.more[user] })
	return each.Of(users, func(user int64) *job { return c.members[user] })
}

// leave leaves a user to turns of its own.
func (c *userBatch) leave(user int64) {
	c.members[user].alone = true
	delete(c.members, user)
}

// disperse leaves all to turns of their own.
func (c *userBatch) disperse() {
	for user := range c.members {
		c.leave(user)
	}
}

// together gives the batch one turn, if there is one. A batch that takes too many turns ends, no matter which user is the cause.
func (r *run) together(ctx context.Context) error {
	if r.userBatch == nil {
		r.userBatch = r.gather()
	}
	c := r.userBatch
	if c == nil {
		return nil
	}
	r.left = turnBatches * r.sessions.Free()
	finished, err := r.batchTurn(ctx, c)
	if err != nil {
		if batch.Judge(err).Verdict == batch.Fatal && !r.sessions.Survives(ctx) {
			return fmt.Errorf("delete users together: %w", err)
		}
		finished = true
	}
	if c.turns++; finished || c.turns == drain.MostRounds {
		for user, j := range c.members {
			j.cleared = err == nil && finished && len(c.apart) == 0 && !c.more[user]
		}
		c.disperse()
		r.userBatch = nil
	}
	return nil
}

// batchTurn works off the steps in their order. It reports whether that was all.
func (r *run) batchTurn(ctx context.Context, c *userBatch) (finished bool, err error) {
	live, err := r.lookAtAll(ctx, c)
	if err != nil {
		return false, err
	}
	r.plan(c, live)
	for len(c.errands) > 0 {
		if r.paused(ctx) {
			return false, nil
		}
		if err := r.batchRound(ctx, c); err != nil {
			return false, err
		}
	}
	return true, nil
}

// plan lists the errands, first of all the begun ones of each step.
func (r *run) plan(c *userBatch, live []*step) {
	begun := c.errands
	c.errands = nil
	for _, s := range live {
		if s.doubled {
			c.apart[s] = true
		}
		if c.apart[s] || s.Action == drain.Forbid { // The users that a refusal is about have left the batch.
			continue
		}
		for _, leaf := range s.Leaves {
			again := len(c.errands)
			for _, e := range begun {
				if e.step == s && e.leaf.OID == leaf.OID {
					e.pointers = slices.DeleteFunc(e.pointers, func(p pointer) bool { return c.members[p.Owner] == nil })
					if !e.read || len(e.pointers) > 0 {
						c.errands = append(c.errands, e)
					}
				}
			}
			if len(c.errands) == again {
				e := &errand{Ladder: r.engine.Sizes.ladder(s, false), step: s, leaf: leaf}
				e.Skip = true // Rows that others have locked are left to the members' own turns.
				c.errands = append(c.errands, e)
			}
		}
	}
}

// lookAtAll returns the steps of which a user in the batch has rows. A user who is not in the queue any more, or not for
// this kind of deletion, or may not be deleted, leaves it.
func (r *run) lookAtAll(ctx context.Context, c *userBatch) ([]*step, error) {
	looks, _, err := r.look(ctx, slices.Collect(maps.Values(c.members)), c.hardDelete)
	if err != nil {
		return nil, err
	}
	live, ghost := make([]bool, len(r.engine.Plan.steps(c.hardDelete))), true
	for _, one := range looks {
		ghost = one.Ghost
		if one.HardDelete == nil || *one.HardDelete != c.hardDelete || one.UserType == nil || !deletable(*one.UserType) ||
			restricted(r.liveSteps(c.hardDelete, one.Live)) != nil {
			c.leave(one.User)
			continue
		}
		for i, has := range one.Live {
			live[i] = live[i] || has && !c.more[one.User]
		}
	}
	if !ghost {
		if err := r.findGhost(ctx); err != nil {
			return nil, err
		}
	}
	return r.liveSteps(c.hardDelete, live), nil
}

// next waits for an errand that can go beside those in hand, and returns its next statement; nil where there is nothing more to do.
func (r *run) next(c *userBatch) (*errand, errandBatch) {
	c.Lock()
	defer c.Unlock()
	for ; !c.over && len(c.errands) > 0; c.moved.Wait() {
		at := slices.IndexFunc(c.errands, func(e *errand) bool {
			return e.sort() == c.errands[0].sort() && !slices.ContainsFunc(c.busy, func(other *errand) bool { return !e.beside(other) })
		})
		if at >= 0 {
			e := c.errands[at]
			c.busy = append(c.busy, e)
			return e, r.nextBatch(c, e)
		}
	}
	return nil, errandBatch{}
}

// divide makes as many errands of one with more rows than a statement has as the run may have connections.
func (r *run) divide(c *userBatch, e *errand) {
	parts := r.engine.Connections
	if len(e.pointers) <= e.Rows() || parts < 2 {
		return
	}
	some := make([]*errand, parts)
	for i := range some {
		one, ladder := *e, *e.Ladder
		one.Ladder, one.part, one.pointers = &ladder, i+1, nil
		some[i] = &one
	}
	for _, p := range e.pointers {
		one := some[c.members[p.Owner].seat%parts]
		one.pointers = append(one.pointers, p)
	}
	at := slices.Index(c.errands, e)
	c.errands = slices.Replace(c.errands, at, at+1, some...)
}

// batchRound works off errands on as many sessions as there are now: one statement on the run's own alone, or as many as the turn has. What fails
// there as two of them have met is sent again on the run's own.
func (r *run) batchRound(ctx context.Context, c *userBatch) error {
	if slices.ContainsFunc(c.errands, func(e *errand) bool { return len(e.pointers) > e.Rows() }) {
		r.sessions.Connect(ctx)
	}
	sessions := r.sessions.Free()
	c.over, c.busy = false, nil
	r.sessions.Each(sessions, func(_ int, on *batch.Session) {
		defer func() {
			c.Lock()
			defer c.Unlock()
			c.over = true
			c.moved.Broadcast()
		}()
		for e, b := r.next(c); e != nil; e, b = r.next(c) {
			_, err := on.RunWithin(ctx, r.within(b.limits), b.statement)
			r.absorb(ctx, c, e, b, on, sessions, err)
		}
	})
	r.sessions.Lost()
	c.catchUp()
	return c.failed
}

// catchUp learns from statements on other sessions. It looks around on the run's own, which has to be idle.
func (c *userBatch) catchUp() {
	for _, learn := range c.passed {
		learn()
	}
	c.passed = nil
}

// absorb takes in how a statement has ended.
func (r *run) absorb(ctx context.Context, c *userBatch, e *errand, b errandBatch, on *batch.Session, sessions int, err error) {
	c.Lock()
	defer c.Unlock()
	defer c.moved.Broadcast()
	if err == nil {
		err = b.done(ctx, on.Took())
	}
	f := batch.Judge(err)
	if f.Lock() {
		r.Pace.Locked()
	}
	switch {
	case err == nil:
	case sessions > 1 && (on != r.Session && on.Conn.IsClosed() || r.sessions.Met(f)):
		c.over = true
	case f.Verdict == batch.Fatal || !e.read:
		c.over, c.failed = true, err
	case !r.Pace.Ended() && !e.Again(f, err, b.rows, r.Session.Limits):
		c.apart[e.step] = true // The members' own turns meet it again, and know whom to blame.
	}
	ends := e.step.toldOf() && c.apart[e.step] // Later steps might take rows along that are not told of yet.
	c.busy = slices.DeleteFunc(c.busy, func(one *errand) bool { return one == e })
	c.errands = slices.DeleteFunc(c.errands, func(e *errand) bool {
		return (e.read && len(e.pointers) == 0 || c.apart[e.step] || ends) && !slices.Contains(c.busy, e)
	})
	if on == r.Session {
		c.catchUp()
		c.over = c.over || sessions == 1 || r.paused(ctx) || r.sessions.Free() < sessions
	}
}

// errandBatch is a statement of an errand. Done takes in what a successful one has returned.
type errandBatch struct {
	statement batch.Statement
	limits    batch.Limits
	rows      int
	done      func(ctx context.Context, took time.Duration) error
}

// nextBatch is the next statement of an errand.
func (r *run) nextBatch(c *userBatch, e *errand) errandBatch {
	if e.read {
		return r.batchPiece(c, e)
	}
	var found []pointer
	sql, args := e.step.windowStatement(e.leaf, c.users(), batchRows)
	return errandBatch{
		statement: batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&found, pgx.RowToStructByPos[pointer])}, limits: r.ShortWaits(),
		done: func(context.Context, time.Duration) error {
			rows := map[int64]int{}
			for _, p := range found {
				if rows[p.Owner]++; rows[p.Owner] >= batchRows {
					c.more[p.Owner] = true
				}
			}
			e.read, e.pointers = true, found
			r.divide(c, e)
			return nil
		},
	}
}

// batchPiece works off the next rows that pointers lead to.
func (r *run) batchPiece(c *userBatch, e *errand) errandBatch {
	s, n := e.step, min(e.Rows(), len(e.pointers))
	owners := map[int64]*job{}
	for _, p := range e.pointers[:n] {
		owners[p.Owner] = c.members[p.Owner]
	}
	var changes []change
	sql, args := s.pieceStatement(r.Session.Names, e.leaf, slices.Collect(maps.Values(owners)), s.Action, r.ghost, e.pointers[:n])
	return errandBatch{
		statement: changing(&changes, sql, args), limits: e.Limits(r.Session.Limits), rows: n,
		done: func(ctx context.Context, took time.Duration) error {
			rows, kept := r.count(s, s.Action, changes)
			if kept > 0 {
				return keeps(s)
			}
			e.pointers = e.pointers[n:]
			if s.toldOf() && rows < int64(n) {
				c.apart[s] = true // Other sessions have changed the rest: they are somewhere else now.
			}
			c.passed = append(c.passed, func() { r.Passed(ctx, e.Ladder, int64(n), took) })
			return nil
		},
	}
}
