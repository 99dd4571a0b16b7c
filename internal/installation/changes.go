package installation

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/heartbeat"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/placeholder"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// PauseNote is the note in the metadata of a paused queue, under the key "sexton_pause".
type PauseNote struct {
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

const pauseKey = "sexton_pause"

// String returns a text with the user who paused the queue, the time and the reason.
func (n *PauseNote) String() string {
	text := "paused by " + n.Actor + " since " + n.At.UTC().Format(time.RFC3339)
	if n.Reason != "" {
		text += ": " + n.Reason
	}
	return text
}

// noteOf returns the note of the current pause, or nil. A queue that was not paused by
// SetPaused has no note, or the note of an earlier pause.
func noteOf(encoded []byte, pausedAt *time.Time) *PauseNote {
	var metadata struct {
		Note *PauseNote `json:"sexton_pause"`
	}
	if json.Unmarshal(encoded, &metadata) != nil || pausedAt == nil || metadata.Note == nil ||
		!metadata.Note.At.Equal(*pausedAt) {
		return nil
	}
	return metadata.Note
}

// SetPaused pauses or resumes the queue of a kind, and writes an audit record in the same
// transaction. The queue has the name of the kind. SetPaused returns the note of the
// pause. If the queue is already paused, the existing note is kept and returned.
func (c *Connections) SetPaused(ctx context.Context, kind string, pause bool,
	by database.Change,
) (note *PauseNote, err error) {
	client, err := c.RiverClient()
	if err != nil {
		return nil, err
	}
	by.Target, by.Action = kind, "resume"
	if pause {
		by.Action = "pause"
	}
	err = pgx.BeginFunc(ctx, c.Jobs().Pool, func(tx pgx.Tx) error {
		if err := database.RecordChange(ctx, c.Jobs(), tx, by); err != nil {
			return err
		}
		if err := c.Jobs().Names.Queries(tx).QueueInsert(ctx, kind); err != nil {
			return err
		}
		if !pause {
			// Rows that were inserted during the pause have woken no worker.
			if err := Wake(ctx, tx, kind); err != nil {
				return err
			}
			return client.QueueResumeTx(ctx, tx, kind, nil)
		}
		// The statement locks the row of the queue even if the queue is already paused,
		// so that concurrent pauses are serialized.
		if err := client.QueuePauseTx(ctx, tx, kind, nil); err != nil {
			return err
		}
		state, err := client.QueueGetTx(ctx, tx, kind)
		if err != nil {
			return err
		}
		if before := noteOf(state.Metadata, state.PausedAt); before != nil && before.Actor != by.Actor {
			note = before
			return nil
		}
		// The note has the time of the pause, so that noteOf can detect the note of an
		// earlier pause.
		note = &PauseNote{Actor: by.Actor, Reason: by.Reason, At: state.PausedAt.UTC()}
		metadata, err := json.Marshal(map[string]any{pauseKey: note})
		if err != nil {
			return err
		}
		_, err = client.QueueUpdateTx(ctx, tx, kind, &river.QueueUpdateParams{Metadata: metadata})
		return err
	})
	return note, problem.Doing(err, "change queue %s", kind)
}

// RiverClient returns a client that reads and changes jobs and queues. The client runs no
// jobs.
func (c *Connections) RiverClient() (*river.Client[pgx.Tx], error) {
	client, err := river.NewClient(riverpgxv5.New(c.Jobs().Pool), &river.Config{Schema: pgcatalog.Schema})
	return client, problem.Doing(err, "create River client")
}

// Pauses maps each paused queue of the enabled kinds to a text with the user who paused
// it, the time and the reason, if known.
func Pauses(ctx context.Context, all *Connections) (map[string]string, error) {
	// Each kind has one queue with the name of the kind.
	queues, err := all.Jobs().Queries().QueuesPaused(ctx, all.Kinds())
	if err != nil {
		return nil, fmt.Errorf("read paused queues: %w", err)
	}
	pauses := map[string]string{}
	for _, queue := range queues {
		pauses[queue.Name] = "paused since " + queue.PausedAt.UTC().Format(time.RFC3339)
		if note := noteOf(queue.Metadata, queue.PausedAt); note != nil {
			pauses[queue.Name] = note.String()
		}
	}
	return pauses, nil
}

// Waking runs a change that creates work for a kind, and wakes the workers of the kind.
// The triggers wake workers only for inserted rows.
func Waking(ctx context.Context, db database.Database, kind string, change func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := change(tx); err != nil {
			return err
		}
		return Wake(ctx, tx, kind)
	})
}

