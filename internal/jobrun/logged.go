package jobrun

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// loggedError is an error that has its line in the log.
type loggedError struct{ error }

func (e loggedError) Unwrap() error { return e.error }

// Logged marks an error that has its line in the log, so that the layers above write no
// second one.
func Logged(err error) error {
	if err == nil {
		return nil
	}
	return loggedError{err}
}

// IsLogged reports whether an error has its line in the log: of joined ones, each.
func IsLogged(err error) bool {
	switch err := err.(type) { //nolint:errorlint // it goes through what the error wraps
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

// logFailure writes how a run failed, unless there is a line about it, and marks the
// error.
func logFailure(ctx context.Context, log *slog.Logger, err error) error {
	if IsLogged(err) {
		log.InfoContext(ctx, "run_ended", "outcome", Failed)
		return err
	}
	attributes := []any{"error", err}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		// The server's own stack: functions and statements on the way to the error.
		attributes = append(attributes, "sqlstate", pgErr.Code, "stack", pgErr.Where)
	}
	log.ErrorContext(ctx, "run_failed", attributes...)
	return Logged(err)
}
