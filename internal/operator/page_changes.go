package operator

import (
	"context"
	"slices"

	"sexton/internal/audittrail"
	"sexton/internal/component"
	"sexton/internal/installation"
	"sexton/internal/web"
)

// Pause pauses a kind on all workers. A *component.RefusedError is for the user to read, here and below.
func (s *PageSource) Pause(ctx context.Context, by web.Visitor, kind, reason string) error {
	return s.setPaused(ctx, by, kind, reason, &installation.PauseNote{Actor: by.Actor, Reason: reason})
}

// Resume lets a paused kind work again.
func (s *PageSource) Resume(ctx context.Context, by web.Visitor, kind, reason string) error {
	return s.setPaused(ctx, by, kind, reason, nil)
}

func (s *PageSource) setPaused(ctx context.Context, by web.Visitor, kind, reason string, note *installation.PauseNote) error {
	if !slices.Contains(s.all.Kinds(), kind) {
		return component.Refuse("there is no job %q, or it is not enabled", kind)
	}
	standing, err := s.all.SetPaused(ctx, kind, note, audittrail.Entry{Actor: by.Actor, Remote: by.Remote, Reason: reason})
	if standing != nil {
		return component.Refuse("%s is %s already; that note stays", kind, standing)
	}
	return err
}

// Retry has failed rows tried again now and says what came of it.
func (s *PageSource) Retry(ctx context.Context, by web.Visitor, what component.Retry) (string, error) {
	defer s.failures.Forget()
	return RetryFailures(ctx, s.all, what, audittrail.Entry{Actor: by.Actor, Remote: by.Remote})
}

// readFailures reads what there is; the log says what cannot be read.
func (s *PageSource) readFailures(ctx context.Context) Failures {
	found, err := ReadFailures(ctx, reachable(ctx, s.all), shownFailures)
	if err != nil {
		s.log.WarnContext(ctx, "failures cannot be read", "error", err)
	}
	return found
}
