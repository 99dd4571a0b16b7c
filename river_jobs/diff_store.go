package riverjobs

import (
	"context"
	"sync"

	"sexton/internal/extdiff"
)

// diffStore is the one store of diffs of a process: all runs share its credentials, its connections and the memory of its uploads,
// and what was found of whose the objects are. Whoever needs it first opens it. The zero value is ready to use.
type diffStore struct {
	mu sync.Mutex
	// current is nil before the first use, after a failed one, and after a refusal.
	current *openDiffStore
}

// openDiffStore is a store with those who work with it.
type openDiffStore struct {
	engine *extdiff.Engine
	users  int
}

// use has do work with the store, which stays open until it returns. Where the store cannot be opened, or refuses, the next use
// opens it anew: the credentials may have been mended, which an open store would not see.
func (s *diffStore) use(ctx context.Context, deps Deps, do func(*extdiff.Engine) error) (err error) {
	used, err := s.take(ctx, deps)
	if err != nil {
		return err
	}
	defer func() { s.giveBack(used, err) }()
	return do(used.engine)
}

// take opens the store where none is open. Others wait meanwhile, for the 5 s at most that a search for credentials takes.
func (s *diffStore) take(ctx context.Context, deps Deps) (*openDiffStore, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		store, err := OpenDiffStore(ctx, deps.Config, deps.Logger)
		if err != nil {
			return nil, err
		}
		s.current = &openDiffStore{engine: DiffEngine(deps.Config, deps.jobsDB(), store, deps.Runner.Leases.Holder)}
	}
	s.current.users++
	return s.current, nil
}

func (s *diffStore) giveBack(used *openDiffStore, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used.users--
	// Whoever has used an older one has met what the current one was opened for.
	if _, refused := asRefusal(err); refused && s.current == used {
		s.current = nil
	}
	if s.current != used && used.users == 0 {
		_ = used.engine.Store.Close() // Nothing is left to be written.
	}
}

// close lets go of the store. Where somebody still works with it, the last one does.
func (s *diffStore) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.current.users == 0 {
		_ = s.current.engine.Store.Close()
	}
	s.current = nil
}
