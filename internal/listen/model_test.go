package listen_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// This file is the wake-up protocol as a model: writers, ears, lanes, the awake lock, the barrier, the lease and its
// fence, each reduced to the steps between which another process may act. TestProtocol visits every state that two
// writers, two workers and one kill can reach, in every order, and every state of one writer, two workers and one crash of the server. Read it
// from writer to worker to learn the protocol; then take one guard away, and the test prints the shortest way to a lost row.
//
// A crash of the server takes back what lanes have committed since the disk last caught up with the log: lease, token, fence, batches. What the
// application commits is durable, and all before it. So the token of a lease whose holder still runs may be given again.
//
// Time is reduced to one rule: the floor (the tick of cron, the look of a lane every 10 s) comes when no worker has
// anything else to do. A writer may stay open for ever.

// guards are the rules that the protocol cannot do without. The test takes each of them away in turn.
type guards struct {
	// WriteBeforeTest: a writer has its row, and with it the lock on the table, before it tests the awake lock.
	WriteBeforeTest bool
	// Barrier: a lane that has dropped the awake lock waits for the writers that hold a lock on the table then.
	Barrier bool
	// CountPrepared: the barrier waits for prepared transactions, whose locks have changed hands.
	CountPrepared bool
	// LookAfterListen: an ear wakes its lane once LISTEN is committed.
	LookAfterListen bool
	// TokenBeforeLook: a lane takes the token of a wake-up before it looks at rows, never after.
	TokenBeforeLook bool
	// Fence: a batch compares its token with the fence, and holds the fence until it has committed.
	Fence bool
	// Confirm: on a connection that is younger than its lease, a pass asks whether the lease is still its own.
	Confirm bool
}

var allGuards = guards{true, true, true, true, true, true, true}

const (
	writers = 2
	workers = 2
)

// none is the holder of a lock or a lease that is free.
const none = -1

// world is one state of everything. It is comparable, so that a state is visited once.
type world struct {
	Writers [writers]writer
	Workers [workers]worker
	// Awake is the worker that holds the awake lock, Lease the one that holds the lease, under Token.
	Awake, Lease int8
	Token, Fence int8
	// Flushed is what a crash of the server goes back to. Only until it has come is it kept.
	Flushed flushed
	// Kills, Crashes and Stalls are how many of each may still come. Killed: a process was killed.
	Kills, Crashes, Stalls int8
	Killed                 bool
}

// flushed is what lanes have committed, as the disk has it. Cleaned has one bit for each row.
type flushed struct {
	Lease, Token, Fence int8
	Cleaned             uint8
}

// writer is a transaction of the application that deletes one parent.
type writer struct {
	At writerAt
	// Notifies: it found the awake lock free, so its commit notifies.
	Notifies bool
	// Tested: it has looked at the awake lock.
	Tested bool
	Row    row
}

type writerAt int8

const (
	begun writerAt = iota
	wrote
	prepared
	visible // committed, its locks not yet released
	ended
)

type row int8

const (
	unwritten row = iota
	uncommitted
	pending
	slept // pending, and the floor has come by
	cleaned
)

func (r row) waits() bool { return r == pending || r == slept }

// worker is a process with one ear (the connection that listens) and one lane (the connection that looks and works).
type worker struct {
	Ear  earAt
	Lane laneAt
	// Called is the token of a wake-up: at most one waits for the lane.
	Called bool
	// Writers are those that the barrier waits for, Rows those that the batch has read: one bit for each.
	Writers, Rows uint8
	// Token is the lease's token under which the worker works, 0 without.
	Token int8
	// Younger: its connection came after a crash of the server.
	Younger bool
	Dead    bool
}

type earAt int8

const (
	disconnected earAt = iota
	listening          // LISTEN is committed
	hearing            // and the lane was woken
)

type laneAt int8

const (
	asleep     laneAt = iota
	looks             // is anything due? If so, it takes the awake lock, or does without
	acquires          // the lease
	raises            // the fence
	begins            // a batch
	commits           // it
	drops             // the awake lock
	atBarrier         // raises the barrier
	waits             // for the writers of the barrier
	looksAgain        // behind the barrier
	forgetsLate
)

// step is something that one process does and no other can interrupt.
type step struct {
	who, what string
	next      world
	// byWorker: a worker takes it by itself as soon as it can.
	byWorker bool
}

