package ghostuser

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/pace"
	"sexton/internal/problem"
)

// Limits end a run. Zero values stand for 1000 users, 60 s and 30 min.
type Limits struct {
	// Users is the number of users that a run takes.
	Users int
	// Runtime is asked between batches. A run also ends a second before its lease does.
	Runtime time.Duration
	// RetryAfter is how long a user is put off after an error.
	RetryAfter time.Duration
}

const (
	// reserve is the part of its lease that a run leaves: for the statement that is running, and to settle.
	reserve = time.Second
	// loadEvery is how often a busy run looks for users that have come in since. They have their first turn at once.
	loadEvery = 100 * time.Millisecond
	// fewUsers who come in while a batch is at work have turns of their own at once.
	fewUsers = 5
)

// Engine deletes the due users of one database.
type Engine struct {
	Session *batch.Session
	Plan    *Plan
	Limits  Limits
	Sizes   Sizes
	// Connections is how many sessions a run with a target may use at once, for users that are worked off together. More returns a further one
	// under the same lease for the length of the run, nil where there is none to spare.
	Connections int
	More        func(ctx context.Context) *batch.Session
	Throttle    pace.Throttle
	// Progress, if set, is shown the statistics after every batch and whenever what the run waits for changes. It must not
	// keep them.
	Progress func(ctx context.Context, stats *Stats)
	// Ended, if set, is told how each user's part in the run has ended.
	Ended func(ctx context.Context, item Item)
}

// Run works until no due user is left, a limit is reached or ctx ends; a batch that is running when ctx ends is
// finished first. Users take turns of some batches each, so that a big one holds no other up.
//
// A user with an error is put off, the others go on. One that the run's end came before keeps what has been done and
// goes to the back of the due ones. The statistics are valid beside an error, too. The error wraps lease.ErrLost where
// the lease has passed on; then nothing of the last batch remains.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	limits := Limits{
		Users: cmp.Or(max(e.Limits.Users, 0), 1000), Runtime: cmp.Or(max(e.Limits.Runtime, 0), time.Minute),
		RetryAfter: cmp.Or(max(e.Limits.RetryAfter, 0), 30*time.Minute),
	}
	r := &run{engine: e, limits: limits, stats: newStats(), seen: []int64{}, jobs: map[int64]*job{}}
	err := pace.Under(ctx, e.Session, r.limits.Runtime, reserve, func(ctx context.Context, frame *pace.Frame) error {
		r.frame, r.Run = frame, r.onDrain(frame)
		r.sessions = pace.Sessions{Own: e.Session, Most: e.Connections, More: e.More, Pace: r.Pace}
		return cmp.Or(r.work(ctx), r.sessions.Broken())
	})
	r.stats.Current, r.stats.Duty, r.stats.WaitingFor = nil, pace.Duty{}, ""
	return r.stats, err
}

// onDrain makes the transport of a run.
func (r *run) onDrain(frame *pace.Frame) *drain.Run {
	e := r.engine
	return &drain.Run{
		Session: e.Session, Rows: e.Sizes.Delete, Paused: r.paused,
		Steer: pace.Steer{Target: cmp.Or(e.Sizes.Target, heavyTarget), Smallest: 1, Largest: drain.LargestBatch},
		Pace: &pace.Run{
			Until: frame.Until, Stop: frame.Stop, Ended: frame.Ended, Target: e.Sizes.Target, Duty: e.Sizes.Duty, Waits: r.waitsFor,
			Throttle: e.Throttle, Tells: &r.stats.Duty,
		},
		Send: func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
			_, err := e.Session.RunWithin(ctx, r.within(limits), statements...)
			return err
		},
		Progress: func(ctx context.Context) {
			r.left--
			r.progress(ctx)
		},
	}
}

