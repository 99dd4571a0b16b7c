package app

import (
	"context"
	"fmt"
	"strconv"

	"sexton/internal/installation"
	"sexton/internal/placeholder"
	"sexton/internal/web/page"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// placeholderFailures are placeholder users that something keeps, the given-up ones among them.
type placeholderFailures struct{ all *installation.Connections }

func (placeholderFailures) name() string { return "placeholders" }

func (s placeholderFailures) list(ctx context.Context, limit int) (failures []page.Failure, more bool, err error) {
	kept, err := s.kept(ctx, limit+1)
	if err != nil {
		return nil, false, err
	}
	for _, p := range kept[:min(limit, len(kept))] {
		failure := page.Failure{
			Source: s.name(), ID: strconv.FormatInt(p.UserID, 10), What: fmt.Sprintf("placeholder user %d", p.UserID),
			Error: p.LastError, Attempts: p.Attempts, GivenUp: p.State == placeholder.GivenUp,
		}
		if p.NextAttemptAt != nil {
			failure.Next = *p.NextAttemptAt
		}
		failures = append(failures, failure)
	}
	return failures, len(kept) > limit, nil
}

func (s placeholderFailures) kept(ctx context.Context, limit int) ([]placeholder.Placeholder, error) {
	db := s.all.Jobs()
	return placeholder.ReadKept(ctx, db.Pool, db.Names, riverjobs.PlaceholderRules(s.all.Config), limit)
}

// retry has one tried again, or all.
func (s placeholderFailures) retry(ctx context.Context, _, text string, record func() error) (string, error) {
	id, err := wantedID(text)
	if err != nil {
		return "", err
	}
	if err := record(); err != nil {
		return "", err
	}
	if id != 0 {
		state, err := installation.GiveAttemptsBack(ctx, s.all.Jobs(), id)
		if installation.Refused(err) {
			return "", &page.RefusedError{Reason: err.Error()}
		}
		return fmt.Sprintf("placeholder user %d: %s", id, installation.Becomes(state)), err
	}
	retried, err := installation.GiveAllAttemptsBack(ctx, s.all.Jobs())
	if err != nil {
		return "", err
	}
	return words.Counted(retried, "placeholder user") + " to be tried now", nil
}
