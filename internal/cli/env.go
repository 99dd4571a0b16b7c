package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/problem"
	"sexton/triggers"
)

// ExitCodes is the text of `sexton help exit-codes`. docs/troubleshooting.md has the
// same.
const ExitCodes = `The exit codes of sexton:

  0  success, also if a run deferred rows or was skipped
  1  failure
  2  wrong usage, configuration or definitions; all errors are listed
  3  the schema in the database does not match this binary
  4  a database cannot be reached
  5  a check found something: audit, diffs verify, doctor, grants --check, triggers status
  6  undo left rows that could not be restored
  7  privileges are missing; the SQL that grants them is printed
`

const (
	exitOK = 0
	// ExitFailure is the exit code of errors without a code of their own.
	ExitFailure     = 1
	exitUsage       = 2 // wrong usage, configuration or definitions
	exitSchema      = 3
	exitUnreachable = 4
	exitFindings    = 5
	exitLeft        = 6
	exitRights      = 7
)

// ErrFindings is returned by a check that found something. Its output has the findings.
var ErrFindings = errors.New("findings")

// ErrLeft is returned by an undo that left rows. Its output names them.
var ErrLeft = errors.New("rows left")

// ErrRights is returned by a command that left statements for another role. Its output
// has them.
var ErrRights = errors.New("privileges missing")

// usageError is an invalid command line.
type usageError struct{ error }

// Usage marks err as an invalid command line.
func Usage(err error) error { return usageError{err} }

// Env holds the state that all commands share.
type Env struct {
	Environ        []string
	Stdout, Stderr io.Writer

	ConfigPath  string
	DatabaseURL string
	JSON        bool
	// WithoutURL accepts a configuration without the URL of a database.
	WithoutURL bool
	// Began reports that the work of a command has started.
	Began bool
}

// Command sets the work of a command. Without Args, the command takes only flags. Errors
// before its work are usage errors.
func (env *Env) Command(cmd *cobra.Command, do func(ctx context.Context, args []string) error) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		env.Began = true
		return do(cmd.Context(), args)
	}
	return cmd
}

// Reports returns a command like Command, and adds the flag --json.
func (env *Env) Reports(cmd *cobra.Command, do func(ctx context.Context, args []string) error) *cobra.Command {
	cmd.Flags().BoolVar(&env.JSON, "json", false, "print one JSON document on standard output")
	return env.Command(cmd, do)
}

// On returns a command with --json, like Reports, that opens the databases and passes
// them to do.
func (env *Env) On(kind string, cmd *cobra.Command, do func(context.Context,
	*installation.Connections) error,
) *cobra.Command {
	return env.Reports(cmd, func(ctx context.Context, _ []string) error {
		return env.With(ctx, kind, func(all *installation.Connections) error { return do(ctx, all) })
	})
}

// Exit prints the error of cmd and returns the exit code.
func (env *Env) Exit(cmd *cobra.Command, err error) int {
	problems, listed := errors.AsType[problem.List](err)
	code := ExitFailure
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, ErrFindings):
		return exitFindings
	case errors.Is(err, ErrLeft):
		return exitLeft
	case errors.Is(err, ErrRights):
		return exitRights
	case is[usageError](err):
		_, _ = fmt.Fprintf(env.Stderr, "sexton: %v\nRun \"%s --help\" for usage.\n", err, cmd.CommandPath())
		return exitUsage
	case listed:
		for _, p := range problems {
			_, _ = fmt.Fprintln(env.Stderr, "sexton:", p)
		}
		return exitUsage
	case is[*migrate.SchemaError](err):
		code = exitSchema
	case is[*migrate.PrivilegeError](err):
		code = exitRights
	case database.Lost(err):
		code = exitUnreachable
	case batch.Judge(err).Verdict == batch.LockTimeout && !is[*triggers.LockError](err):
		err = fmt.Errorf("%w: another session has locked a table or row; "+
			"wait for its transaction or end it, then run the command again (`sexton doctor` may name it)", err)
	case errors.Is(err, context.Canceled):
		err = errors.New("interrupted")
	}
	_, _ = fmt.Fprintln(env.Stderr, "sexton:", err)
	return code
}

func is[E error](err error) bool {
	_, found := errors.AsType[E](err)
	return found
}

// LoadConfig reads the configuration from the flags and the environment.
func (env *Env) LoadConfig() (*config.Config, error) {
	return config.Load(config.Options{
		Path: env.ConfigPath, DatabaseURL: env.DatabaseURL, Environ: env.Environ,
		WithoutURL: env.WithoutURL,
	})
}

// Logger returns a logger for standard error with the configured format and level.
func (env *Env) Logger(c *config.Config) *slog.Logger { return env.NewLogger(env.Stderr, c.Log) }

// Getenv returns a variable of the environment of the program.
func (env *Env) Getenv(name string) string {
	for _, variable := range slices.Backward(env.Environ) {
		if value, found := strings.CutPrefix(variable, name+"="); found {
			return value
		}
	}
	return ""
}

// FailedRun returns the error of a failed run. It does not wrap the cause, so that the
// exit code is always 1.
func FailedRun(kind string, cause error) error {
	return errors.New("run of " + kind + " failed: " + cause.Error())
}
