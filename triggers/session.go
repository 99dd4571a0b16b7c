package triggers

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed functions queries tables
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

// settled makes a transaction independent of the role's and the database's settings: names mean what
// they say, and literals are quoted as quoteLiteral does.
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

// locked runs do while no other installer works on the database. The lock belongs to the session, since
// every table has a transaction of its own.
func locked(ctx context.Context, conn *pgx.Conn, do func() error) error {
	err := inTx(ctx, conn, pgx.ReadWrite, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_catalog.pg_advisory_lock($1)", installLock)
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for other installers of triggers: %w", err)
	}
	defer unlock(ctx, conn)
	return do()
}

// tryLocked is locked, except that it does nothing while another installer is at work.
func tryLocked(ctx context.Context, conn *pgx.Conn, do func() error) error {
	var free bool
	if err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_try_advisory_lock($1)", installLock).Scan(&free); err != nil {
		return fmt.Errorf("look for other installers of triggers: %w", err)
	}
	if !free {
		return nil
	}
	defer unlock(ctx, conn)
	return do()
}

// unlock ends the lock also where ctx is over. Where the connection is gone, so is the lock.
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

// onTable runs do in one transaction under the lock timeout and tries again while others hold the
// table. The waits are short and apart: the application queues behind a waiting CREATE TRIGGER.
func (c Config) onTable(ctx context.Context, conn *pgx.Conn, r relation, exclusive bool, do func(pgx.Tx) error) error {
	var err error
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
	}
	return &LockError{
		Table: r.Display, Attempts: c.LockAttempts, Timeout: c.LockTimeout,
		PIDs: blockers(ctx, conn, r, exclusive), Err: err,
	}
}

// blockers names the sessions in the way. It is a second look, so it may find none, and it must not hide
// the error that it explains.
func blockers(ctx context.Context, conn *pgx.Conn, r relation, exclusive bool) []int32 {
	rows, _ := conn.Query(ctx, sqlText("queries/blockers"), r.OID, exclusive)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return nil
	}
	return pids
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
