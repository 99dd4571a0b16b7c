// Package app is the command line: it reads flags and configuration, connects, calls the packages that do
// the work, and prints what came of it. Nothing else knows all the parts.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/migrate"
	"sexton/internal/problem"
)

// Exit codes, as documented in the README.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2 // wrong usage, configuration or definitions
	exitSchema      = 3
	exitUnreachable = 4
	exitFindings    = 5
)

// errFindings ends a check that found something; the findings themselves are its output.
var errFindings = errors.New("findings")

// usageError is a command line that cannot be meant.
type usageError struct{ error }

// Main runs one command line and returns its exit code. SIGINT and SIGTERM ask the command to stop after
// what it is in the middle of; a second one ends the process.
func Main(args, environ []string, stdout, stderr io.Writer) int {
	ctx, stop := untilSignal()
	defer stop()
	saveMemory(environ)

	a := &app{environ: environ, stdout: stdout, stderr: stderr}
	root := a.command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.began {
		err = usageError{err}
	}
	return a.exit(cmd, err)
}

// gcPercent is how much may be allocated, in percent of what is in use, before the next collection. The buffers of a big upload
// are 15 MiB: with Go's own 100 the process would grow beyond the 64 MiB that it may take.
const gcPercent = 50

// saveMemory has garbage collected early, unless the environment says when.
func saveMemory(environ []string) {
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, "GOGC="); ok && value != "" {
			return
		}
	}
	debug.SetGCPercent(gcPercent)
}

// untilSignal returns a context that the first SIGINT or SIGTERM ends. The default is restored before anything can see
// that end: a second signal that came between the two would be swallowed, as with signal.NotifyContext and its own stop.
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

// app holds the state that all commands share.
type app struct {
	environ        []string
	stdout, stderr io.Writer

	configPath  string
	databaseURL string
	json        bool
	// began tells that a command has started: errors before are about usage.
	began bool
	// reloadFailed tells that the last reload found files that are wrong.
	reloadFailed atomic.Bool
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "sexton",
		Short: "Deletes what a deleted row leaves behind, in small steps, next to Postgres",
		Long: `Sexton pays off deletion work in small, bounded steps. The application deletes one row; a trigger
records the debt in the same transaction; Sexton deletes or changes the rows that referred to it.`,
		Example: `  sexton demo                                       # see it at work, on a private Postgres
  export DATABASE_URL=postgres://localhost/app
  sexton migrate up                                 # Sexton's own tables
  sexton triggers install                           # one trigger per parent in loose_foreign_keys.yml
  sexton job run loose_foreign_keys_cleanup         # one pass`,
		Version:       readVersions().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().StringVar(&a.configPath, "config", "", "configuration `FILE` (default: $SEXTON_CONFIG, then sexton.yaml if present)")
	root.PersistentFlags().StringVar(&a.databaseURL, "database-url", "", "`URL` of the (first) database; $DATABASE_URL serves where no file lists databases")
	root.AddCommand(a.demoCommand(), a.runCommand(), a.jobCommand(), a.pauseCommand(), a.resumeCommand(), a.leaseCommand(), a.migrateCommand(),
		a.triggersCommand(), a.tombstonesCommand(), a.userCommand(), a.placeholdersCommand(), a.groupCommand(), a.diffsCommand(),
		a.auditCommand(), a.statusCommand(), a.failuresCommand(), a.planCommand(), a.doctorCommand(),
		a.configCommand(), a.benchCommand(), a.versionCommand(), completionCommand())
	root.InitDefaultVersionFlag() // or the help would lack it until the root itself runs
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(helpCommand())
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(cmd, args[0])
	}
	return root
}

// run marks the line between wrong usage and a command that failed.
func (a *app) run(do func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.began = true
		return do(cmd, args)
	}
}

// reports gives a command the flag of commands that report.
func (a *app) reports(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.json, "json", false, "print one JSON document on standard output")
	return cmd
}

// exit prints what went wrong with cmd and picks the exit code.
func (a *app) exit(cmd *cobra.Command, err error) int {
	var (
		usage       usageError
		failed      *failedRunError
		problems    problem.List
		schema      *migrate.SchemaError
		placement   *migrate.PlacementError
		requirement *migrate.RequirementError
		unreachable *database.UnreachableError
	)
	code := exitFailure
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(a.stderr, "sexton: %v\nRun \"%s --help\" for what it takes.\n", err, cmd.CommandPath())
		return exitUsage
	case errors.As(err, &failed):
	case errors.As(err, &problems):
		for _, p := range problems {
			_, _ = fmt.Fprintln(a.stderr, "sexton:", p)
		}
		return exitUsage
	case errors.As(err, &schema), errors.As(err, &placement):
		code = exitSchema
	case errors.As(err, &requirement):
		code = exitUsage
	case errors.As(err, &unreachable):
		code = exitUnreachable
	case errors.Is(err, context.Canceled):
		err = errors.New("interrupted")
	}
	_, _ = fmt.Fprintln(a.stderr, "sexton:", err)
	return code
}

func (a *app) loadConfig() (*config.Config, error) {
	c, err := config.Load(config.Options{Path: a.configPath, DatabaseURL: a.databaseURL, Environ: a.environ})
	if err == nil {
		for _, warning := range c.Warnings() {
			a.logger(c).Warn("configuration", "warning", warning.String())
		}
	}
	return c, err
}

func (a *app) logger(c *config.Config) *slog.Logger { return newLogger(a.stderr, c.Log) }

// getenv returns a variable of the program's environment.
func (a *app) getenv(name string) string {
	for _, variable := range slices.Backward(a.environ) {
		if value, found := strings.CutPrefix(variable, name+"="); found {
			return value
		}
	}
	return ""
}
