package listen_test

import (
	"fmt"
)

// writer writes a row, tests the lock, may PREPARE TRANSACTION, commits, and then
// releases its locks. It may roll back.
func (e *explorer) writer(i int) {
	who := [writers]string{"writer 1", "writer 2"}[i]
	me := e.now.Writers[i]
	write := func() {
		e.can(who, "deletes a row", false, func(w *world) { w.Writers[i].At, w.Writers[i].Row = wrote, uncommitted })
	}
	tests := "finds the awake lock taken"
	if e.now.Awake == none {
		tests = "finds the awake lock free and will notify"
	}
	test := func() {
		e.can(who, tests, false,
			func(w *world) { w.Writers[i].Tested, w.Writers[i].Notifies = true, w.Awake == none })
	}
	switch me.At {
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
		if me.At == wrote && !me.Notifies {
			e.can(who, "prepares its transaction", false, func(w *world) { w.Writers[i].At = prepared; w.flush() })
		}
		e.can(who, "commits", false, func(w *world) {
			w.Writers[i].At, w.Writers[i].Row = visible, pending
			w.flush()
			for n := range w.Workers {
				if me.Notifies && w.Workers[n].Listener != disconnected {
					w.Workers[n].Called = true
				}
			}
		})
		e.can(who, "rolls back", false, func(w *world) { w.Writers[i].At, w.Writers[i].Row = ended, unwritten })
	case visible:
		e.can(who, "releases its locks", false, func(w *world) { w.Writers[i].At = ended })
	case ended:
	}
}

// listener connects, runs LISTEN and then wakes the subscription.
func (e *explorer) listener(i int) {
	who := [workers]string{"listener 1", "listener 2"}[i]
	me := e.now.Workers[i]
	switch {
	case me.Dead:
	case me.Listener == disconnected:
		e.can(who, "listens", true, func(w *world) { w.Workers[i].Listener = listening })
	case me.Listener == listening:
		e.can(who, "hears itself and wakes its subscription", true, func(w *world) {
			w.Workers[i].Listener = hearing
			w.Workers[i].Called = w.Workers[i].Called || e.guards.LookAfterListen
		})
	}
}

// subscription queries, takes the awake lock and works. If nothing is due it releases the
// lock, raises the barrier, queries after it and sleeps.
func (e *explorer) subscription(i int) {
	me := e.now.Workers[i]
	if me.Dead {
		return
	}
	who := [workers]string{"subscription 1", "subscription 2"}[i]
	do := func(what string, change func(w *world, me *worker)) {
		e.can(who, what, true, func(w *world) { change(w, &w.Workers[i]) })
	}
	at := func(what string, next subscriptionAt) {
		do(what, func(_ *world, me *worker) { me.Subscription = next })
	}
	due := e.now.due() != 0
	switch me.Subscription {
	case asleep:
		if me.Called {
			do("is woken", func(_ *world, me *worker) { me.Subscription, me.Called = looks, !e.guards.TokenBeforeLook })
		}
	case looks:
		if !due {
			at("sees no row", drops)
			break
		}
		if e.now.Awake != none && e.now.Awake != int8(i) {
			at("sees a row, cannot get the awake lock, asks for the work and sleeps", asleep)
			at("sees a row, cannot get the awake lock, asks for the work, and its process gets the job", acquires)
			break
		}
		do("sees a row and takes the awake lock", func(w *world, me *worker) {
			me.Subscription, w.Awake = acquires, int8(i)
		})
	case drops:
		do("drops the awake lock", func(w *world, me *worker) {
			if me.Subscription = atBarrier; w.Awake == int8(i) {
				w.Awake = none
			}
		})
	case atBarrier:
		do("raises the barrier", func(_ *world, me *worker) { me.Subscription, me.Writers = waits, e.barrier() })
	case waits:
		switch {
		case e.still(me.Writers) == 0:
			do("is through the barrier and drops the wake-ups so far", func(_ *world, me *worker) {
				me.Subscription, me.Writers, me.Called = looksAgain, 0, me.Called && !e.guards.TokenBeforeLook
			})
		case due:
			do("sees a row while it waits at the barrier",
				func(_ *world, me *worker) { me.Subscription, me.Writers = looks, 0 })
		}
	case looksAgain:
		switch {
		case due:
			at("sees a row behind the barrier", looks)
		case e.guards.TokenBeforeLook:
			at("sees no row and sleeps", asleep)
		default:
			at("sees no row", forgetsLate)
		}
	case forgetsLate:
		do("drops the wake-ups so far and sleeps", func(_ *world, me *worker) {
			me.Subscription, me.Called = asleep,
				false
		})
	default:
		e.pass(i, do)
	}
}

