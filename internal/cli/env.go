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

// ExitCodes is the text of `sexton help exit-codes`. docs/troubleshooting.md lists the
// same codes.
const ExitCodes = `The exit codes of sexton:

  0  success, also if a run deferred rows or was skipped
  1  failure
  2  wrong usage, configuration or definitions; all errors are listed
  3  the schema in the database does not match this binary
  4  a database cannot be reached
  5  a check found problems: audit, diffs verify, doctor, grants --check, triggers status
  6  undo left rows that could not be restored
  7  privileges are missing; the SQL that grants them is printed
`

const (
	exitOK = 0
	// ExitFailure is the exit code of all errors that have no other exit code.
	ExitFailure     = 1
	exitUsage       = 2
	exitSchema      = 3
	exitUnreachable = 4
	exitFindings    = 5
	exitRowsLeft    = 6
	exitPrivileges  = 7
)

// ErrFindings is the error of a check with findings. The command has printed the
// findings.
var ErrFindings = errors.New("findings")

// ErrRowsLeft is the error of an undo that could not restore all rows. The command has
// printed the rows.
var ErrRowsLeft = errors.New("rows left")

// ErrPrivileges is the error of a command that lacks privileges. The command has printed
// the statements that another role must run.
var ErrPrivileges = errors.New("privileges missing")

// usageError marks an error whose exit code is 2.
type usageError struct{ error }

// Usage wraps err so that the exit code is 2.
func Usage(err error) error { return usageError{err} }

// Env holds the flags, streams and environment that all commands share.
type Env struct {
	Environ        []string
	Stdout, Stderr io.Writer

	ConfigPath  string
	DatabaseURL string
	JSON        bool
	// WithoutURL lets LoadConfig accept a configuration without the URL of a database.
	WithoutURL bool
	// Started reports whether the function of a command has been called. Earlier errors
	// are usage errors.
	Started bool
}

// Command makes cmd call do. If cmd has no Args, the command accepts no arguments.
func (env *Env) Command(cmd *cobra.Command, do func(ctx context.Context, args []string) error) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		env.Started = true
		return do(cmd.Context(), args)
	}
	return cmd
}

// JSONCommand makes cmd call do, and adds the flag --json.
func (env *Env) JSONCommand(cmd *cobra.Command, do func(ctx context.Context, args []string) error) *cobra.Command {
	cmd.Flags().BoolVar(&env.JSON, "json", false, "print one JSON document on standard output")
	return env.Command(cmd, do)
}

// DatabaseCommand makes cmd call do with connections to the databases, as With does. It
// adds the flag --json.
func (env *Env) DatabaseCommand(kind string, cmd *cobra.Command, do func(context.Context,
	*installation.Connections) error,
) *cobra.Command {
	return env.JSONCommand(cmd, func(ctx context.Context, _ []string) error {
		return env.With(ctx, kind, func(all *installation.Connections) error { return do(ctx, all) })
	})
}

// Exit prints an error that cmd returned, and returns the exit code.
func (env *Env) Exit(cmd *cobra.Command, err error) int {
	problems, listed := errors.AsType[problem.List](err)
	code := ExitFailure
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, ErrFindings):
		return exitFindings
	case errors.Is(err, ErrRowsLeft):
		return exitRowsLeft
	case errors.Is(err, ErrPrivileges):
		return exitPrivileges
	case isError[usageError](err):
		_, _ = fmt.Fprintf(env.Stderr, "sexton: %v\nRun \"%s --help\" for usage.\n", err, cmd.CommandPath())
		return exitUsage
	case listed:
		for _, p := range problems {
			_, _ = fmt.Fprintln(env.Stderr, "sexton:", p)
		}
		return exitUsage
	case isError[*migrate.SchemaError](err):
		code = exitSchema
	case isError[*migrate.PrivilegeError](err):
		code = exitPrivileges
	case database.Lost(err):
		code = exitUnreachable
	case batch.Judge(err).Verdict == batch.LockTimeout && !isError[*triggers.LockError](err):
		err = fmt.Errorf("%w: another session has locked a table or row; "+
			"wait for its transaction or end it, then run the command again (`sexton doctor` may name it)", err)
	case errors.Is(err, context.Canceled):
		err = errors.New("interrupted")
	}
	_, _ = fmt.Fprintln(env.Stderr, "sexton:", err)
	return code
}

func isError[E error](err error) bool {
	_, found := errors.AsType[E](err)
	return found
}

// LoadConfig loads the configuration with the values of the common flags and the
// environment.
func (env *Env) LoadConfig() (*config.Config, error) {
	return config.Load(config.Options{
		Path: env.ConfigPath, DatabaseURL: env.DatabaseURL, Environ: env.Environ,
		WithoutURL: env.WithoutURL,
	})
}

// Logger returns a logger that writes to standard error with the configured format and
// level.
func (env *Env) Logger(c *config.Config) *slog.Logger { return env.NewLogger(env.Stderr, c.Log) }

// Getenv returns the value of an environment variable, or "".
func (env *Env) Getenv(name string) string {
	for _, variable := range slices.Backward(env.Environ) {
		if value, found := strings.CutPrefix(variable, name+"="); found {
			return value
		}
	}
	return ""
}

// FailedRun returns the error of a failed run. It does not wrap the cause, because the
// exit code must be 1 for all causes.
func FailedRun(kind string, cause error) error {
	return errors.New("run of " + kind + " failed: " + cause.Error())
}
