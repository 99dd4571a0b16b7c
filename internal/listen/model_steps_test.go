package listen_test

import (
	"fmt"
)

// writer adds the possible steps of a writer. A writer writes a row, tests the awake
// lock, may PREPARE TRANSACTION, commits, and then releases its locks. It may also roll
// back.
func (e *explorer) writer(i int) {
	who := [writers]string{"writer 1", "writer 2"}[i]
	me := e.now.Writers[i]
	write := func() {
		e.addStep(who, "deletes a row", false, func(w *world) { w.Writers[i].Step, w.Writers[i].Row = wrote, uncommitted })
	}
	tests := "finds the awake lock taken"
	if e.now.Awake == none {
		tests = "finds the awake lock free and will notify"
	}
	test := func() {
		e.addStep(who, tests, false,
			func(w *world) { w.Writers[i].Tested, w.Writers[i].Notifies = true, w.Awake == none })
	}
	switch me.Step {
	case begun:
		if e.guards.WriteBeforeTest || me.Tested {
			write()
		} else {
			test()
		}
	case wrote, prepared:
		if !me.Tested {
			test()
			break
		}
		if me.Step == wrote && !me.Notifies {
			e.addStep(who, "prepares its transaction", false, func(w *world) { w.Writers[i].Step = prepared; w.flush() })
		}
		e.addStep(who, "commits", false, func(w *world) {
			w.Writers[i].Step, w.Writers[i].Row = visible, pending
			w.flush()
			for n := range w.Workers {
				if me.Notifies && w.Workers[n].Listener != disconnected {
					w.Workers[n].HasToken = true
				}
			}
		})
		e.addStep(who, "rolls back", false, func(w *world) { w.Writers[i].Step, w.Writers[i].Row = ended, unwritten })
	case visible:
		e.addStep(who, "releases its locks", false, func(w *world) { w.Writers[i].Step = ended })
	case ended:
	}
}

// listener adds the next step of a listener: to connect and run LISTEN, and then to wake
// its subscription.
func (e *explorer) listener(i int) {
	who := [workers]string{"listener 1", "listener 2"}[i]
	me := e.now.Workers[i]
	switch {
	case me.Dead:
	case me.Listener == disconnected:
		e.addStep(who, "listens", true, func(w *world) { w.Workers[i].Listener = listening })
	case me.Listener == listening:
		e.addStep(who, "receives its self-check and wakes its subscription", true, func(w *world) {
			w.Workers[i].Listener = receiving
			w.Workers[i].HasToken = w.Workers[i].HasToken || e.guards.QueryAfterListen
		})
	}
}

// subscription adds the possible steps of a subscription. It queries, takes the awake
// lock and works. If nothing is due, it releases the lock, raises the barrier, queries
// after the barrier and sleeps.
func (e *explorer) subscription(i int) {
	me := e.now.Workers[i]
	if me.Dead {
		return
	}
	who := [workers]string{"subscription 1", "subscription 2"}[i]
	do := func(what string, change func(w *world, me *worker)) {
		e.addStep(who, what, true, func(w *world) { change(w, &w.Workers[i]) })
	}
	moveTo := func(what string, next subscriptionStep) {
		do(what, func(_ *world, me *worker) { me.Subscription = next })
	}
	due := e.now.due() != 0
	switch me.Subscription {
	case asleep:
		if me.HasToken {
			do("is woken", func(_ *world, me *worker) { me.Subscription, me.HasToken = queries, !e.guards.TokenBeforeQuery })
		}
	case queries:
		if !due {
			moveTo("sees no row", releasesLock)
			break
		}
		if e.now.Awake != none && e.now.Awake != int8(i) {
			moveTo("sees a row, cannot get the awake lock, requests the work and sleeps", asleep)
			moveTo("sees a row, cannot get the awake lock, requests the work, and its process gets the job", acquiresLease)
			break
		}
		do("sees a row and takes the awake lock", func(w *world, me *worker) {
			me.Subscription, w.Awake = acquiresLease, int8(i)
		})
	case releasesLock:
		do("releases the awake lock", func(w *world, me *worker) {
			if me.Subscription = raisesBarrier; w.Awake == int8(i) {
				w.Awake = none
			}
		})
	case raisesBarrier:
		do("raises the barrier", func(_ *world, me *worker) { me.Subscription, me.Writers = waitsAtBarrier, e.barrier() })
	case waitsAtBarrier:
		switch {
		case e.remaining(me.Writers) == 0:
			do("has waited at the barrier and drops its token", func(_ *world, me *worker) {
				me.Subscription, me.Writers, me.HasToken = queriesAgain, 0, me.HasToken && !e.guards.TokenBeforeQuery
			})
		case due:
			do("sees a row while it waits at the barrier",
				func(_ *world, me *worker) { me.Subscription, me.Writers = queries, 0 })
		}
	case queriesAgain:
		switch {
		case due:
			moveTo("sees a row after the barrier", queries)
		case e.guards.TokenBeforeQuery:
			moveTo("sees no row and sleeps", asleep)
		default:
			moveTo("sees no row", dropsTokenLate)
		}
	case dropsTokenLate:
		do("drops its token and sleeps", func(_ *world, me *worker) {
			me.Subscription, me.HasToken = asleep,
				false
		})
	default:
		e.pass(i, do)
	}
}

