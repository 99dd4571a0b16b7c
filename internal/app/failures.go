package app

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/database"
	"sexton/internal/ghostuser"
	"sexton/internal/installation"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	"sexton/internal/web/page"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// failureSource is a deletion table, or River, with what failed in it.
type failureSource interface {
	// name is for people, and for a retry to name it, such as tombstones.
	name() string
	// list returns at most limit failures, and whether there are more. Databases that are down are left out.
	list(ctx context.Context, limit int) (failures []page.Failure, more bool, err error)
	// retry has one row tried again now, or all where id is empty, and says what came of it. It calls record before it changes
	// anything, and changes nothing where that fails. What makes no sense is a *page.RefusedError.
	retry(ctx context.Context, database, id string, record func() error) (string, error)
}

// failureSources are those of the enabled components. A component with rows that can be given up adds its own.
func failureSources(all *installation.Connections) []failureSource {
	var sources []failureSource
	if all.Config.LooseForeignKeys.Enabled {
		sources = append(sources, tombstoneFailures{all})
	}
	if all.Config.GhostUsers.Enabled {
		sources = append(sources, userFailures{all})
	}
	if all.Config.PlaceholderUsers.Enabled {
		sources = append(sources, placeholderFailures{all})
	}
	if all.Config.AdjournedGroups.Enabled {
		sources = append(sources, groupFailures{all})
	}
	if all.Config.ExternalDiffs.Enabled {
		sources = append(sources, diffFailures{all})
	}
	return append(sources, riverFailures{all})
}

// wantedID reads the id of a row; 0 stands for all.
func wantedID(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, &page.RefusedError{Reason: fmt.Sprintf("%q is no id", text)}
	}
	return id, nil
}

// wantedIDs are the ids that a retry is for: the one that text names, or all that one look shows.
func wantedIDs(text string, all func() ([]int64, error)) (ids []int64, one bool, err error) {
	id, err := wantedID(text)
	if err != nil || id != 0 {
		return []int64{id}, true, err
	}
	ids, err = all()
	return ids, false, err
}

// tombstoneFailures are tombstones that failed.
type tombstoneFailures struct{ all *installation.Connections }

// failureWindow bounds the look for them: a page that is left open must not read a big backlog again and again.
const failureWindow = 500

func (tombstoneFailures) name() string { return "tombstones" }

func (s tombstoneFailures) list(ctx context.Context, limit int) (failures []page.Failure, more bool, err error) {
	for _, db := range s.all.Databases {
		if s.all.Down[db.Name] != nil {
			continue
		}
		list, err := installation.TombstonesOf(s.all, db).List(ctx, loosefk.ListOptions{FailedOnly: true, Limit: limit, Window: failureWindow})
		if err != nil {
			return failures, more, fmt.Errorf("database %s: %w", db.Name, err)
		}
		more = more || list.More > 0
		for _, t := range list.Tombstones {
			failure := page.Failure{
				Source: s.name(), Database: db.Name, ID: strconv.FormatInt(t.ID, 10), What: t.Table + ", key " + t.Key,
				Error: deref(t.LastError), Attempts: int64(t.Attempts),
			}
			if t.Deferred && t.ConsumeAfter.InfinityModifier == pgtype.Finite {
				failure.Next = t.ConsumeAfter.Time
			}
			failure.GivenUp = t.ConsumeAfter.InfinityModifier == pgtype.Infinity
			failures = append(failures, failure)
		}
	}
	return failures, more, nil
}

func (s tombstoneFailures) retry(ctx context.Context, name, text string, record func() error) (string, error) {
	id, err := wantedID(text)
	if err != nil {
		return "", err
	}
	db, ok := s.configured(name)
	if !ok {
		return "", &page.RefusedError{Reason: fmt.Sprintf("no database %q is configured", name)}
	}
	if err := record(); err != nil {
		return "", err
	}
	var options loosefk.RetryOptions
	if id != 0 {
		options.IDs = []int64{id}
	}
	result, err := installation.TombstonesOf(s.all, db).Retry(ctx, options)
	switch {
	case err != nil:
		return "", fmt.Errorf("database %s: %w", db.Name, err)
	case len(result.Unknown) > 0:
		return "", &page.RefusedError{Reason: "tombstone " + text + " does not wait any more"}
	case result.Busy > 0 && result.Retried == 0:
		return "", &page.RefusedError{Reason: "a worker has it in hand"}
	}
	return words.Counted(result.Retried+result.Due, "tombstone") + " due now", nil
}

func (s tombstoneFailures) configured(name string) (database.Database, bool) {
	for _, db := range s.all.Databases {
		if db.Name == name {
			return db, true
		}
	}
	return database.Database{}, false
}

// userFailures are users whose deletion failed.
type userFailures struct{ all *installation.Connections }

func (userFailures) name() string { return "users" }

func (s userFailures) list(ctx context.Context, limit int) (failures []page.Failure, more bool, err error) {
	users, err := ghostuser.ReadFailed(ctx, s.all.Jobs().Pool, s.all.Jobs().Names, limit+1)
	if err != nil {
		return nil, false, err
	}
	for _, user := range users[:min(limit, len(users))] {
		failures = append(failures, page.Failure{
			Source: s.name(), ID: strconv.FormatInt(user.UserID, 10), What: fmt.Sprintf("user %d", user.UserID),
			Error: user.LastError, Attempts: user.Attempts, Next: user.ConsumeAfter.Time,
			GivenUp: user.ConsumeAfter.InfinityModifier == pgtype.Infinity,
		})
	}
	return failures, len(users) > limit, nil
}

func (s userFailures) retry(ctx context.Context, _, text string, record func() error) (string, error) {
	id, err := wantedID(text)
	if err != nil {
		return "", err
	}
	if err := record(); err != nil {
		return "", err
	}
	var one *int64
	if id != 0 {
		one = &id
	}
	var users int64
	err = pgx.BeginFunc(ctx, s.all.Jobs().Pool, func(tx pgx.Tx) error {
		var err error
		if users, err = ghostuser.Retry(ctx, tx, s.all.Jobs().Names, one); err != nil || users == 0 {
			return err
		}
		// An update wakes no worker by itself.
		_, err = tx.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", listen.Channel, riverjobs.GhostUsers)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case users == 0 && id != 0:
		return "", &page.RefusedError{Reason: "user " + text + " is being worked on, or does not wait any more"}
	}
	return words.Counted(users, "user") + " due now", nil
}
