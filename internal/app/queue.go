package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/user"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/spf13/cobra"

	"sexton/internal/audittrail"
	"sexton/internal/listen"
	riverjobs "sexton/river_jobs"
)

func (a *app) jobEnqueueCommand() *cobra.Command {
	var args string
	cmd := a.reports(&cobra.Command{
		Use:   "enqueue KIND",
		Short: "Put a job into River for a worker to run",
		Long:  "Puts a job into River, or finds the one that is there already: a job with the same arguments is there once. Prints its id.",
		Example: `  sexton job enqueue loose_foreign_keys_cleanup
  sexton job enqueue loose_foreign_keys_cleanup --args '{"database": "main"}'`,
		Args:              oneKind,
		ValidArgsFunction: a.completeKind,
		RunE: a.run(func(cmd *cobra.Command, kinds []string) error {
			all, job, err := a.connectForJob(cmd.Context(), kinds[0])
			if err != nil {
				return err
			}
			defer all.close()
			if !json.Valid([]byte(args)) {
				return usageError{fmt.Errorf("--args %s is not JSON", args)}
			}
			// Which databases there are is in the configuration alone; all else about arguments, the database says.
			if name, err := databaseInArgs(args); err == nil && name != "" {
				if _, err := chooseDatabase(all.config, name, ""); err != nil {
					return err
				}
			}
			id, err := riverjobs.Enqueue(cmd.Context(), all.jobs().Pool, all.jobs(), job.Kind, json.RawMessage(args), nil)
			if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "22023" {
				return usageError{fmt.Errorf("--args %s: %s (%s)", args, pgErr.Message, pgErr.Hint)}
			}
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"kind": job.Kind, "job_id": id})
			}
			a.printf("%s: job %d\n", job.Kind, id)
			return nil
		}),
	})
	cmd.Flags().StringVar(&args, "args", "{}", "the job's arguments as `JSON`; what is left out has its default")
	return cmd
}

