package jobrun

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// loggedError wraps an error that has been logged.
type loggedError struct{ error }

func (e loggedError) Unwrap() error { return e.error }

// Logged marks an error as logged, so that callers do not log it again.
func Logged(err error) error {
	if err == nil {
		return nil
	}
	return loggedError{err}
}

// IsLogged reports whether an error has been logged. A joined error counts as logged if
// all its parts have been logged.
func IsLogged(err error) bool {
	switch err := err.(type) { //nolint:errorlint // the function walks the wrapped errors
	case nil:
		return false
	case loggedError:
		return true
	case interface{ Unwrap() error }:
		return IsLogged(err.Unwrap())
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(err.Unwrap(), func(joined error) bool { return !IsLogged(joined) })
	}
	return false
}

// logFailure logs the error of a failed run and returns it marked as logged. If the error
// has already been logged, it logs only the end of the run.
func logFailure(ctx context.Context, log *slog.Logger, err error) error {
	if IsLogged(err) {
		log.InfoContext(ctx, "run_ended", "outcome", Failed)
		return err
	}
	attributes := []any{"error", err}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Where is the server's stack of PL/pgSQL functions and statements.
		attributes = append(attributes, "sqlstate", pgErr.Code, "stack", pgErr.Where)
	}
	log.ErrorContext(ctx, "run_failed", attributes...)
	return Logged(err)
}
