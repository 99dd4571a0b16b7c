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

// sqlText is one of these files. As parts of the program they are never missing.
func sqlText(path string) string {
	text, _ := sqlFiles.ReadFile(path + ".sql")
	return string(text)
}

const (
	// installLock keeps two installers of one database apart: "sextrig" in ASCII.
	installLock int64 = 0x73657874726967

	lockNotAvailable = "55P03"
	deadlockDetected = "40P01"
)

// settled makes a transaction independent of the role's and the database's settings:
// names mean what they say, and literals are quoted as pgcatalog.Literal does.
const settled = `
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL standard_conforming_strings = on;
SET LOCAL quote_all_identifiers = off;
SET LOCAL check_function_bodies = on;
SET LOCAL client_min_messages = warning;
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = 0;
`

// inTx runs do in a transaction with settled settings and commits it.
func inTx(ctx context.Context, conn *pgx.Conn, mode pgx.TxAccessMode, do func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: mode}
	return pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, settled); err != nil {
			return fmt.Errorf("settle transaction: %w", err)
		}
		return do(tx)
	})
}

// locked runs do while no other installer works on the database. The lock belongs to the
// session, since every table has a transaction of its own.
func (c Config) locked(ctx context.Context, conn *pgx.Conn, do func() error) error {
	says := func(holders string) { c.waits("the lock of another installation of triggers", holders) }
	if err := AwaitLock(ctx, conn, installLock, says); err != nil {
		return fmt.Errorf("wait for other installers of triggers: %w", err)
	}
	defer unlock(ctx, conn)
	return do()
}

// lockPause is the time between two tries. A session that waits in the server's queue
// could not say for whom.
const lockPause = 200 * time.Millisecond

// AwaitLock takes an advisory lock for the session, however long that lasts. Where it is
// not to be had within a moment, says is told which sessions hold it, and told again when
// others do.
func AwaitLock(ctx context.Context, conn *pgx.Conn, key int64, says func(holders string)) error {
	said := ""
	for try := 0; ; try++ {
		holders, err := tryLock(ctx, conn, key)
		if holders == "" || err != nil {
			return err
		}
		if try > 0 && says != nil && holders != said {
			says(holders)
			said = holders
		}
		if err := wait(ctx, lockPause); err != nil {
			return fmt.Errorf("its lock is held by %s: %w", holders, err)
		}
	}
}

// tryLock returns who holds the lock, or takes it and returns "".
func tryLock(ctx context.Context, conn *pgx.Conn, key int64) (holders string, err error) {
	err = inTx(ctx, conn, pgx.ReadWrite, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sqlText("queries/lock"), key).Scan(&holders)
	})
	return holders, err
}

// unlock ends the lock also where ctx is over. Where the connection is gone, so is the
// lock.
func unlock(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if conn.IsClosed() {
		return
	}
	if _, err := conn.Exec(ctx, "SELECT pg_catalog.pg_advisory_unlock($1)", installLock); err != nil {
		// A session that may still hold the lock must not go back to a pool.
		_ = conn.Close(ctx)
	}
}

// execAll runs the statements in order; what says what for.
func execAll(ctx context.Context, tx pgx.Tx, what string, statements []string) error {
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// relation is a table that triggers are created on or dropped from.
type relation struct {
	OID     uint32
	Schema  string
	Table   string
	Display string
}

// onTable runs do in one transaction under the lock timeout and tries again while others
// hold the table. The waits are short and apart: the application queues behind a waiting
// CREATE TRIGGER.
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

const unknownHolders = "sessions that have just ended"

// waits reports a wait to the caller.
func (c Config) waits(lock, holders string) {
	if c.Waits != nil {
		c.Waits(lock, holders)
	}
}

// blockers names the sessions in the way. It is a second look, so it may find none, and
// it must not hide the error that it explains.
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