func (a *app) pauseCommand() *cobra.Command {
	var reason string
	cmd := a.reports(&cobra.Command{
		Use:   "pause KIND",
		Short: "Stop all copies from starting a kind of job",
		Long: `Pauses the kind's queue in River. It acts on all workers at once, survives their restarts, and shows in status
and River UI with who paused it and why. A pass that is running ends by itself, at the end of its time at the latest.

Nothing is lost meanwhile: deleted parents, users and groups wait in their tables, and jobs in the queue. Neither commits nor
ticks of the schedule start a pass. sexton job run KIND skips, too, unless --force is given. sexton resume KIND ends the pause,
and what has waited is due at once. A kind and the one that inserts its jobs are paused apart: adjourned_group_deletion
decides about groups, group_destroy destroys them. sexton job list names the kinds.`,
		Example: "  sexton pause loose_foreign_keys_cleanup --reason 'long backup'\n  sexton pause group_destroy --json\n" +
			"  sexton resume loose_foreign_keys_cleanup",
		Args:              oneKind,
		ValidArgsFunction: a.completeKind,
		RunE: a.run(func(cmd *cobra.Command, kinds []string) error {
			return a.setPaused(cmd.Context(), kinds[0], &pauseNote{Actor: actor(), Reason: reason})
		}),
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for readers of status")
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	return a.reports(&cobra.Command{
		Use:               "resume KIND",
		Short:             "Let workers start a kind of job again",
		Example:           "  sexton resume loose_foreign_keys_cleanup",
		Args:              oneKind,
		ValidArgsFunction: a.completeKind,
		RunE: a.run(func(cmd *cobra.Command, kinds []string) error {
			return a.setPaused(cmd.Context(), kinds[0], nil)
		}),
	})
}

// pauseNote is the note in a paused queue's metadata, under the key "sexton_pause".
type pauseNote struct {
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

const pauseKey = "sexton_pause"

// String says who paused it, since when and why.
func (n *pauseNote) String() string {
	text := "paused by " + n.Actor + " since " + n.At.UTC().Format(time.RFC3339)
	if n.Reason != "" {
		text += ": " + n.Reason
	}
	return text
}

// noteOf is the note of a queue's present pause. Other ways to pause it leave none, or something else in its place.
func noteOf(queue *rivertype.Queue) *pauseNote {
	var metadata struct {
		Note *pauseNote `json:"sexton_pause"`
	}
	if err := json.Unmarshal(queue.Metadata, &metadata); err != nil || queue.PausedAt == nil || metadata.Note == nil {
		return nil
	}
	if !metadata.Note.At.Equal(*queue.PausedAt) {
		return nil
	}
	return metadata.Note
}

// actor names the person at the command line.
func actor() string {
	if current, err := user.Current(); err == nil {
		return current.Username
	}
	return "unknown"
}

// setPaused pauses the kind's queue with a note, or resumes it without one.
func (a *app) setPaused(ctx context.Context, kind string, note *pauseNote) error {
	all, job, err := a.connectForJob(ctx, kind)
	if err != nil {
		return err
	}
	defer all.close()
	by := audittrail.Entry{Actor: actor()}
	if note != nil {
		by.Reason = note.Reason
	}
	standing, err := all.setPaused(ctx, job, note, by)
	if err != nil {
		return err
	}
	switch {
	case a.json:
		return a.printJSON(pauseReport{Kind: job.Kind, Paused: note != nil, pauseNote: cmp.Or(standing, note)})
	case note == nil:
		a.printf("%s: resumed\n", job.Kind)
	case standing != nil:
		a.printf("%s: is %s already; that note stays\n", job.Kind, standing)
	default:
		a.printf("%s: paused\n", job.Kind)
	}
	return nil
}

// setPaused pauses a job's queue with a note, or resumes it without one, and records in the same transaction by whom. Where somebody else
// has paused it the note stays theirs, and is returned: the person who resumes it has to know whom to ask.
func (c *connections) setPaused(ctx context.Context, job riverjobs.Job, note *pauseNote, by audittrail.Entry) (standing *pauseNote, err error) {
	client, err := c.riverClient()
	if err != nil {
		return nil, err
	}
	by.Target, by.Action = job.Kind, "pause"
	if note == nil {
		by.Action = "resume"
	}
	err = pgx.BeginFunc(ctx, c.jobs().Pool, func(tx pgx.Tx) error {
		if err := audittrail.Record(ctx, c.jobs(), tx, by); err != nil {
			return err
		}
		// River knows a queue once a worker has served it; a pause may come first.
		const create = `INSERT INTO "sexton".river_queue (name, metadata, created_at, updated_at)
			VALUES ($1, '{}', pg_catalog.now(), pg_catalog.now()) ON CONFLICT (name) DO NOTHING`
		if _, err := tx.Exec(ctx, c.jobs().Names.Render(create), job.Queue); err != nil {
			return err
		}
		if note == nil {
			// Work that came in meanwhile woke no worker.
			if _, err := tx.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", listen.Channel, job.Kind); err != nil {
				return err
			}
			return client.QueueResumeTx(ctx, tx, job.Queue, nil)
		}
		// It locks the queue's row, be it paused or not: two who pause at the same time come one after the other.
		if err := client.QueuePauseTx(ctx, tx, job.Queue, nil); err != nil {
			return err
		}
		state, err := client.QueueGetTx(ctx, tx, job.Queue)
		if err != nil {
			return err
		}
		if before := noteOf(state); before != nil && before.Actor != note.Actor {
			standing = before
			return nil
		}
		// The note carries the pause's own time: one left over from an earlier pause is known by that.
		note.At = state.PausedAt.UTC()
		metadata, err := json.Marshal(map[string]any{pauseKey: note})
		if err != nil {
			return err
		}
		_, err = client.QueueUpdateTx(ctx, tx, job.Queue, &river.QueueUpdateParams{Metadata: metadata})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("change queue %s: %w", job.Queue, err)
	}
	return standing, nil
}

// riverClient looks at River's jobs and queues, and changes them; it works on none.
func (c *connections) riverClient() (*river.Client[pgx.Tx], error) {
	client, err := river.NewClient(riverpgxv5.New(c.jobs().Pool), &river.Config{Schema: c.config.Jobs.Schema})
	if err != nil {
		return nil, fmt.Errorf("make river client: %w", err)
	}
	return client, nil
}

// pauseReport is the output of `sexton pause --json` and `sexton resume --json`.
type pauseReport struct {
	*pauseNote

	Kind   string `json:"kind"`
	Paused bool   `json:"paused"`
}

// connectForJob connects and finds an enabled kind.
func (a *app) connectForJob(ctx context.Context, kind string) (*connections, riverjobs.Job, error) {
	c, err := a.loadConfig()
	if err != nil {
		return nil, riverjobs.Job{}, err
	}
	job, err := findJob(c, kind)
	if err != nil {
		return nil, riverjobs.Job{}, err
	}
	all, err := open(ctx, c) // The queues are in the jobs database.
	if err != nil {
		return nil, riverjobs.Job{}, err
	}
	if err := all.checkSchemas(ctx); err != nil {
		all.close()
		return nil, riverjobs.Job{}, err
	}
	return all, job, nil
}

func oneKind(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s needs the KIND of one job, such as loose_foreign_keys_cleanup; sexton job list shows them", cmd.CommandPath())
	}
	return nil
}