// Wake sends the same notification as the triggers on inserted rows. A worker that is
// already awake checks for work once more.
func Wake(ctx context.Context, on dbsqlc.DBTX, kind string) error {
	_, err := on.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", listen.Channel, kind)
	return problem.Doing(err, "wake workers")
}

// RetryAllPlaceholders makes all deferred and given-up placeholders due, and wakes the
// workers.
func RetryAllPlaceholders(ctx context.Context, db database.Database) (retried int64, err error) {
	err = Waking(ctx, db, riverjobs.PlaceholderCleanup, func(tx pgx.Tx) (err error) {
		retried, err = placeholder.RetryAll(ctx, tx, db.Names)
		return err
	})
	return retried, err
}

// RetryPlaceholder makes one placeholder due, and wakes the workers.
func RetryPlaceholder(ctx context.Context, db database.Database, id int64) (state placeholder.State, err error) {
	err = Waking(ctx, db, riverjobs.PlaceholderCleanup, func(tx pgx.Tx) (err error) {
		state, err = placeholder.Retry(ctx, tx, db.Names, id)
		return err
	})
	if PlaceholderRefused(err) {
		return "", fmt.Errorf("placeholder user %d: %w", id, err)
	}
	return state, err
}

// PlaceholderRefused reports whether a placeholder cannot be retried.
func PlaceholderRefused(err error) bool {
	return slices.ContainsFunc([]error{
		placeholder.ErrUnknown, placeholder.ErrOwned, placeholder.ErrQueued,
		placeholder.ErrObsolete,
	},
		func(refusal error) bool { return errors.Is(err, refusal) })
}

// PlaceholderOutcome describes the state of a retried placeholder.
func PlaceholderOutcome(state placeholder.State) string {
	if state == placeholder.Scheduled {
		return "its job starts now"
	}
	return "due now"
}

// SavePlaceholderRules writes the configured limits on attempts to the database, so that
// the SQL function that counts the backlog of placeholders uses the same limits.
func SavePlaceholderRules(ctx context.Context, all *Connections) error {
	return placeholder.SaveRules(ctx, all.Jobs().Pool, all.Jobs().Names, riverjobs.PlaceholderRules(all.Config))
}

// TombstonesOf returns the tombstone queue of one database.
func TombstonesOf(all *Connections, db database.Database) loosefk.Tombstones {
	return loosefk.Tombstones{DB: db.Pool, Names: db.Names, Bounds: BoundsOf(all), Wake: WakeLooseForeignKeys}
}

// BoundsOf returns the statement and lock timeouts for the table of tombstones.
func BoundsOf(all *Connections) loosefk.Bounds {
	settings := all.Config.Jobs
	return loosefk.Bounds{StatementTimeout: settings.StatementTimeout, LockTimeout: settings.LockTimeout}
}

// WakeLooseForeignKeys wakes the workers of loose foreign keys.
func WakeLooseForeignKeys(ctx context.Context, tx pgx.Tx) error {
	return Wake(ctx, tx, riverjobs.LooseForeignKeys)
}

// Beat sends heartbeats until stop is called, so that the leases of this process are
// freed if it dies. It first frees the leases of dead processes, because no worker may be
// running.
func Beat(ctx context.Context, all *Connections, id string, log *slog.Logger) (stop func(), err error) {
	heart := &heartbeat.Heart{
		DB: all.Jobs(), ClientID: id, Silence: all.Config.Jobs.Silence, Logger: log,
		Foreground: true,
	}
	if err := heart.Beat(ctx); err != nil {
		return nil, fmt.Errorf("begin heartbeat: %w", err)
	}
	if _, err := heart.Reclaim(ctx); err != nil {
		return nil, err
	}
	beating, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { heart.Run(beating) })
	return func() { cancel(); running.Wait() }, nil
}

// Holder returns the name of this process in leases: host, process ID and a random part.
func Holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), rand.Text()[:6])
}

// Actor returns the name of the operating system's user, for the audit trail.
func Actor() string {
	if current, err := user.Current(); err == nil {
		return current.Username
	}
	return "unknown"
}

// Record writes an audit record of a change.
func (c *Connections) Record(ctx context.Context, by database.Change) error {
	return database.RecordChange(ctx, c.Jobs(), c.Jobs().Pool, by)
}