// explorer collects the steps out of one state.
type explorer struct {
	guards guards
	now    world
	steps  []step
	// wrong is the first rule that a step breaks.
	wrong string
}

func (e *explorer) can(who, what string, byWorker bool, change func(w *world)) {
	next := e.now
	change(&next)
	if next.normalize(); next != e.now {
		e.steps = append(e.steps, step{who, what, next, byWorker})
	}
}

// normalize makes states equal that differ in nothing that matters any more: how a writer ended, and the numbers of tokens
// while no worker has one. Only their order counts. A crash comes once.
func (w *world) normalize() {
	if w.Crashes == 0 {
		w.Flushed = flushed{Lease: none}
	}
	for i, each := range w.Writers {
		if each.At == ended && !each.Row.waits() && (w.Crashes == 0 || w.Flushed.Cleaned&(1<<i) != 0) {
			w.Writers[i] = writer{At: ended}
		}
	}
	for _, each := range w.Workers {
		if each.Token != 0 {
			return
		}
	}
	w.Token, w.Fence, w.Flushed.Token, w.Flushed.Fence = 0, 0, 0, 0
}

// flush has the disk catch up with the log, which any commit of the application does.
func (w *world) flush() {
	w.Flushed = flushed{w.Lease, w.Token, w.Fence, 0}
	for i, each := range w.Writers {
		if each.Row == cleaned || each.At == ended && each.Row == unwritten {
			w.Flushed.Cleaned |= 1 << i
		}
	}
}

func (e *explorer) explore(now world) {
	e.now, e.steps, e.wrong = now, e.steps[:0], ""
	for i := range now.Writers {
		e.writer(i)
	}
	for i := range now.Workers {
		e.ear(i)
		e.lane(i)
		e.kill(i)
	}
	e.server()
	e.can("the lease", "runs out", false, func(w *world) {
		if w.Lease != none && w.Stalls > 0 {
			w.Lease, w.Stalls = none, w.Stalls-1
		}
	})
	e.floor()
}