// job is one user of a run.
type job struct {
	id         int64
	userID     int64
	hardDelete bool
	// queued is when the user came into the queue, by this process's clock.
	queued time.Time
	// begun reports that something has been done for the user. alone reports that it is not worked off together with others (any
	// more), cleared that nothing was left of it when that ended.
	begun, alone, cleared bool
	// seat is its number in its batch.
	seat int
	// heavy are tables of which the user's rows go children first, as a single one has more below it than one statement can delete;
	// tree takes them down.
	heavy []string
	tree  *drain.Run
	// cut reports that its statements have cost a connection.
	cut bool
	// large reports that the rows of one of its steps did not fit into one statement.
	large bool
	// waits reports that its next turn waits for rows that others have locked: nothing else is left to do.
	waits    bool
	obstacle pace.Blocked
	// fault has ended its turn, if anything has.
	fault batch.Fault
	// beaten counts conflicts with other sessions, rounds how often rows were left where none should have been.
	beaten, rounds int
	// tides are the rows that have gone, by the step.
	tides map[*step]*drain.Tide
	// done are the rows of this run, estimated is when what remains was estimated last.
	done      Current
	estimated time.Time
}

// run is the state of one Run.
type run struct {
	*drain.Run

	engine *Engine
	limits Limits
	stats  *Stats
	frame  *pace.Frame
	// ghost is the ghost user; 0 until the first due user needs it.
	ghost int64
	// seen are the queue's rows that the run has loaded. Each is loaded once, so a user who is put off has to wait for
	// another run, however short the time.
	seen []int64
	// jobs are these users by their ids.
	jobs map[int64]*job
	// active are the users who take turns, waiting those who can only wait for rows that others have locked. They come
	// when no other user has anything to do.
	active, waiting []*job
	loaded          time.Time
	// left is how many batches the current turn still has.
	left int
	// obstacles are what users wait for who have waited in vain.
	obstacles pace.Obstacles
	// below are tables by OID, with what hangs below them; nil until a user needs it.
	below map[uint32]*drain.Table
	// userBatch are the users who are worked off together at the moment; nil where there are none.
	userBatch *userBatch
	sessions  pace.Sessions
}

func (r *run) work(ctx context.Context) error {
	for !r.Pace.Ended() {
		if err := r.load(ctx); err != nil {
			return err
		}
		if err := r.together(ctx); err != nil {
			return err
		}
		if len(r.active) == 0 {
			if len(r.waiting) == 0 {
				break
			}
			at := slices.IndexFunc(r.waiting, func(j *job) bool { return !j.obstacle.Waits() })
			if at < 0 {
				if err := r.Pace.Idle(ctx, &r.obstacles, r.Session.Over); err != nil {
					return err
				}
				continue
			}
			r.waitsFor(ctx, "", "") // Others may wait still, but the run does not.
			r.active = []*job{r.waiting[at]}
			r.waiting = slices.Delete(r.waiting, at, at+1)
		}
		at := slices.IndexFunc(r.active, func(j *job) bool { return j.alone })
		if at < 0 {
			continue // All of them are together.
		}
		j := r.active[at]
		r.active = slices.Delete(r.active, at, at+1)
		if err := r.serve(ctx, j); err != nil {
			return err
		}
	}
	return r.close(ctx)
}

// load adds users who are due. New ones come first: they may be small.
func (r *run) load(ctx context.Context) error {
	room := r.limits.Users - len(r.seen)
	if room <= 0 || len(r.active) > 0 && time.Since(r.loaded) < loadEvery {
		return nil
	}
	fresh, err := r.due(ctx, room)
	if err != nil {
		return err
	}
	r.loaded = time.Now()
	for _, j := range fresh {
		r.seen, r.jobs[j.userID] = append(r.seen, j.id), j
		// Without a target everybody has the original's sizes for oneself, and those who come while many are worked off
		// together are not to wait for them all.
		j.alone = len(j.heavy) > 0 || r.engine.Sizes.Target == 0 || r.userBatch != nil && len(fresh) <= fewUsers
	}
	r.active = append(fresh, r.active...)
	return nil
}

func (r *run) due(ctx context.Context, limit int) ([]*job, error) {
	var fresh []*job
	_, err := r.Session.Run(ctx, batch.Statement{
		SQL: r.statement("load"), Args: []any{r.seen, limit},
		Scan: func(rows pgx.Rows) (err error) {
			fresh, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*job, error) {
				j := &job{tides: map[*step]*drain.Tide{}}
				var age float64
				err := row.Scan(&j.id, &j.userID, &j.hardDelete, &j.heavy, &age)
				j.done.UserID, j.queued = j.userID, time.Now().Add(-time.Duration(age*float64(time.Second)))
				return j, err
			})
			return err
		},
	})
	return fresh, problem.Doing(err, "load users to be deleted")
}

