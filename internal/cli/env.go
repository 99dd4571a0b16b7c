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

// ExitCodes is the text of `sexton help exit-codes`; docs/troubleshooting.md has the
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
	// ExitFailure is that of what failed in no other way.
	ExitFailure     = 1
	exitUsage       = 2 // wrong usage, configuration or definitions
	exitSchema      = 3
	exitUnreachable = 4
	exitFindings    = 5
	exitLeft        = 6
	exitRights      = 7
)

// ErrFindings ends a check that found something; the findings themselves are its output.
var ErrFindings = errors.New("findings")

// ErrLeft ends an undo that left rows; its output names them.
var ErrLeft = errors.New("rows left")

// ErrRights ends a command that left statements for another role; its output has them.
var ErrRights = errors.New("rights missing")

// usageError is a command line that cannot be meant.
type usageError struct{ error }

// Usage marks err as a command line that cannot be meant.
func Usage(err error) error { return usageError{err} }

// Env holds the state that all commands share.
type Env struct {
	Environ        []string
	Stdout, Stderr io.Writer

	ConfigPath  string
	DatabaseURL string
	JSON        bool
	// WithoutURL lets the configuration pass without the URL of a database.
	WithoutURL bool
	// Began reports that a command has started.
	Began bool
}

// Command completes a command by its work. Unless it says otherwise, it takes flags only.
// Errors before its work are about usage.
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

// Reports is Command for commands that report, and have a flag for the form of that.
func (env *Env) Reports(cmd *cobra.Command, do func(ctx context.Context, args []string) error) *cobra.Command {
	cmd.Flags().BoolVar(&env.JSON, "json", false, "print one JSON document on standard output")
	return env.Command(cmd, do)
}

// On is Reports for commands that need the databases, as With opens them.
func (env *Env) On(kind string, cmd *cobra.Command, do func(context.Context,
	*installation.Connections) error,
) *cobra.Command {
	return env.Reports(cmd, func(ctx context.Context, _ []string) error {
		return env.With(ctx, kind, func(all *installation.Connections) error { return do(ctx, all) })
	})
}

// Exit prints what went wrong with cmd and picks the exit code.
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

// LoadConfig reads the configuration that flags and environment name.
func (env *Env) LoadConfig() (*config.Config, error) {
	return config.Load(config.Options{
		Path: env.ConfigPath, DatabaseURL: env.DatabaseURL, Environ: env.Environ,
		WithoutURL: env.WithoutURL,
	})
}

// Logger writes to standard error, as the configuration says.
func (env *Env) Logger(c *config.Config) *slog.Logger { return env.NewLogger(env.Stderr, c.Log) }

// Getenv returns a variable of the program's environment.
func (env *Env) Getenv(name string) string {
	for _, variable := range slices.Backward(env.Environ) {
		if value, found := strings.CutPrefix(variable, name+"="); found {
			return value
		}
	}
	return ""
}

// FailedRun ends a command whose pass failed. The exit code is that of a failure whatever
// the cause, so the cause is not wrapped.
func FailedRun(kind string, cause error) error {
	return errors.New("run of " + kind + " failed: " + cause.Error())
}
