package root

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/cli/bench"
	"sexton/internal/cli/check"
	"sexton/internal/cli/demo"
	"sexton/internal/cli/jobs"
	"sexton/internal/cli/records"
	"sexton/internal/cli/schema"
	"sexton/internal/config"
	"sexton/internal/database"
)

// Main runs one command line and returns its exit code. The first SIGINT or SIGTERM stops
// the command after its current batch. A second signal ends the process.
func Main(args, environ []string, stdout, stderr io.Writer) int {
	ctx, stop := untilSignal()
	defer stop()

	a := &cli.Env{Environ: environ, Stdout: stdout, Stderr: stderr}
	flush := database.StartTraces(ctx, a.Getenv, func(err error) {
		a.NewLogger(stderr, config.Log{Format: config.FormatAuto}).Warn("traces_not_sent", "error", err)
	})
	defer flush()
	root := newCommand(a)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.Started {
		err = cli.Usage(err)
	}
	return a.Exit(cmd, err)
}

// untilSignal returns a context that the first SIGINT or SIGTERM cancels, and a function
// that stops the handling of signals. It restores the default handlers before it cancels
// the context. signal.NotifyContext cancels first, and loses a second signal that arrives
// in between.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			signal.Stop(signals)
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}

func newCommand(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "sexton",
		Short: "Delete the rows that depend on deleted rows, in small batches",
		Long: `Sexton deletes or changes the rows that reference a deleted row in Postgres. The application
deletes one row, and a trigger records it in the same transaction. A worker then cleans up the
referencing rows in small batches.`,
		Example: `  sexton demo                                  # watch Sexton on a private Postgres
  export DATABASE_URL=postgres://localhost/app
  sexton migrate up                            # create Sexton's tables
  sexton triggers install                      # one trigger per parent in loose_foreign_keys.yml
  sexton job run loose_foreign_keys_cleanup    # clean up once`,
		Version:       cli.ReadVersions().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().StringVar(&env.ConfigPath, "config", "",
		"configuration `FILE` (default: $SEXTON_CONFIG, then sexton.yaml)")
	root.PersistentFlags().StringVar(&env.DatabaseURL, "database-url", "",
		"`URL` of the first database (default: $DATABASE_URL, if no file names one)")
	for _, part := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"start", "Setup:", append(schema.Commands(env), demo.Command(env))},
		{"operate", "Operation:", append(jobs.Commands(env), jobs.WorkerCommand(env))},
		{"look", "Inspection:", check.Commands(env)},
		{"data", "Data:", records.Commands(env)},
		{"tools", "Tools:", []*cobra.Command{bench.Command(env), versionCommand(env)}},
	} {
		root.AddGroup(&cobra.Group{ID: part.id, Title: part.title})
		for _, cmd := range part.commands {
			cmd.GroupID = part.id
			root.AddCommand(cmd)
		}
	}
	// A command that needs a subcommand has no usage line of its own. Flags wrap at 100
	// columns.
	root.SetUsageTemplate(strings.NewReplacer("{{if .Runnable}}", "{{if and .Runnable (not .DisableFlagsInUseLine)}}",
		".FlagUsages", ".FlagUsagesWrapped 100").Replace(root.UsageTemplate()))
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		_, _ = io.WriteString(out, strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short))+"\n\n"+cmd.UsageString())
	})
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "The exit codes of all commands", Long: cli.ExitCodes})
	root.SetHelpCommandGroupID("tools")
	root.SetCompletionCommandGroupID("tools")
	return root
}
