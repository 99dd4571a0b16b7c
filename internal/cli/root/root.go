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

// Main runs one command line and returns its exit code. SIGINT and SIGTERM ask the
// command to stop after what it is in the middle of; a second one ends the process.
func Main(args, environ []string, stdout, stderr io.Writer) int {
	ctx, stop := untilSignal()
	defer stop()

	a := &cli.Env{Environ: environ, Stdout: stdout, Stderr: stderr}
	flush := database.StartTraces(ctx, a.Getenv, func(err error) {
		a.NewLogger(stderr, config.Log{Format: config.FormatAuto}).Warn("traces cannot be sent", "error", err)
	})
	defer flush()
	root := newCommand(a)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.Began {
		if cmd == root && len(args) > 0 {
			err = cmp.Or(cli.Removed(root, args[0]), err)
		}
		err = cli.Usage(err)
	}
	return a.Exit(cmd, err)
}

// untilSignal returns a context that the first SIGINT or SIGTERM ends. The default is
// restored before anything can see that end: a second signal that came between the two
// would be swallowed, as with signal.NotifyContext and its own stop.
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
		Short: "Deletes what a deleted row leaves behind, in small steps, next to Postgres",
		Long: `Sexton deletes what a deleted row leaves behind in Postgres. The application deletes one row, and a trigger records
that in the same transaction. Sexton then deletes or changes the rows that referred to it, in small steps.`,
		Example: `  sexton demo                                       # see it at work, on a private Postgres
  export DATABASE_URL=postgres://localhost/app
  sexton migrate up                                 # Sexton's own tables
  sexton triggers install                           # one trigger per parent in loose_foreign_keys.yml
  sexton job run loose_foreign_keys_cleanup         # one pass`,
		Version:       cli.ReadVersions().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().StringVar(&env.ConfigPath, "config", "",
		"configuration `FILE` (default: $SEXTON_CONFIG, then sexton.yaml if present)")
	root.PersistentFlags().StringVar(&env.DatabaseURL, "database-url", "",
		"`URL` of the (first) database; $DATABASE_URL serves where no file lists databases")
	for _, part := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"start", "To start:", append(schema.Commands(env), demo.Command(env))},
		{"operate", "To operate:", append(jobs.Commands(env), jobs.WorkerCommand(env))},
		{"look", "To look after it:", check.Commands(env)},
		{"data", "Data:", records.Commands(env)},
		{"tools", "Tools:", []*cobra.Command{bench.Command(env), versionCommand(env)}},
	} {
		root.AddGroup(&cobra.Group{ID: part.id, Title: part.title})
		for _, cmd := range part.commands {
			cmd.GroupID = part.id
			root.AddCommand(cmd)
		}
	}
	// A group of commands does nothing by itself.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}",
		"{{if and .Runnable (not .DisableFlagsInUseLine)}}", 1))
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		_, _ = io.WriteString(out, strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short))+"\n\n"+cmd.UsageString())
	})
	root.AddCommand(exitCodes())
	root.SetHelpCommandGroupID("tools")
	root.SetCompletionCommandGroupID("tools")
	root.InitDefaultVersionFlag() // or the help would lack it until the root itself runs
	root.SetFlagErrorFunc(flagError)
	return root
}