// pass adds the possible steps of a pass. A pass acquires the lease, raises the fence and
// runs one batch. The fence is a row that a batch locks in shared mode until it has
// committed.
func (e *explorer) pass(i int, do func(what string, change func(w *world, me *worker))) {
	me := e.now.Workers[i]
	switch me.Subscription { //nolint:exhaustive // The other steps are the subscription's.
	case acquiresLease:
		do("acquires the lease, or queries again later", func(w *world, me *worker) {
			me.Subscription = queries
			if w.Lease == none {
				w.Token++
				w.Lease, me.Token, me.Subscription, me.Younger = int8(i), w.Token, raisesFence, false
			}
		})
	case raisesFence:
		for n, other := range e.now.Workers {
			if e.guards.Fence && n != i && !other.Dead && other.Subscription == commitsBatch {
				return
			}
		}
		do("raises the fence", func(w *world, me *worker) { w.Fence, me.Subscription = max(w.Fence, me.Token), beginsBatch })
	case beginsBatch:
		if e.guards.Confirm && me.Younger && (e.now.Lease != int8(i) || e.now.Token != me.Token) {
			do("finds that a crash reverted its lease", func(_ *world, me *worker) {
				me.Subscription, me.Token = queries,
					0
			})
			return
		}
		if e.guards.Fence && e.now.Fence != me.Token {
			do("is stopped by the fence", func(_ *world, me *worker) { me.Subscription, me.Token = queries, 0 })
			return
		}
		do("begins a batch", func(w *world, me *worker) { me.Subscription, me.Rows = commitsBatch, w.due() })
	case commitsBatch:
		if me.Token < e.now.Fence {
			e.violation = fmt.Sprintf("subscription %d commits a batch under token %d, and the fence is at %d", i+1,
				me.Token, e.now.Fence)
		}
		other := e.now.Workers[1-i]
		if e.now.Lease == int8(1-i) && other.Token == me.Token &&
			(other.Subscription == beginsBatch || other.Subscription == commitsBatch) {
			e.violation = fmt.Sprintf("subscription %d commits a batch under token %d, which was granted again to the other subscription", i+1, me.Token)
		}
		do("commits its batch and releases the lease", func(w *world, me *worker) {
			for n := range w.Writers {
				if me.Rows&(1<<n) != 0 {
					w.Writers[n].Row = cleaned
				}
			}
			if w.Lease == int8(i) && w.Token == me.Token {
				w.Lease = none
			}
			me.Subscription, me.Rows, me.Token = queries, 0, 0
		})
	}
}

// due returns the pending rows, which a query sees.
func (w *world) due() (rows uint8) {
	for i, each := range w.Writers {
		if each.Row.isDue() {
			rows |= 1 << i
		}
	}
	return rows
}

// barrier returns the writers that hold a lock on the table when the barrier is raised.
func (e *explorer) barrier() uint8 {
	if !e.guards.Barrier {
		return 0
	}
	return e.remaining(1<<writers - 1)
}