// writer: row, test, perhaps PREPARE TRANSACTION, commit, and only then the release of its locks. It may roll back.
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
				if me.Notifies && w.Workers[n].Ear != disconnected {
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

// ear: dial and LISTEN, then wake the lane.
func (e *explorer) ear(i int) {
	who := [workers]string{"ear 1", "ear 2"}[i]
	me := e.now.Workers[i]
	switch {
	case me.Dead:
	case me.Ear == disconnected:
		e.can(who, "listens", true, func(w *world) { w.Workers[i].Ear = listening })
	case me.Ear == listening:
		e.can(who, "hears itself and wakes its lane", true, func(w *world) {
			w.Workers[i].Ear = hearing
			w.Workers[i].Called = w.Workers[i].Called || e.guards.LookAfterListen
		})
	}
}

// lane: look, take the awake lock, work; where nothing is due drop the lock, raise the barrier, look behind it, sleep.
func (e *explorer) lane(i int) {
	me := e.now.Workers[i]
	if me.Dead {
		return
	}
	who := [workers]string{"lane 1", "lane 2"}[i]
	do := func(what string, change func(w *world, me *worker)) {
		e.can(who, what, true, func(w *world) { change(w, &w.Workers[i]) })
	}
	at := func(what string, next laneAt) { do(what, func(_ *world, me *worker) { me.Lane = next }) }
	due := e.now.due() != 0
	switch me.Lane {
	case asleep:
		if me.Called {
			woken := func(me *worker) { me.Lane, me.Called = looks, !e.guards.TokenBeforeLook }
			do("is woken", func(_ *world, me *worker) { woken(me) })
			do("is woken and takes the awake lock before it looks", func(w *world, me *worker) {
				if woken(me); w.Awake == none {
					w.Awake = int8(i)
				}
			})
		}
	case looks:
		if !due {
			at("sees no row", drops)
			break
		}
		do("sees a row and takes the awake lock if it is free", func(w *world, me *worker) {
			if me.Lane = acquires; w.Awake == none {
				w.Awake = int8(i)
			}
		})
	case drops:
		do("drops the awake lock", func(w *world, me *worker) {
			if me.Lane = atBarrier; w.Awake == int8(i) {
				w.Awake = none
			}
		})
	case atBarrier:
		do("raises the barrier", func(_ *world, me *worker) { me.Lane, me.Writers = waits, e.barrier() })
	case waits:
		switch {
		case e.still(me.Writers) == 0:
			do("is through the barrier and drops the wake-ups so far", func(_ *world, me *worker) {
				me.Lane, me.Writers, me.Called = looksAgain, 0, me.Called && !e.guards.TokenBeforeLook
			})
		case due:
			do("sees a row while it waits at the barrier", func(_ *world, me *worker) { me.Lane, me.Writers = looks, 0 })
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
		do("drops the wake-ups so far and sleeps", func(_ *world, me *worker) { me.Lane, me.Called = asleep, false })
	default:
		e.pass(i, do)
	}
}

// pass: lease, fence, one batch. The fence is a row that a batch locks in shared mode until it has committed.
func (e *explorer) pass(i int, do func(what string, change func(w *world, me *worker))) {
	me := e.now.Workers[i]
	switch me.Lane { //nolint:exhaustive // The other steps are the lane's.
	case acquires:
		do("acquires the lease, or looks again later", func(w *world, me *worker) {
			me.Lane = looks
			if w.Lease == none {
				w.Token++
				w.Lease, me.Token, me.Lane, me.Younger = int8(i), w.Token, raises, false
			}
		})
	case raises:
		for n, other := range e.now.Workers {
			if e.guards.Fence && n != i && !other.Dead && other.Lane == commits {
				return
			}
		}
		do("raises the fence", func(w *world, me *worker) { w.Fence, me.Lane = max(w.Fence, me.Token), begins })
	case begins:
		if e.guards.Confirm && me.Younger && (e.now.Lease != int8(i) || e.now.Token != me.Token) {
			do("finds that its lease was taken back", func(_ *world, me *worker) { me.Lane, me.Token = looks, 0 })
			return
		}
		if e.guards.Fence && e.now.Fence != me.Token {
			do("is stopped at the fence", func(_ *world, me *worker) { me.Lane, me.Token = looks, 0 })
			return
		}
		do("begins a batch", func(w *world, me *worker) { me.Lane, me.Rows = commits, w.due() })
	case commits:
		if me.Token < e.now.Fence {
			e.wrong = fmt.Sprintf("lane %d commits a batch under token %d, and the fence is at %d", i+1, me.Token, e.now.Fence)
		}
		other := e.now.Workers[1-i]
		if e.now.Lease == int8(1-i) && other.Token == me.Token && (other.Lane == begins || other.Lane == commits) {
			e.wrong = fmt.Sprintf("lane %d commits a batch under token %d, which was given again to the other lane", i+1, me.Token)
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
			me.Lane, me.Rows, me.Token = looks, 0, 0
		})
	}
}

// due are the rows that a look sees.
func (w *world) due() (rows uint8) {
	for i, each := range w.Writers {
		if each.Row.waits() {
			rows |= 1 << i
		}
	}
	return rows
}

// barrier are the writers that hold a lock on the table now.
func (e *explorer) barrier() uint8 {
	if !e.guards.Barrier {
		return 0
	}
	return e.still(1<<writers - 1)
}

// still are those of the writers that the barrier has not yet seen end. PREPARE TRANSACTION hands the locks over to a
// transaction that the barrier did not see, so it counts every prepared one.
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

// kill ends a process, or one of its connections. The server drops the locks of a connection that is gone and rolls its
// batch back; the lease stays until it runs out. A process may start again.
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
	if me.Ear != disconnected {
		e.can(who, "loses the connection of its ear", false, func(w *world) { w.Workers[i].Ear, w.Kills = disconnected, w.Kills-1 })
	}
	if me.Lane != asleep {
		e.can(who, "loses the connection of its lane", false, func(w *world) {
			unlock(w)
			w.Workers[i].Lane, w.Workers[i].Rows, w.Workers[i].Writers, w.Workers[i].Token = looks, 0, 0, 0
		})
	}
}

