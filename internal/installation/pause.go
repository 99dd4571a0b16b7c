package installation

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"sexton/internal/audittrail"
)

// PauseNote is the note in a paused queue's metadata, under the key "sexton_pause".
type PauseNote struct {
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

const pauseKey = "sexton_pause"

// String says who paused it, since when and why.
func (n *PauseNote) String() string {
	text := "paused by " + n.Actor + " since " + n.At.UTC().Format(time.RFC3339)
	if n.Reason != "" {
		text += ": " + n.Reason
	}
	return text
}

// noteOf is the note of a queue's present pause. Other ways to pause it leave none, or something else in its place.
func noteOf(encoded []byte, pausedAt *time.Time) *PauseNote {
	var metadata struct {
		Note *PauseNote `json:"sexton_pause"`
	}
	if json.Unmarshal(encoded, &metadata) != nil || pausedAt == nil || metadata.Note == nil || !metadata.Note.At.Equal(*pausedAt) {
		return nil
	}
	return metadata.Note
}

// SetPaused pauses the queue of a kind, which has its name, with a note, or resumes it without one. The audit trail has it in the same
// transaction. A note of another person stays, and is returned: a reader who resumes the kind needs that name.
func (c *Connections) SetPaused(ctx context.Context, kind string, note *PauseNote, by audittrail.Entry) (standing *PauseNote, err error) {
	client, err := c.RiverClient()
	if err != nil {
		return nil, err
	}
	by.Target, by.Action = kind, "pause"
	if note == nil {
		by.Action = "resume"
	}
	err = pgx.BeginFunc(ctx, c.Jobs().Pool, func(tx pgx.Tx) error {
		if err := audittrail.Record(ctx, c.Jobs(), tx, by); err != nil {
			return err
		}
		if err := c.Jobs().Names.Queries(tx).QueueEnter(ctx, kind); err != nil {
			return err
		}
		if note == nil {
			// Work that came in meanwhile woke no worker.
			if err := Wake(ctx, tx, kind); err != nil {
				return err
			}
			return client.QueueResumeTx(ctx, tx, kind, nil)
		}
		// It locks the queue's row, be it paused or not: two who pause at the same time come one after the other.
		if err := client.QueuePauseTx(ctx, tx, kind, nil); err != nil {
			return err
		}
		state, err := client.QueueGetTx(ctx, tx, kind)
		if err != nil {
			return err
		}
		if before := noteOf(state.Metadata, state.PausedAt); before != nil && before.Actor != note.Actor {
			standing = before
			return nil
		}
		// The note carries the pause's own time: one left over from an earlier pause is known by that.
		note.At = state.PausedAt.UTC()
		metadata, err := json.Marshal(map[string]any{pauseKey: note})
		if err != nil {
			return err
		}
		_, err = client.QueueUpdateTx(ctx, tx, kind, &river.QueueUpdateParams{Metadata: metadata})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("change queue %s: %w", kind, err)
	}
	return standing, nil
}

// RiverClient looks at River's jobs and queues, and changes them; it works on none.
func (c *Connections) RiverClient() (*river.Client[pgx.Tx], error) {
	client, err := river.NewClient(riverpgxv5.New(c.Jobs().Pool), &river.Config{Schema: c.Config.Jobs.Schema})
	if err != nil {
		return nil, fmt.Errorf("make river client: %w", err)
	}
	return client, nil
}

// Pauses say of each paused queue of the enabled kinds by whom it was paused, since when and why, if that is known.
func Pauses(ctx context.Context, all *Connections) (map[string]string, error) {
	queues, err := all.Jobs().Queries().QueuesPaused(ctx, all.Kinds()) // There is one queue per kind, of its name.
	if err != nil {
		return nil, fmt.Errorf("look for paused queues: %w", err)
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
