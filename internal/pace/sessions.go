package pace

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sexton/internal/batch"
)

const (
	// apartFor is how long a run works on its own connection alone after a statement that failed by a lock, apartLong after a deadlock: longer than
	// runs last.
	apartFor, apartLong = time.Second, 24 * time.Hour
	// askEvery is how often a run asks for a further connection where none was free.
	askEvery = time.Second
)

// Sessions are the connections of a run, under one lease, among which it divides statements on rows that no two parts have in common.
//
// Parts can meet in rows further below, by triggers and native cascades. What fails by a lock is therefore to be sent again on one connection: what
// stands in its way then is another session's.
type Sessions struct {
	Own *batch.Session
	// Most is how many the run may use at once. More returns a further one, nil where there is none to spare.
	Most int
	More func(ctx context.Context) *batch.Session
	Pace *Run

	more []*batch.Session
	// lost are connections that broke, cut those of them that were the run's own.
	lost, cut int
	// asked is when none was to spare; until apart the run works on its own connection alone.
	asked, apart time.Time
}

// Connect asks for further sessions, as many as the run may use now.
func (s *Sessions) Connect(ctx context.Context) {
	for len(s.more)+1 < s.Most && s.Pace.Full() && time.Since(s.asked) > askEvery {
		session := s.More(ctx)
		if session == nil {
			s.asked = time.Now()
			return
		}
		s.more = append(s.more, session)
	}
}

// Free is the number of sessions that a statement may use now: the others rest while the run leaves time to others.
func (s *Sessions) Free() int {
	if !s.Pace.Full() || time.Now().Before(s.apart) {
		return 1
	}
	return 1 + len(s.more)
}

// Each calls do for so many parts at once, each with a session of its own, the first with the run's. A panic of any part comes out here, where it
// ends the run and not the process.
func (s *Sessions) Each(parts int, do func(part int, on *batch.Session)) {
	var others sync.WaitGroup
	var panicked atomic.Value
	for i := 1; i < parts; i++ {
		others.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panicked.Store(fmt.Sprintf("%v\n\n%s", p, debug.Stack()))
				}
			}()
			do(i, s.more[i-1])
		})
	}
	defer func() {
		others.Wait() // No session is given back while it is in use.
		if p := panicked.Load(); p != nil {
			panic(p) //nolint:forbidigo // It is passed on.
		}
	}()
	do(0, s.Own)
}

// Lost leaves out further sessions whose connections have broken, and reports whether there are such. The run takes no others in their stead, as
// these might break as well.
func (s *Sessions) Lost() bool {
	before := len(s.more)
	s.more = slices.DeleteFunc(s.more, func(one *batch.Session) bool { return one.Conn.IsClosed() })
	lost := before - len(s.more)
	s.Most, s.lost = s.Most-lost, s.lost+lost
	return lost > 0
}

// mostCut is how many of its own connections a run may lose.
const mostCut = 100

// Survives has the run go on by another connection in the place of its own, if that broke, and reports whether there is one. The statement that was
// under way can be why: it crashes the server's process, or a pooler lets none take that long. Then every run would meet it first, and end.
func (s *Sessions) Survives(ctx context.Context) bool {
	if !s.Own.Conn.IsClosed() || ctx.Err() != nil || s.Pace.Ended() {
		return false
	}
	s.Lost()
	for s.cut < mostCut {
		var next *batch.Session
		if len(s.more) > 0 {
			next, s.more, s.Most = s.more[0], s.more[1:], s.Most-1
		} else if s.More != nil {
			next = s.More(ctx)
		}
		if next == nil {
			return false
		}
		s.lost, s.cut = s.lost+1, s.cut+1
		if next.Conn.Ping(ctx) == nil { // What has cut one may have cut all.
			s.Own.Conn = next.Conn
			return true
		}
	}
	return false
}

// Broken is an error if the run has gone on without a session whose connection broke. The answer to its last COMMIT may be lost, so that
// the run does not know its own figures: it counts as failed, and what its batches have counted holds.
func (s *Sessions) Broken() error {
	if s.lost == 0 {
		return nil
	}
	return fmt.Errorf("%d of the run's connections broke; the others did its work", s.lost)
}

// Met notes that a part has failed, and reports whether it is to be sent again on the run's own connection, on which the run then works alone for a
// while or, after a deadlock, for its rest.
func (s *Sessions) Met(f batch.Fault) bool {
	if !f.Lock() {
		return false
	}
	length := apartFor
	if f.SQLState == "40P01" {
		length = apartLong
	}
	if until := time.Now().Add(length); until.After(s.apart) {
		s.apart = until
	}
	return true
}