// server: the disk catches up, or the server crashes. All connections end with a crash, and all open transactions except the prepared ones; a lane
// goes on with a connection that is younger than its lease, a batch does not.
func (e *explorer) server() {
	if e.now.Crashes == 0 {
		return
	}
	e.can("the disk", "catches up", false, func(w *world) { w.flush() })
	e.can("the server", "crashes", false, func(w *world) {
		w.Awake, w.Lease, w.Token, w.Fence, w.Crashes = none, w.Flushed.Lease, w.Flushed.Token, w.Flushed.Fence, w.Crashes-1
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
			next := worker{Lane: looks}
			if each.Lane == raises || each.Lane == begins {
				next = worker{Lane: each.Lane, Token: each.Token, Younger: true}
			}
			w.Workers[i] = next
		}
	})
}

// floor wakes every lane, once no worker has a step of its own left. A row that has to wait for it was tested by its
// writer while a worker held the awake lock that was killed then: no other way leads there. It waits once.
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
	e.can("the floor", "wakes every lane", false, func(w *world) {
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

// swapped is the same state with other numbers for its writers or its workers.
func (w world) swapped(writers, workers bool) world {
	if writers {
		w.Writers[0], w.Writers[1] = w.Writers[1], w.Writers[0]
		for i, each := range w.Workers {
			w.Workers[i].Writers, w.Workers[i].Rows = each.Writers&1<<1|each.Writers>>1, each.Rows&1<<1|each.Rows>>1
		}
		w.Flushed.Cleaned = w.Flushed.Cleaned&1<<1 | w.Flushed.Cleaned>>1
	}
	if workers {
		w.Workers[0], w.Workers[1] = w.Workers[1], w.Workers[0]
		for _, holder := range []*int8{&w.Awake, &w.Lease, &w.Flushed.Lease} {
			if *holder != none {
				*holder = 1 - *holder
			}
		}
	}
	return w
}

// visited are states, whatever the numbers of their writers and workers.
type visited map[world]bool

// add reports whether the state is new.
func (v visited) add(w world) bool {
	for n := range 4 {
		if v[w.swapped(n&1 != 0, n&2 != 0)] {
			return false
		}
	}
	v[w] = true
	return true
}

var (
	killing  = world{Awake: none, Lease: none, Kills: 1, Stalls: 1, Flushed: flushed{Lease: none}}
	crashing = world{Awake: none, Lease: none, Crashes: 1, Stalls: 1, Flushed: flushed{Lease: none}, Writers: [writers]writer{1: {At: ended}}}
)

// exploreAll visits all states breadth first, until a rule is broken: by the shortest way, which is the trace.
func exploreAll(g guards, start world) (states int, wrong string, trace []string) {
	type reached struct {
		state     world
		from      int
		who, what string
	}
	all := []reached{{state: start}}
	known := visited{}
	e := &explorer{guards: g}
	for next := 0; next < len(all); next++ {
		e.explore(all[next].state)
		if e.wrong != "" {
			for at := next; at != 0; at = all[at].from {
				trace = append(trace, all[at].who+" "+all[at].what)
			}
			slices.Reverse(trace)
			return len(all), e.wrong, trace
		}
		for _, each := range e.steps {
			if known.add(each.next) {
				all = append(all, reached{each.next, next, each.who, each.what})
			}
		}
	}
	return len(all), "", nil
}

// TestProtocol finds no order of steps that loses a row or lets an old token commit, and one where any guard is missing.
func TestProtocol(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]world{"kill": killing, "crash": crashing} {
		t.Run("all guards, "+name, func(t *testing.T) {
			states, wrong, trace := exploreAll(allGuards, start)
			require.Empty(t, wrong, strings.Join(trace, "\n"))
			t.Logf("%d states", states)
		})
	}
	for name, without := range map[string]func(g *guards){
		"write before test":    func(g *guards) { g.WriteBeforeTest = false },
		"barrier":              func(g *guards) { g.Barrier = false },
		"count prepared":       func(g *guards) { g.CountPrepared = false },
		"look after LISTEN":    func(g *guards) { g.LookAfterListen = false },
		"token before look":    func(g *guards) { g.TokenBeforeLook = false },
		"fence in every batch": func(g *guards) { g.Fence = false },
		"confirmed leases":     func(g *guards) { g.Confirm = false },
	} {
		t.Run("without "+name, func(t *testing.T) {
			g, start := allGuards, killing
			if without(&g); !g.Confirm {
				start = crashing
			}
			_, wrong, trace := exploreAll(g, start)
			require.NotEmpty(t, wrong, "the model does not need this guard")
			t.Logf("%s:\n  %s", wrong, strings.Join(trace, "\n  "))
		})
	}
}
