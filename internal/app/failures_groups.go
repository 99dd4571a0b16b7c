package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivertype"

	"sexton/internal/groupschedule"
	"sexton/internal/installation"
	"sexton/internal/listen"
	"sexton/internal/web/page"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// groupFailures are groups whose destruction has failed, or about which nothing could be decided.
type groupFailures struct{ all *installation.Connections }

func (groupFailures) name() string { return "groups" }

func (s groupFailures) failed(ctx context.Context, limit int) ([]groupschedule.Failure, error) {
	return groupschedule.ReadFailed(ctx, s.all.Jobs().Pool, s.all.Jobs().Names, limit)
}

func (s groupFailures) list(ctx context.Context, limit int) (failures []page.Failure, more bool, err error) {
	failed, err := s.failed(ctx, limit+1)
	if err != nil {
		return nil, false, err
	}
	for _, group := range failed[:min(limit, len(failed))] {
		failure := page.Failure{
			Source: s.name(), ID: strconv.FormatInt(group.GroupID, 10), What: fmt.Sprintf("group %d", group.GroupID),
			Error: group.Error, Attempts: group.Attempts,
		}
		if group.Path != "" {
			failure.What += " (" + group.Path + ")"
		}
		if group.Begun {
			failure.What += ", its destruction"
		}
		if group.Next != nil {
			failure.Next = *group.Next
		}
		failures = append(failures, failure)
	}
	return failures, len(failed) > limit, nil
}

func (s groupFailures) ids(ctx context.Context) (ids []int64, err error) {
	failed, err := s.failed(ctx, failureWindow)
	for _, group := range failed {
		ids = append(ids, group.GroupID)
	}
	return ids, err
}

// retry has one group tried again, or as many of them all as one look shows.
func (s groupFailures) retry(ctx context.Context, _, text string, record func() error) (string, error) {
	ids, one, err := wantedIDs(text, func() ([]int64, error) { return s.ids(ctx) })
	if err != nil {
		return "", err
	}
	if err := record(); err != nil {
		return "", err
	}
	var retried int64
	for _, id := range ids {
		found, err := s.retryOne(ctx, id)
		if err != nil {
			return "", err
		}
		if found {
			retried++
		}
	}
	if retried == 0 && one {
		return "", &page.RefusedError{Reason: "group " + text + " has not failed, or not any more"}
	}
	return words.Counted(retried, "group") + " to be tried now", nil
}

// retryOne has a group tried at once by the next in line: the job that waits, one more where a destruction has begun, or else the
// pass that decides.
func (s groupFailures) retryOne(ctx context.Context, id int64) (found bool, err error) {
	db := s.all.Jobs()
	client, err := s.all.RiverClient()
	if err != nil {
		return false, err
	}
	// Inserting a unique job needs it.
	err = pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		failed, err := groupschedule.Retry(ctx, tx, db.Names, id)
		if err != nil || failed == nil {
			return err
		}
		found = true
		switch {
		case failed.JobID != 0:
			_, err = client.JobRetryTx(ctx, tx, failed.JobID)
		case failed.Begun:
			_, err = tx.Exec(ctx, db.Names.Render(`SELECT "sexton".enqueue($1, pg_catalog.jsonb_build_object('group_id', $2::bigint, 'user_id', $3::bigint))`),
				riverjobs.GroupDestroy, id, failed.UserID)
		default:
			// An update wakes no worker by itself.
			_, err = tx.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", listen.Channel, riverjobs.AdjournedGroupDeletion)
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("retry group %d: %w", id, err)
	}
	return found, nil
}

// groupsListed are the groups that stand in this source, so that their jobs need not stand in another.
func (s groupFailures) groupsListed(ctx context.Context) (map[int64]bool, error) {
	ids, err := s.ids(ctx)
	if err != nil {
		return nil, err
	}
	listed := map[int64]bool{}
	for _, id := range ids {
		listed[id] = true
	}
	return listed, nil
}

// groupOf is the group that a job is to destroy, or 0.
func groupOf(row *rivertype.JobRow) int64 {
	var args riverjobs.GroupDestroyArgs
	if row.Kind != riverjobs.GroupDestroy || json.Unmarshal(row.EncodedArgs, &args) != nil {
		return 0
	}
	return args.GroupID
}
