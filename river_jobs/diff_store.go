package riverjobs

import (
	"context"
	"sync"

	"sexton/internal/extdiff"
)

// diffStore is the one store of diffs of a process: all runs share its credentials, its connections and the memory of its uploads,
// and what was found of whose the objects are. The first run that needs it opens it. The zero value is ready to use.
type diffStore struct {
	mu sync.Mutex
	// current is nil before the first use, after a failed one, and after a refusal.
	current *extdiff.Engine
}

// use has do work with the store. Where the store cannot be opened, or refuses, the next use opens it anew: the credentials may have
// been mended, which an open store would not see.
func (s *diffStore) use(ctx context.Context, deps Deps, do func(*extdiff.Engine) error) error {
	used, err := s.take(ctx, deps)
	if err != nil {
		return err
	}
	err = do(used)
	if _, refused := asRefusal(err); refused {
		s.drop(used)
	}
	return err
}

// take opens the store where none is open. Others wait meanwhile, for the 5 s at most that a search for credentials takes.
func (s *diffStore) take(ctx context.Context, deps Deps) (*extdiff.Engine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		engine, err := OpenDiffs(ctx, deps.Config, deps.jobsDB(), deps.Logger, deps.Runner.Leases.Holder)
		if err != nil {
			return nil, err
		}
		s.current = engine
	}
	return s.current, nil
}

// drop has the next use open the store anew. The current one was opened because an older one refused.
func (s *diffStore) drop(used *extdiff.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == used {
		s.current = nil
	}
}
