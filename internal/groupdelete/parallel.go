package groupdelete

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/pace"
)

// forks are the sessions that delete projects of one group at the same time. The first
// one has the connection of the run.
type forks struct {
	sessions []*batch.Session
	// paceMu guards the run's Pace, which queries the server over the connection of the
	// run's session. While othersActive is set, other clients use the server, and a
	// session holds turn during each transaction, so that only one runs at a time.
	paceMu       sync.Mutex
	turn         sync.Mutex
	othersActive atomic.Bool
}

// deleteProjects deletes projects of a group over several sessions. What it leaves, such
// as locked projects, Clear deletes over one session. A session that waits for locks is
// alone, so two sessions cannot wait for each other.
func (r *run) deleteProjects(ctx context.Context, w *window, refs []*ref) error {
	if r.Waits || r.engine.Connections < 2 || !r.engine.Plan.parallel {
		return nil
	}
	conn := r.Session.Conn
	defer func() { r.Session.Conn = conn }()
	for _, f := range refs {
		if f.Action != dml.Remove {
			continue
		}
		for _, leaf := range f.Leaves {
			if err := r.TakeParallel(ctx, w, f, leaf, func(most int) []*drain.Tree {
				return r.fork(ctx, w,
					most)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// fork returns trees that delete projects of a group, at most that number, each over its
// own session.
func (r *run) fork(ctx context.Context, w *window, most int) (trees []*drain.Tree) {
	own := r.Session
	if r.forks.sessions == nil {
		r.forks.sessions = []*batch.Session{{Conn: own.Conn, Names: own.Names, Limits: own.Limits, Kept: own.Kept}}
	}
	for len(r.forks.sessions) < min(r.engine.Connections, most) {
		next := r.engine.More(ctx)
		if next == nil {
			break
		}
		r.forks.sessions = append(r.forks.sessions, next)
	}
	sessions := r.forks.sessions[:min(most, len(r.forks.sessions))]
	for _, session := range sessions {
		session.Fence = own.Fence // It may be the lease of another sub-group than before.
		trees = append(trees, r.tree(w, session, len(sessions)))
	}
	return trees
}

// tree returns a fork, which may fail its share of the rows that may fail in a run.
func (r *run) tree(w *window, session *batch.Session, of int) *drain.Tree {
	t := r.Fork(session, w)
	mostFailures := max(1, (drain.MostFailures-r.Failures)/of)
	ended := func() bool { return r.ended() || t.Failures >= mostFailures }
	t.Pace = &pace.Run{Until: r.until, Stop: r.stop, Ended: ended, Target: r.Target}
	t.Send = func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
		if r.forks.othersActive.Load() {
			r.forks.turn.Lock()
			defer r.forks.turn.Unlock()
		}
		return r.sendOver(ctx, session, limits, statements...)
	}
	t.Alter = func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
		return r.alterBy(ctx, t.Send, limits, 0, statements...)
	}
	asked := 0
	t.Paused = func(ctx context.Context) bool {
		return r.paused(ctx, t, ended, &asked, max(1, escapeEvery/of))
	}
	t.Progress = func(ctx context.Context) {
		r.batchDone(ctx)
		r.withPace(t, func(p *pace.Run) {
			p.PauseAfterBatch(ctx, session.Took())
			t.Target = p.Shortened(r.Target)
		})
	}
	return t
}

// withPace calls do, which may query the server over the connection of this tree. Only
// one session pauses at a time, so that the duty is that of all sessions together.
func (r *run) withPace(tree *drain.Tree, do func(p *pace.Run)) {
	r.forks.paceMu.Lock()
	defer r.forks.paceMu.Unlock()
	r.Session.Conn = tree.Session.Conn
	do(r.Pace)
}

// parallel reports whether projects can be deleted at the same time: no project and no
// group is below a project. Another session could otherwise be deleting it.
func parallel(projects, groups *table) bool {
	seen := []*table{projects}
	for i := 0; i < len(seen); i++ {
		for _, f := range seen[i].Refs {
			switch {
			case f.Action != dml.Remove || slices.Contains(seen[1:], f.Table):
			case f.Table == projects, f.Table == groups:
				return false
			default:
				seen = append(seen, f.Table)
			}
		}
	}
	return true
}