// remaining returns the writers for which the barrier still waits. PREPARE TRANSACTION
// passes a writer's locks on to a transaction that the barrier does not list, so the
// barrier waits for every prepared transaction.
func (e *explorer) remaining(of uint8) (left uint8) {
	for i, each := range e.now.Writers {
		switch each.Step {
		case wrote, visible:
			left |= of & (1 << i)
		case prepared:
			if e.guards.CountPrepared && e.guards.Barrier {
				left |= 1 << i
			}
		case begun, ended:
		}
	}
	return left
}

// kill adds the steps that end a worker's process or one of its connections. The server
// releases the locks of a lost connection and rolls back its batch. The lease is kept
// until it expires. A killed process may start again.
func (e *explorer) kill(i int) {
	who := [workers]string{"worker 1", "worker 2"}[i]
	me := e.now.Workers[i]
	if me.Dead {
		e.addStep(who, "is started again", false, func(w *world) { w.Workers[i] = worker{} })
		return
	}
	if e.now.Kills == 0 {
		return
	}
	unlock := func(w *world) {
		if w.Awake == int8(i) {
			w.Awake = none
		}
		w.Kills--
	}
	e.addStep(who, "is killed", false, func(w *world) {
		unlock(w)
		w.Workers[i], w.Killed = worker{Dead: true}, true
	})
	if me.Listener != disconnected {
		e.addStep(who, "loses the connection of its listener", false,
			func(w *world) { w.Workers[i].Listener, w.Kills = disconnected, w.Kills-1 })
	}
	if me.Subscription != asleep {
		e.addStep(who, "loses the connection of its subscription", false, func(w *world) {
			unlock(w)
			w.Workers[i].Subscription, w.Workers[i].Rows, w.Workers[i].Writers, w.Workers[i].Token = queries, 0, 0, 0
		})
	}
}

// server adds the steps of the server: it flushes the WAL, or crashes. A crash ends all
// connections, and all open transactions except prepared ones. A subscription continues
// on a connection that is younger than its lease. Its batch is lost.
func (e *explorer) server() {
	if e.now.Crashes == 0 {
		return
	}
	e.addStep("the server", "flushes the WAL", false, func(w *world) { w.flush() })
	e.addStep("the server", "crashes", false, func(w *world) {
		w.Awake, w.Lease, w.Token, w.Fence, w.Crashes = none, w.Flushed.Lease, w.Flushed.Token, w.Flushed.Fence,
			w.Crashes-1
		for i, each := range w.Writers {
			switch {
			case each.Step == wrote:
				w.Writers[i] = writer{Step: ended}
			case each.Row == cleaned && w.Flushed.Cleaned&(1<<i) == 0:
				w.Writers[i] = writer{Step: ended, Row: pending}
			case each.Step == visible:
				w.Writers[i].Step = ended
			}
		}
		for i, each := range w.Workers {
			if each.Dead {
				continue
			}
			next := worker{Subscription: queries}
			if each.Subscription == raisesFence || each.Subscription == beginsBatch {
				next = worker{Subscription: each.Subscription, Token: each.Token, Younger: true}
			}
			w.Workers[i] = next
		}
	})
}

// fallback adds the step that wakes every subscription when no worker has another step. A
// row may need the fallback only if its writer tested the awake lock, or a query saw the
// row, while a worker held the lock and that worker was then killed. A row may need the
// fallback only once.
func (e *explorer) fallback() {
	rows := e.now.due()
	if rows == 0 || e.violation != "" {
		return
	}
	for _, each := range e.steps {
		if each.byWorker {
			return
		}
	}
	alive := false
	for _, each := range e.now.Workers {
		alive = alive || !each.Dead
	}
	if !alive {
		return
	}
	for i, each := range e.now.Writers {
		switch {
		case each.Row == pendingAfterFallback:
			e.violation = fmt.Sprintf("the row of writer %d is still pending after the fallback", i+1)
		case each.Row == pending && !e.now.Killed:
			e.violation = fmt.Sprintf("every worker sleeps, no process was killed, and the row of writer %d is pending", i+1)
		}
	}
	e.addStep("the fallback", "wakes every subscription", false, func(w *world) {
		for i := range w.Workers {
			w.Workers[i].HasToken = !w.Workers[i].Dead
		}
		for i := range w.Writers {
			if w.Writers[i].Row == pending {
				w.Writers[i].Row = pendingAfterFallback
			}
		}
	})
}
