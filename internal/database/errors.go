package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// These constants are the configuration keys in errors.
const (
	keyURL    = "url"
	keyListen = "listen_url"
)

// SettingsError reports a malformed connection string. Its text contains no part of the
// string, because the parser cannot distinguish the password from other parts.
type SettingsError struct {
	Database string
	// Key is url or listen_url.
	Key string
}

// Error names the database and the key.
func (e *SettingsError) Error() string {
	return fmt.Sprintf("the %s of database %s cannot be parsed", e.Key, e.Database)
}

// UnreachableError reports that a database cannot be reached or refuses sessions.
type UnreachableError struct {
	Database string
	// Key is the configuration key of the address, url or listen_url.
	Key string
	// Reason and Fix contain no password.
	Reason string
	Fix    string
	Err    error
}

// Error names the database, the reason and the fix.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("database %s cannot be reached: %s (%s)", e.Database, e.Reason, e.Fix)
}

// Unwrap returns the driver's error.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Lost reports whether an error means that a database cannot be reached, or that the
// connection was lost during a statement.
func Lost(err error) bool {
	var unreachable *UnreachableError
	var pgErr *pgconn.PgError
	var network net.Error
	// An error of a file is not a lost connection, although it wraps a syscall.Errno,
	// which implements net.Error.
	var file *fs.PathError
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.As(err, &file):
		return false
	case errors.As(err, &unreachable), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed),
		// An earlier statement or the background reader detected the loss.
		errors.Is(err, pgconn.ErrConnClosed):
		return true
	case errors.As(err, &pgErr):
		// These codes are connection exceptions, and the shutdown, crash or start of the
		// server. pgbouncer and the server also send 08P01 when they end a connection. An
		// error 08P01 with severity ERROR would recur at each attempt.
		violated := pgErr.Code == "08P01" && pgErr.SeverityUnlocalized == "ERROR"
		return strings.HasPrefix(pgErr.Code, "08") && !violated || strings.HasPrefix(pgErr.Code, "57P")
	}
	return errors.As(err, &network)
}

// Unreachable returns an *UnreachableError for an error of an open database.
func (d Database) Unreachable(err error) error {
	return unreachable(d.Name, keyURL, d.Pool.Config().ConnConfig.Config, err)
}

func unreachable(name, key string, settings pgconn.Config, err error) error {
	e := &UnreachableError{Database: name, Key: key, Err: err}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		e.Reason, e.Fix = refused(settings, pgErr)
		if pgErr.Code == "08P01" && strings.Contains(pgErr.Message, pathKey) {
			e.Fix = throughPooler(name, key)
		}
	} else {
		e.Reason, e.Fix = silent(settings, err)
	}
	return e
}

// refused returns the reason and the fix for an error that the server returned.
func refused(settings pgconn.Config, err *pgconn.PgError) (reason, fix string) {
	switch err.Code {
	case "3D000":
		return err.Message, "create it, or correct the database's name"
	case "28P01":
		return err.Message, "correct user and password"
	case "28000":
		return err.Message, "correct the user, let it log in, or add it to the server's pg_hba.conf"
	case "42501":
		return err.Message, fmt.Sprintf("GRANT CONNECT on the database to user %s", settings.User)
	case "53300":
		return err.Message, "end other sessions, or raise max_connections or the limit of the database or user"
	case "08P01":
		if parameter, ok := strings.CutPrefix(err.Message, "unsupported startup parameter: "); ok {
			return fmt.Sprintf("%s (SQLSTATE %s)", err.Message, err.Code),
				"add " + parameter +
					" to ignore_startup_parameters of pgbouncer, or remove it from the connection string"
		}
		return err.Message, "correct the connection string, or the settings of the pooler"
	case "57P03":
		return err.Message, "wait until the server has started or recovered"
	default:
		return fmt.Sprintf("%s (SQLSTATE %s)", err.Message, err.Code),
			"correct the connection string, or contact the operators of the server"
	}
}

// throughPooler returns the fix if a pooler refuses the start-up parameter search_path.
func throughPooler(name, key string) string {
	if key == keyListen {
		return "it connects through a pooler; set it to a direct connection"
	}
	return fmt.Sprintf("it connects through a pooler; set databases.%s.listen_url to a direct connection, or add default_query_exec_mode=exec to the url", name)
}

// silent returns the reason and the fix if no Postgres server answered.
func silent(settings pgconn.Config, err error) (reason, fix string) {
	at := fmt.Sprintf("%s port %d", settings.Host, settings.Port)
	var unknown *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprintf("host %s cannot be found", unknown.Name), "correct the host"
	case pgconn.Timeout(err) || errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("no answer from %s within %s", at, settings.ConnectTimeout),
			"correct host and port, or check firewalls and proxies"
	case errors.As(err, &errno):
		return fmt.Sprintf("no server answers at %s: %v", at, errno), "start it, or correct host and port"
	}
	// If no case above matches, the server is not Postgres, or refuses TLS. The driver's
	// error has one line per attempt with addresses and steps, but no secret.
	lines := strings.Split(err.Error(), "\n")
	return fmt.Sprintf("the connection to %s failed: %s", at, strings.TrimSpace(lines[len(lines)-1])),
		"correct host, port and sslmode"
}