// serve gives a user one turn.
func (r *run) serve(ctx context.Context, j *job) error {
	j.begun, r.Waits = true, j.waits
	r.stats.Current = &j.done
	before := r.stats.Batches
	result, err := r.turn(ctx, j)
	r.Waits = false
	switch {
	case err == nil:
	case batch.Judge(err).Verdict != batch.Fatal || !r.sessions.Survives(ctx):
		return fmt.Errorf("delete user %d: %w", j.userID, err)
	case j.cut:
		result, j.fault.Message = failed, batch.LostConnection+cmp.Or(j.fault.Message, err.Error())
	default:
		result, j.cut = blocked, true // It may have been cut by chance, and is tried once more behind the others.
	}
	switch result {
	case yielded:
		j.waits = false
		if r.stats.Batches > before {
			j.obstacle = pace.Blocked{}
		}
		r.active = append(r.active, j)
	case blocked:
		j.waits = true
		r.waiting = append(r.waiting, j)
	case failed:
		return r.recordFailure(ctx, j)
	case finished:
	}
	return nil
}

// recordFailure counts an attempt for a user, records the reason and puts the user off.
func (r *run) recordFailure(ctx context.Context, j *job) error {
	f := j.fault
	affected, err := r.Session.Run(ctx, batch.Statement{
		SQL: r.statement("blame"), Args: []any{j.id, f.Text(), r.limits.RetryAfter.Seconds()},
	})
	switch {
	case err == nil && affected[0] == 0:
		r.cancelled(ctx, j)
		return nil
	case err != nil && batch.Judge(err).Verdict == batch.Fatal:
		return fmt.Errorf("put off user %d: %w", j.userID, err)
	case err != nil:
		// Another session keeps its row in the queue locked, say. It stays due for the next run, and the others go on.
		f.Message += fmt.Sprintf("; put off user %d: %v", j.userID, err)
	}
	r.stats.UsersFailed++
	r.stats.fail(f)
	item := r.item(j, Failed)
	item.Table, item.SQLState, item.Message, item.Stack = f.Table, f.SQLState, f.Message, f.Stack
	r.tell(ctx, item)
	return nil
}

// cancelled notes that a user is in the queue no more.
func (r *run) cancelled(ctx context.Context, j *job) {
	r.stats.UsersDropped++
	r.tell(ctx, r.item(j, Cancelled))
}

// drop takes a user out of the queue who does not exist any more.
func (r *run) drop(ctx context.Context, j *job) (result, error) {
	_, err := r.Session.Run(ctx, batch.Statement{SQL: r.statement("drop"), Args: []any{j.id}})
	if err != nil {
		return r.beaten(j, batch.Judge(err), fmt.Errorf("take the user out of the queue: %w", err))
	}
	r.stats.UsersDropped++
	r.tell(ctx, r.item(j, Gone))
	return finished, nil
}

func (*run) item(j *job, outcome Outcome) Item {
	return Item{
		UserID: j.userID, HardDelete: j.hardDelete, Outcome: outcome,
		Moved: j.done.Moved, Deleted: j.done.Deleted, Nullified: j.done.Nullified,
	}
}

func (r *run) tell(ctx context.Context, item Item) {
	if r.engine.Ended != nil {
		r.engine.Ended(ctx, item)
	}
}

// close ends a run that may not be through.
func (r *run) close(ctx context.Context) error {
	var begun []int64
	unfinished := slices.Concat(r.active, r.waiting)
	for _, j := range unfinished {
		r.stats.Held = cmp.Or(r.stats.Held, j.obstacle.Reason)
		if j.begun {
			begun = append(begun, j.id)
			r.stats.UsersUnfinished++
			r.tell(ctx, r.item(j, Unfinished))
		}
	}
	left := len(unfinished) > 0
	if !left {
		more, err := r.due(ctx, 1)
		if err != nil {
			return err
		}
		left = len(more) > 0
	}
	r.stats.Interrupted = left && r.frame.Stop.Err() != nil
	r.stats.OverLimit = left && !r.stats.Interrupted
	if len(begun) == 0 {
		return nil
	}
	_, err := r.Session.Run(ctx, batch.Statement{SQL: r.statement("defer"), Args: []any{begun}})
	return problem.Doing(err, "put unfinished users back")
}