// pass acquires the lease, raises the fence and runs one batch. The fence is a row that a
// batch locks in shared mode until it has committed.
func (e *explorer) pass(i int, do func(what string, change func(w *world, me *worker))) {
	me := e.now.Workers[i]
	switch me.Subscription { //nolint:exhaustive // The other steps are the subscription's.
	case acquires:
		do("acquires the lease, or looks again later", func(w *world, me *worker) {
			me.Subscription = looks
			if w.Lease == none {
				w.Token++
				w.Lease, me.Token, me.Subscription, me.Younger = int8(i), w.Token, raises, false
			}
		})
	case raises:
		for n, other := range e.now.Workers {
			if e.guards.Fence && n != i && !other.Dead && other.Subscription == commits {
				return
			}
		}
		do("raises the fence", func(w *world, me *worker) { w.Fence, me.Subscription = max(w.Fence, me.Token), begins })
	case begins:
		if e.guards.Confirm && me.Younger && (e.now.Lease != int8(i) || e.now.Token != me.Token) {
			do("finds that its lease was taken back", func(_ *world, me *worker) {
				me.Subscription, me.Token = looks,
					0
			})
			return
		}
		if e.guards.Fence && e.now.Fence != me.Token {
			do("is stopped at the fence", func(_ *world, me *worker) { me.Subscription, me.Token = looks, 0 })
			return
		}
		do("begins a batch", func(w *world, me *worker) { me.Subscription, me.Rows = commits, w.due() })
	case commits:
		if me.Token < e.now.Fence {
			e.wrong = fmt.Sprintf("subscription %d commits a batch under token %d, and the fence is at %d", i+1,
				me.Token, e.now.Fence)
		}
		other := e.now.Workers[1-i]
		if e.now.Lease == int8(1-i) && other.Token == me.Token &&
			(other.Subscription == begins || other.Subscription == commits) {
			e.wrong = fmt.Sprintf("subscription %d commits a batch under token %d, which was given again to the other subscription", i+1, me.Token)
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
			me.Subscription, me.Rows, me.Token = looks, 0, 0
		})
	}
}

// due returns the rows that a query sees.
func (w *world) due() (rows uint8) {
	for i, each := range w.Writers {
		if each.Row.waits() {
			rows |= 1 << i
		}
	}
	return rows
}

// barrier returns the writers that hold a lock on the table.
func (e *explorer) barrier() uint8 {
	if !e.guards.Barrier {
		return 0
	}
	return e.still(1<<writers - 1)
}

// still returns the writers that the barrier still waits for. PREPARE TRANSACTION passes
// the locks on to a transaction that the barrier does not know, so it counts every
// prepared transaction.
func (e *explorer) still(of uint8) (left uint8) {
	for i, each := range e.now.Writers {
		switch each.At {
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

// kill ends a process, or one of its connections. The server releases the locks of a lost
// connection and rolls back its batch. The lease is kept until it expires. A process may
// start again.
func (e *explorer) kill(i int) {
	who := [workers]string{"worker 1", "worker 2"}[i]
	me := e.now.Workers[i]
	if me.Dead {
		e.can(who, "is started again", false, func(w *world) { w.Workers[i] = worker{} })
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
	e.can(who, "is killed", false, func(w *world) {
		unlock(w)
		w.Workers[i], w.Killed = worker{Dead: true}, true
	})
	if me.Listener != disconnected {
		e.can(who, "loses the connection of its listener", false,
			func(w *world) { w.Workers[i].Listener, w.Kills = disconnected, w.Kills-1 })
	}
	if me.Subscription != asleep {
		e.can(who, "loses the connection of its subscription", false, func(w *world) {
			unlock(w)
			w.Workers[i].Subscription, w.Workers[i].Rows, w.Workers[i].Writers, w.Workers[i].Token = looks, 0, 0, 0
		})
	}
}

// server flushes the WAL, or crashes. A crash ends all connections, and all open
// transactions except prepared ones. A subscription continues on a connection that is
// younger than its lease. A batch does not.
func (e *explorer) server() {
	if e.now.Crashes == 0 {
		return
	}
	e.can("the disk", "catches up", false, func(w *world) { w.flush() })
	e.can("the server", "crashes", false, func(w *world) {
		w.Awake, w.Lease, w.Token, w.Fence, w.Crashes = none, w.Flushed.Lease, w.Flushed.Token, w.Flushed.Fence,
			w.Crashes-1
		for i, each := range w.Writers {
			switch {
			case each.At == wrote:
				w.Writers[i] = writer{At: ended}
			case each.Row == cleaned && w.Flushed.Cleaned&(1<<i) == 0:
				w.Writers[i] = writer{At: ended, Row: pending}
			case each.At == visible:
				w.Writers[i].At = ended
			}
		}
		for i, each := range w.Workers {
			if each.Dead {
				continue
			}
			next := worker{Subscription: looks}
			if each.Subscription == raises || each.Subscription == begins {
				next = worker{Subscription: each.Subscription, Token: each.Token, Younger: true}
			}
			w.Workers[i] = next
		}
	})
}

// floor is the fallback: it wakes every subscription when no worker has another step. A
// row may have to wait for it only if its writer tested the lock, or a query saw the row,
// while a worker held the awake lock that was then killed. It waits only once.
func (e *explorer) floor() {
	rows := e.now.due()
	if rows == 0 || e.wrong != "" {
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
		case each.Row == slept:
			e.wrong = fmt.Sprintf("the row of writer %d sleeps for longer than the floor", i+1)
		case each.Row == pending && !e.now.Killed:
			e.wrong = fmt.Sprintf("every worker sleeps, no process was killed, and the row of writer %d waits", i+1)
		}
	}
	e.can("the floor", "wakes every subscription", false, func(w *world) {
		for i := range w.Workers {
			w.Workers[i].Called = !w.Workers[i].Dead
		}
		for i := range w.Writers {
			if w.Writers[i].Row == pending {
				w.Writers[i].Row = slept
			}
		}
	})
}
