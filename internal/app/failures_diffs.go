package app

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sexton/internal/extdiff"
	"sexton/internal/installation"
	"sexton/internal/web/page"
	"sexton/internal/words"
)

// diffFailures are diffs that are due and stay in the database: they cannot be moved, or moving them has failed.
type diffFailures struct{ all *installation.Connections }

func (diffFailures) name() string { return "diffs" }

func (s diffFailures) failed(ctx context.Context, limit int) ([]extdiff.Failure, error) {
	return extdiff.ReadFailed(ctx, s.all.Jobs().Pool, s.all.Jobs().Names, limit)
}

func (s diffFailures) list(ctx context.Context, limit int) (failures []page.Failure, more bool, err error) {
	failed, err := s.failed(ctx, limit+1)
	if err != nil {
		return nil, false, err
	}
	// The rounds over all diffs begin with a tick.
	var round time.Time
	if cron, err := s.all.Config.ExternalDiffs.Schedule.Parse(); err == nil {
		round = cron.Next(time.Now().UTC())
	}
	for _, diff := range failed[:min(limit, len(failed))] {
		failure := page.Failure{
			Source: s.name(), ID: strconv.FormatInt(diff.DiffID, 10), What: fmt.Sprintf("diff %d", diff.DiffID),
			Error: diff.Error, Attempts: diff.Attempts, Next: round,
		}
		if diff.Skip != "" {
			failure.Error = "skipped: " + strings.ReplaceAll(string(diff.Skip), "_", " ")
		}
		if diff.Next != nil {
			failure.Next = *diff.Next
		}
		failures = append(failures, failure)
	}
	return failures, len(failed) > limit, nil
}

func (s diffFailures) ids(ctx context.Context) (ids []int64, err error) {
	failed, err := s.failed(ctx, failureWindow)
	for _, diff := range failed {
		ids = append(ids, diff.DiffID)
	}
	return ids, err
}

// retry has one diff tried again, or as many of them all as one look shows.
func (s diffFailures) retry(ctx context.Context, _, text string, record func() error) (string, error) {
	ids, one, err := wantedIDs(text, func() ([]int64, error) { return s.ids(ctx) })
	if err != nil {
		return "", err
	}
	if err := record(); err != nil {
		return "", err
	}
	retried, err := extdiff.Retry(ctx, s.all.Jobs().Pool, s.all.Jobs().Names, ids)
	switch {
	case err != nil:
		return "", err
	case retried == 0 && one:
		return "", &page.RefusedError{Reason: "diff " + text + " is not in the database, or not any more"}
	}
	return words.Counted(retried, "diff") + " to be tried now", nil
}
