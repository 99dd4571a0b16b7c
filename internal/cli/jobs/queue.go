package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/installation"
	riverjobs "sexton/river_jobs"
)

func jobEnqueueCommand(env *cli.Env) *cobra.Command {
	var args string
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "enqueue KIND",
		Short: "Insert a job for a worker",
		Long: `Inserts a job into River and prints its ID. If a job with the same arguments is pending, prints the
ID of that job.`,
		Example: `  sexton job enqueue loose_foreign_keys_cleanup
  sexton job enqueue loose_foreign_keys_cleanup --args '{"database": "main"}'`,
		Args:              oneKind,
		ValidArgsFunction: completeKind(env),
	}, func(ctx context.Context, kinds []string) error {
		return env.With(ctx, kinds[0], func(all *installation.Connections) error {
			return enqueue(ctx, env, all, kinds[0], args)
		})
	})
	cmd.Flags().StringVar(&args, "args", "{}", "job arguments as `JSON`; missing arguments have their default value")
	return cmd
}

func enqueue(ctx context.Context, env *cli.Env, all *installation.Connections, kind, args string) error {
	if !json.Valid([]byte(args)) {
		return cli.Usage(fmt.Errorf("--args %s is not JSON", args))
	}
	// Check the name of the database against the current configuration. The SQL function
	// checks it only against the configuration of the last `migrate up`.
	if _, err := cli.ChooseDatabase(all.Config, databaseIn(args)); err != nil {
		return err
	}
	id, err := riverjobs.Enqueue(ctx, all.Jobs().Pool, all.Jobs(), kind, json.RawMessage(args), nil)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "22023" {
		return cli.Usage(fmt.Errorf("--args %s: %s (%s)", args, pgErr.Message, pgErr.Hint))
	}
	if err != nil {
		return err
	}
	document := map[string]any{"kind": kind, "job_id": id}
	pauses, err := installation.Pauses(ctx, all)
	if paused := pauses[kind]; paused != "" {
		document["waiting_for"] = paused
		return errors.Join(err, env.PrintText(document, "%s: job %d waits because the kind is %s (sexton resume %s)\n", kind,
			id, paused, kind))
	}
	return errors.Join(err, env.PrintText(document, "%s: job %d\n", kind, id))
}

func pauseCommand(env *cli.Env) *cobra.Command {
	var reason string
	var every bool
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "pause [KIND]",
		Short: "Pause a kind of job, or all kinds, on every worker",
		Long: `Pauses the River queue of a kind. The pause applies to all workers immediately, survives restarts,
and is shown in "sexton status" and River UI with its actor and reason. A run in progress
continues until it ends or reaches its time limit.

Pending work is kept in its tables and queues. While the kind is paused, neither commits nor
schedules start a run, and "sexton job run KIND" is skipped without --force. "sexton resume KIND"
ends the pause, and pending work is due immediately. A kind and the kind that inserts its jobs are
paused separately: adjourned_group_deletion selects the groups, and group_destroy destroys them.`,
		Example: "  sexton pause loose_foreign_keys_cleanup --reason 'long backup'\n  sexton pause --all --reason incident\n" +
			"  sexton resume loose_foreign_keys_cleanup",
		Args:              kindOrAll(&every),
		ValidArgsFunction: completeKind(env),
	}, func(ctx context.Context, kinds []string) error {
		return setPaused(ctx, env, kinds, true, reason)
	})
	cmd.Flags().StringVar(&reason, "reason", "", "reason as `TEXT` for readers of the status")
	cmd.Flags().BoolVar(&every, "all", false, "all enabled kinds")
	return cmd
}

func resumeCommand(env *cli.Env) *cobra.Command {
	var every bool
	cmd := env.JSONCommand(&cobra.Command{
		Use:               "resume [KIND]",
		Short:             "Resume a kind of job, or all kinds",
		Example:           "  sexton resume loose_foreign_keys_cleanup\n  sexton resume --all",
		Args:              kindOrAll(&every),
		ValidArgsFunction: completeKind(env),
	}, func(ctx context.Context, kinds []string) error {
		return setPaused(ctx, env, kinds, false, "")
	})
	cmd.Flags().BoolVar(&every, "all", false, "all enabled kinds, including kinds that other users paused")
	return cmd
}

// setPaused pauses or resumes the queue of a kind, or of all kinds if kinds is empty.
func setPaused(ctx context.Context, env *cli.Env, kinds []string, pause bool, reason string) error {
	by := database.Change{Actor: installation.Actor(), Reason: reason}
	return env.With(ctx, strings.Join(kinds, ""), func(all *installation.Connections) error {
		pauses, err := installation.Pauses(ctx, all)
		if err != nil {
			return err
		}
		one := len(kinds) == 1
		if !one {
			kinds = all.Kinds()
		}
		// If a kind cannot be paused, the other kinds are still paused.
		var failed error
		reports, text := []pauseReport{}, ""
		for _, kind := range kinds {
			note, err := all.SetPaused(ctx, kind, pause, by)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s is unchanged: %w", kind, err))
				continue
			}
			result := "paused"
			switch {
			case !pause && pauses[kind] == "":
				result = "was not paused; its workers were woken"
			case !pause:
				result = "resumed"
			case note.Actor != by.Actor:
				result = fmt.Sprintf("is already %s; the earlier note is kept", note)
			}
			reports = append(reports, pauseReport{Kind: kind, Paused: pause, PauseNote: note})
			text += fmt.Sprintf("%s: %s\n", kind, result)
		}
		switch {
		case !one:
			return errors.Join(failed, env.PrintText(reports, "%s", text))
		case failed != nil:
			return failed
		}
		return env.PrintText(reports[0], "%s", text)
	})
}

// pauseReport is the output of `sexton pause --json` and `sexton resume --json`. With
// --all, the output is a list of reports.
type pauseReport struct {
	*installation.PauseNote

	Kind   string `json:"kind"`
	Paused bool   `json:"paused"`
}

func kindOrAll(every *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 || *every != (len(args) == 0) || slices.Contains(args, "") {
			const needs = "either the KIND of one job, such as loose_foreign_keys_cleanup, or --all; sexton job list shows the kinds"
			return fmt.Errorf("%s needs %s", cmd.CommandPath(), needs)
		}
		return nil
	}
}

func oneKind(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return fmt.Errorf("%s needs the KIND of one job, such as loose_foreign_keys_cleanup; sexton job list shows them", cmd.CommandPath())
	}
	return nil
}
