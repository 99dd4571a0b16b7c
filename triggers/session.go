package triggers

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed functions parts queries tables
var sqlFiles embed.FS

// sqlText returns the text of an embedded file.
func sqlText(path string) string {
	text, _ := sqlFiles.ReadFile(path + ".sql")
	return string(text)
}

const (
	// installLock is the advisory lock of installers of a database: "sextrig" in ASCII.
	installLock int64 = 0x73657874726967

	lockNotAvailable = "55P03"
	deadlockDetected = "40P01"
)

// sessionSettings holds the statements that make a transaction independent of the
// settings of the role and the database.
const sessionSettings = `
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL standard_conforming_strings = on;
SET LOCAL quote_all_identifiers = off;
SET LOCAL check_function_bodies = on;
SET LOCAL client_min_messages = warning;
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = 0;
`

// inTx runs do in a transaction with sessionSettings and commits it.
func inTx(ctx context.Context, conn *pgx.Conn, mode pgx.TxAccessMode, do func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: mode}
	return pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sessionSettings); err != nil {
			return fmt.Errorf("set transaction settings: %w", err)
		}
		return do(tx)
	})
}

// locked runs do while it holds the advisory lock of installers. The lock belongs to the
// session, because every table has its own transaction.
func (c Config) locked(ctx context.Context, conn *pgx.Conn, do func() error) error {
	report := func(holders string) { c.waits("another trigger installation", holders) }
	if err := AwaitLock(ctx, conn, installLock, report); err != nil {
		return fmt.Errorf("wait for other trigger installations: %w", err)
	}
	defer unlock(ctx, conn)
	return do()
}

// lockPause is the time between two attempts to take an advisory lock. AwaitLock does not
// wait in the server's lock queue, because a waiting session could not query the holders.
const lockPause = 200 * time.Millisecond

// AwaitLock waits until it gets an advisory lock for the session. From the second failed
// attempt on, it passes the lock holders to report whenever they change.
func AwaitLock(ctx context.Context, conn *pgx.Conn, key int64, report func(holders string)) error {
	reported := ""
	for try := 0; ; try++ {
		holders, err := tryLock(ctx, conn, key)
		if holders == "" || err != nil {
			return err
		}
		if try > 0 && report != nil && holders != reported {
			report(holders)
			reported = holders
		}
		if err := wait(ctx, lockPause); err != nil {
			return fmt.Errorf("the lock is held by %s: %w", holders, err)
		}
	}
}

// tryLock takes the lock and returns "", or returns its holders.
func tryLock(ctx context.Context, conn *pgx.Conn, key int64) (holders string, err error) {
	err = inTx(ctx, conn, pgx.ReadWrite, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sqlText("queries/lock"), key).Scan(&holders)
	})
	return holders, err
}

// unlock releases the lock even if ctx has ended. If the connection is closed, the server
// has released the lock.
func unlock(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if conn.IsClosed() {
		return
	}
	if _, err := conn.Exec(ctx, "SELECT pg_catalog.pg_advisory_unlock($1)", installLock); err != nil {
		// A session that may still hold the lock must not return to a pool.
		_ = conn.Close(ctx)
	}
}

// execAll runs the statements in order. what describes them in the error.
func execAll(ctx context.Context, tx pgx.Tx, what string, statements []string) error {
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// relation identifies a table with triggers.
type relation struct {
	OID     uint32
	Schema  string
	Table   string
	Display string
}

// onTable runs do in one transaction with the lock timeout, and retries while other
// sessions have locks on the table. The waits are short and separated by pauses, because
// the application waits while CREATE TRIGGER waits.
func (c Config) onTable(ctx context.Context, conn *pgx.Conn, r relation, exclusive bool, do func(pgx.Tx) error) error {
	var err error
	var holders string
	for attempt := range c.LockAttempts {
		if attempt > 0 {
			if waitErr := wait(ctx, time.Duration(attempt)*200*time.Millisecond); waitErr != nil {
				return fmt.Errorf("lock table %s: %w", r.Display, waitErr)
			}
		}
		err = inTx(ctx, conn, pgx.ReadWrite, func(tx pgx.Tx) error {
			timeout := fmt.Sprintf("SET LOCAL lock_timeout = %d", max(1, c.LockTimeout.Milliseconds()))
			if _, err := tx.Exec(ctx, timeout); err != nil {
				return err
			}
			return do(tx)
		})
		if state := sqlState(err); state != lockNotAvailable && state != deadlockDetected {
			return err
		}
		holders = cmp.Or(blockers(ctx, conn, r, exclusive), holders)
		c.waits("table "+r.Display, cmp.Or(holders, unknownHolders))
	}
	return &LockError{
		Table: r.Display, Attempts: c.LockAttempts, Timeout: c.LockTimeout,
		Holders: cmp.Or(holders, unknownHolders), Err: err,
	}
}

const unknownHolders = "sessions that have ended"

// waits calls Config.Waits if it is set.
func (c Config) waits(lock, holders string) {
	if c.Waits != nil {
		c.Waits(lock, holders)
	}
}

// blockers returns the lock holders of a table. The result is empty if their transactions
// have ended. It ignores an error of its query, because the caller reports the error of
// the lock.
func blockers(ctx context.Context, conn *pgx.Conn, r relation, exclusive bool) string {
	rows, _ := conn.Query(ctx, sqlText("queries/blockers"), r.OID, exclusive)
	holders, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return ""
	}
	return strings.Join(holders, ", ")
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}
